"""A written policy against its original, on thousands of observations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from damper.engine.envs.pool import action_scale
from damper.errors import DamperError
from damper.export.contract import observation_ranges
from damper.export.network import OPERATIONS, Network
from damper.policies.exported import open_file
from damper.policies.loaded import LoadedPolicy

TOLERANCE = 1e-5
UNIT_ROUNDOFF = 2.0**-24  # of float32
ROUNDING_FACTOR = 6.0  # over the typical error: both sides round, and in other orders
COUNT = 4096


def check_finite(network: Network) -> None:
    """Raise for a policy with weights that are not finite, because its training diverged."""
    for step in network.steps:
        if step.name == "Gemm" and not all(np.isfinite(part).all() for part in step.constants):
            raise DamperError(
                "the policy's weights must be finite, but some are not: its training diverged; "
                "export another agent, or train it again with a smaller learning_rate."
            )


def check_agreement(
    policy: LoadedPolicy, network: Network, path: Path, name: Path
) -> dict[str, float]:
    """Compare the file at ``path``, later called ``name``, with the original, or raise."""
    run, _ = open_file(path)
    obs = observations(policy, network.inputs)
    # A batch of one is checked too, because the batch axis must be free.
    difference = np.abs(run(obs) - policy.act(obs))
    difference[0] = np.maximum(difference[0], np.abs(run(obs[:1]) - policy.act(obs[:1]))[0])
    worst = float(difference.max())
    if not (difference <= limits(policy, network, obs)).all():
        raise DamperError(
            f"{name} must reproduce the original's actions, but differs by {worst:.2g} on {COUNT} "
            "observations: it was not written, and what was there before is untouched; please "
            "report this with the policy."
        )
    return {"observations": COUNT, "largest_difference": worst}


def limits(policy: LoadedPolicy, network: Network, obs: NDArray[np.float32]) -> NDArray[np.float64]:
    """The largest differences allowed, ``[N, A]``.

    1e-5, 1e-5 times half the action range, or what rounding explains: the largest of the three, or
    without bounds of the first and the last.
    """
    half_range = action_scale(np.asarray(policy.low), np.asarray(policy.high))
    base = TOLERANCE * np.maximum(1.0, np.where(np.isfinite(half_range), half_range, 1.0))
    return np.maximum(base, ROUNDING_FACTOR * rounding_errors(network, obs))


def rounding_errors(network: Network, obs: NDArray[np.float32]) -> NDArray[np.float64]:
    """How large float32's rounding errors typically are in the actions, ``[N, A]``.

    A sum has the errors of its terms, taken as independent, and one of its own, relative to its
    terms' magnitudes. Any other operation passes errors on as it does a shift of its input: tanh
    and cuts may flatten them.
    """
    x = torch.as_tensor(obs, dtype=torch.float64)
    error = torch.zeros_like(x)
    for step in network.steps:
        constants = [torch.as_tensor(constant, dtype=torch.float64) for constant in step.constants]
        operation = OPERATIONS[step.name]
        y = operation(x, *constants)
        if step.name == "Gemm":
            weight, bias = constants
            rounding = UNIT_ROUNDOFF * (x.abs() @ weight.abs() + bias.abs())
            error = (error.square() @ weight.square() + rounding.square()).sqrt()
        else:
            up, down = operation(x + error, *constants), operation(x - error, *constants)
            error = torch.maximum((up - y).abs(), (down - y).abs()) + UNIT_ROUNDOFF * y.abs()
        x = y
    return error.numpy()


def observations(policy: LoadedPolicy, dim: int) -> NDArray[np.float32]:
    """Test observations, small and large; if known, within bounds and around the mean."""
    generator, part = np.random.default_rng(0), COUNT // 4
    obs = generator.normal(size=(COUNT, dim)) * generator.choice([0.1, 1.0, 10.0], size=(COUNT, 1))
    ranges = observation_ranges(policy)
    if ranges is not None:
        low, high = (np.ravel(bound).astype(np.float64) for bound in ranges)
        bounded = np.isfinite(low) & np.isfinite(high)
        shape = (part, int(bounded.sum()))
        obs[:part, bounded] = generator.uniform(low[bounded], high[bounded], shape)
    if policy.normaliser is not None:
        spread = 3.0 * generator.normal(size=(part, dim))
        obs[part : 2 * part] = policy.normaliser.mean + spread / policy.normaliser.scale
    return np.asarray(obs, np.float32)
