"""A written policy against its original, on thousands of observations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import NormalizeObservation
from numpy.typing import NDArray

from damper.engine.envs.spec import action_scale
from damper.errors import DamperError
from damper.export.contract import observation_ranges
from damper.export.files import open_file
from damper.export.network import Network
from damper.export.sources import Source

TOLERANCE = 1e-5
COUNT = 4096


def check_finite(network: Network) -> None:
    """Raise for a policy with weights that are not finite, because its training diverged."""
    if not all(np.isfinite(c).all() for step in network.steps if step.name == "Gemm" for c in step.constants):
        raise DamperError(
            "the policy's weights must be finite, but some are not: its training diverged; export another agent, or "
            "train it again with a smaller learning_rate."
        )


def check_statistics(source: Source) -> None:
    """Raise for a policy trained under Gymnasium's NormalizeObservation, whose statistics no file holds."""
    wrappers = source.env.additional_wrappers if isinstance(source.env, EnvSpec) else ()
    if any(wrapper.name == NormalizeObservation.__name__ for wrapper in wrappers):
        raise DamperError(
            "the policy was trained on observations that NormalizeObservation normalised, whose statistics are in no "
            "file: train with SB3's VecNormalize, whose statistics can be exported."
        )


def check_agreement(source: Source, network: Network, path: Path, name: Path) -> dict[str, float]:
    """The largest difference between the actions of the file at ``path`` and of the original; raises above 1e-5.

    If half the action range is above 1, the limit is 1e-5 times that: float32 has no more digits. Without bounds the
    largest action takes its place. ``name`` is the file's later name, for the message.
    """
    run, _ = open_file(path)
    obs = observations(source, network.inputs)
    # A batch of one is checked too, because the batch axis must be free.
    expected = source.act(obs)
    worst = max(float(np.abs(run(obs) - expected).max()), float(np.abs(run(obs[:1]) - source.act(obs[:1])).max()))
    scale = float(np.max(action_scale(np.asarray(source.low), np.asarray(source.high))))
    scale = scale if np.isfinite(scale) else float(np.abs(expected).max())
    if not worst <= TOLERANCE * max(1.0, scale):
        raise DamperError(
            f"{name} must reproduce the original's actions, but differs by {worst:.2g} on {COUNT} observations: "
            "it was not written, and what was there before is untouched; please report this with the policy."
        )
    return {"observations": COUNT, "largest_difference": worst}


def observations(source: Source, dim: int) -> NDArray[np.float32]:
    """Test observations, small and large; some within the space's bounds and around the normaliser's mean, if known."""
    generator, part = np.random.default_rng(0), COUNT // 4
    obs = generator.normal(size=(COUNT, dim)) * generator.choice([0.1, 1.0, 10.0], size=(COUNT, 1))
    ranges = observation_ranges(source)
    if ranges is not None:
        low, high = (np.ravel(bound).astype(np.float64) for bound in ranges)
        bounded = np.isfinite(low) & np.isfinite(high)
        obs[:part, bounded] = generator.uniform(low[bounded], high[bounded], (part, int(bounded.sum())))
    if source.normaliser is not None:
        spread = 3.0 * generator.normal(size=(part, dim))
        obs[part : 2 * part] = source.normaliser.mean + spread / source.normaliser.scale
    return np.asarray(obs, np.float32)
