"""What a reader makes of a source, and what it is asked for; ``opening`` lists the readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import NormalizeObservation
from numpy.typing import ArrayLike, NDArray

from damper.engine.envs import EnvLike, Spec
from damper.errors import DamperError
from damper.policies.episodes import Act
from damper.policies.normaliser import Normaliser
from damper.policies.policy import Policy, Predictor

Array = NDArray[Any]


class Request(NamedTuple):
    """What is asked of a source."""

    agent: int | str | None = None  # of a run; also "best", or None for all
    env: EnvLike | None = None  # to run it in, in place of the recorded one
    spec: Spec | None = None  # what ``env`` makes
    vecnormalize: Any = None  # SB3's ``VecNormalize``, or the file that its ``save`` wrote
    trust: bool = False  # whether what cannot be read otherwise may be unpickled


class LinearActor(NamedTuple):
    """An actor of linear layers, from which exported files are written."""

    layers: list[tuple[Array, Array]]  # weights [in, out] and biases [out]; the last, the mean's
    activation: str  # between the layers, one of ``activations.EXPORTABLE``
    squash: bool = True  # tanh bounds the action (TD3, SAC), or else a cut (PPO)
    clip_mean: float | None = None  # gSDE's bound on what goes into tanh


@dataclass(frozen=True)
class LoadedPolicy(Predictor):
    """A policy from any source, in the environment's own units, with SB3's ``predict``.

    Attributes:
        act: observations ``[N, d]`` to actions ``[N, A]``, as the original computes them.
        env: the environment to run it in; None if unknown.
        facts: what is known of its training.
        agent: its row in the run's manifest: its seed, and settings that differ between agents.
        actor: its layers; None where ``refusal`` says why it can only act.
        refusal: why it cannot be exported.
        low: the actions' lower bounds.
        high: the actions' upper bounds.
        obs_ranges: the observations' bounds, if the model has them.
        normaliser: statistics that ``act`` applies and an exported file must hold.
        smoothness: means of the run's own evaluation, or those in an exported file.
        sizes: d and A where they are known.
        draw: like ``act``, but sampled from the policy's distribution; None if unavailable.
        weights: the policy as ``damper.Policy``, if its file holds no more than that.
    """

    act: Act
    env: EnvLike | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    agent: dict[str, Any] = field(default_factory=lambda: {"seed": -1})  # -1: unknown
    actor: LinearActor | None = None
    refusal: DamperError | None = None
    low: ArrayLike = ()
    high: ArrayLike = ()
    obs_ranges: tuple[Array, Array] | None = None
    normaliser: Normaliser | None = None
    smoothness: dict[str, Any] | None = None
    sizes: tuple[int, int] | None = None
    draw: Act | None = None
    weights: Policy | None = None

    def _about(self) -> tuple[int | None, str, str]:
        name = getattr(self.env, "id", self.env)
        size = self.sizes[0] if self.sizes else None
        backbone = self.facts.get("backbone", "an unknown algorithm")
        return size, name if isinstance(name, str) else "its environment", backbone

    def _act(self, obs: Array) -> NDArray[np.float32]:
        return np.asarray(self.act(obs), np.float32)

    def _draw(self, obs: Array) -> NDArray[np.float32] | None:
        return None if self.draw is None else self.draw(obs)


def from_policy(policy: Policy) -> LoadedPolicy:
    """One of our own policies, with everything in its header."""
    info = policy.info
    pairs = [pair for name, pair in policy.weights.items() if acts(name)]
    layers = [(weight[0].numpy(), bias[0, 0].numpy()) for weight, bias in pairs]
    recorded = ("backbone", "method", "seed", "steps", "settings", "versions", "backend")
    facts = {name: getattr(info, name) for name in recorded}
    if info.seed < 0:
        facts["seed"] = None
    if info.backend is None:
        del facts["backend"]
    return LoadedPolicy(
        policy,
        policy.env_spec,
        facts,
        agent={"seed": info.seed},
        actor=LinearActor(layers, info.activation, info.squash),
        refusal=unknown_statistics(policy.env_spec),
        low=info.low,
        high=info.high,
        normaliser=policy.normaliser,
        sizes=policy.sizes,
        draw=lambda obs: policy.predict(obs, deterministic=False)[0],
        weights=policy,
    )


def acts(layer: str) -> bool:
    """Whether the deterministic action depends on a layer."""
    return layer == "mu" or layer.startswith("trunk.")


def unknown_statistics(env: EnvSpec | None) -> DamperError | None:
    """The error for a policy trained under NormalizeObservation, whose statistics no file holds."""
    wrappers = env.additional_wrappers if env else ()
    if all(wrapper.name != NormalizeObservation.__name__ for wrapper in wrappers):
        return None
    return DamperError(
        "the policy was trained on observations that NormalizeObservation normalised, whose "
        "statistics are in no file: train with SB3's VecNormalize, whose statistics can be "
        "exported."
    )
