"""A pool of environments: spaces, transitions, and the checks that all backends share."""

from __future__ import annotations

import difflib
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from damper.errors import DamperError
from damper.tasks import TASKS

Floats = NDArray[np.float32]
INT32_MAX = 2**31 - 1  # EnvPool's seeds and step counts are C++ ints


@dataclass(frozen=True, eq=False)
class Spec:
    """Spaces and times of one environment.

    ``period`` is its control period in seconds, None if unknown; ``env_spec`` is Gymnasium's
    description of the environment (see ``env_spec_json``).
    """

    id: str
    obs_dim: int
    act_dim: int
    low: Floats
    high: Floats
    max_episode_steps: int | None
    period: float | None
    obs_low: Floats
    obs_high: Floats
    env_spec: EnvSpec

    @classmethod
    def of_spaces(
        cls, env_spec: EnvSpec, obs: Any, act: Any, limit: int | None, period: float | None
    ) -> Spec:
        """Check that an actor-critic on vectors can use the spaces, and describe them."""
        name, Box = env_spec.id, gymnasium.spaces.Box

        def require(met: Any, must: str, given: Any, fix: str) -> None:
            if not met:
                raise DamperError(f"env={name!r} must have {must}, got {given}; {fix}")

        flatten = "flatten it, for instance with gymnasium.wrappers.FlattenObservation."
        is_vector = isinstance(obs, Box) and len(obs.shape) < 2
        require(is_vector, "a Box observation of shape (n,)", obs, flatten)
        continuous = "a continuous Box action of shape (n,)"
        is_float = isinstance(act, Box) and np.issubdtype(act.dtype, np.floating)
        require(is_float, continuous, act, "choose the environment's continuous variant.")
        wrappers = "gymnasium.wrappers.TransformAction and gymnasium.spaces.flatten_space."
        require(len(act.shape) < 2, continuous, act, f"flatten it, for instance with {wrappers}")
        bound = "give it finite bounds, for instance with gymnasium.wrappers.TransformAction."
        is_bounded = np.isfinite(act.low).all() and np.isfinite(act.high).all()
        require(is_bounded, "a bounded action space", act, bound)
        fixed = np.flatnonzero(~(act.low < act.high)).tolist()
        given = f"{act}, where low is not below high at {fixed}"
        leave_out = "leave such dimensions out of the action space."
        require(not fixed, "an action space with low < high", given, leave_out)
        bounds = act.low, act.high, obs.low, obs.high
        low, high, obs_low, obs_high = (np.asarray(b, np.float32).reshape(-1) for b in bounds)
        # Bounds in float64 are rounded inwards: an action at a bound must not lie beyond it.
        low = np.where(low < act.low.reshape(-1), np.nextafter(low, np.float32(np.inf)), low)
        high = np.where(high > act.high.reshape(-1), np.nextafter(high, np.float32(-np.inf)), high)
        return cls(
            name, obs_low.size, low.size, low, high, limit, period, obs_low, obs_high, env_spec
        )


class Transition(NamedTuple):
    """One true step ``(s, a, r, s')`` of every environment; its arrays are not to be changed.

    ``next_obs`` is ``s'``, the final observation where an episode ended. ``obs`` is the observation
    to act on next: the first of the new episode where one ended, ``next_obs`` elsewhere (the same
    array if no episode ended).
    """

    next_obs: Floats
    reward: Floats
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    obs: Floats


class InexactReplayError(DamperError):
    """An episode cannot be restored: replaying its actions gives other observations."""


class Pool(ABC):
    """P environments in lockstep; each ``step`` is a true step of each, also at episodes' ends."""

    spec: Spec
    seeds: list[int]
    backend: str
    exact_resume: bool
    _sent: bool | None = None  # whether a step is pending; None before the first reset

    def __init__(self, seeds: Sequence[int], largest: int) -> None:
        try:
            self.seeds = [operator.index(seed) for seed in seeds]
        except TypeError:
            self.seeds = []
        if not self.seeds or min(self.seeds) < 0 or max(self.seeds) > largest:
            raise DamperError(
                f"seeds must be one whole number from 0 to {largest} per environment, got "
                f"{seeds!r}; pass for instance seeds=range(5)."
            )
        self.size = len(self.seeds)

    @abstractmethod
    def reset(self) -> Floats:
        """Start every environment's first episode from its own seed -> observations [P, d]."""

    def step(self, actions: NDArray[Any]) -> Transition:
        """Take one step with actions [P, A] in the environment's units: ``send``, ``receive``."""
        self.send(actions)
        return self.receive()

    @abstractmethod
    def send(self, actions: NDArray[Any]) -> None:
        """Begin a step; a backend with threads runs it until ``receive``."""

    @abstractmethod
    def receive(self) -> Transition:
        """Return the transition of the step that was sent."""

    def state(self) -> dict[str, Any]:
        """The state that ``restore`` needs: JSON values and numpy arrays."""
        return {"backend": self.backend, "env": self.spec.id, "seeds": list(self.seeds)}

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> Floats:
        """Continue from ``state`` -> observations [P, d]; may raise ``InexactReplayError``."""

    @abstractmethod
    def start_afresh(self, restores: int) -> Floats:
        """Start new episodes from seeds made of (seed, number of restores): no start repeats."""

    @abstractmethod
    def close(self) -> None:
        """Release the environments."""

    def _new_seeds(self, restores: int) -> list[int]:
        """Seeds for the episodes after this many restores."""
        sequences = (np.random.SeedSequence([seed, restores]) for seed in self.seeds)
        return [int(sequence.generate_state(1)[0]) & INT32_MAX for sequence in sequences]

    def _check_turn(self, receiving: bool) -> None:
        """Raise unless every step is sent once and received once, after a reset."""
        if self._sent is None:
            raise DamperError("a pool must be reset before its first step: call pool.reset().")
        if self._sent != receiving:
            given, fix = ("one is still pending", "receive")
            if receiving:
                given, fix = ("none was sent", "send")
            raise DamperError(
                f"a step must be sent once and then received, but {given}; call pool.{fix} first."
            )

    def _check_actions(self, actions: NDArray[Any], dtype: Any) -> NDArray[Any]:
        """A checked copy of the actions [P, A], which the environments may keep."""
        self._check_turn(receiving=False)
        copy, shape = np.array(actions, dtype=dtype), (self.size, self.spec.act_dim)
        if copy.shape != shape:
            raise DamperError(
                f"actions must have shape {shape}, one row per environment, got {copy.shape}; "
                "pass one action for every agent of the pool."
            )
        if not np.isfinite(copy).all():
            agent = int(np.flatnonzero(~np.isfinite(copy).all(axis=1))[0])
            raise DamperError(
                f"actions must be finite, got {copy[agent].tolist()} for agent {agent}; "
                "the policy may have diverged, and a smaller learning_rate is the usual fix."
            )
        return copy

    def _check_state(self, state: Mapping[str, Any]) -> None:
        """Raise unless it is of the same backend, environment (without module) and seeds."""
        given = (state.get("backend"), state.get("env"), list(state.get("seeds", ())))
        expected = (self.backend, self.spec.id, self.seeds)
        same_env = str(given[1]).rpartition(":")[2] == self.spec.id.rpartition(":")[2]
        if given != (self.backend, given[1], self.seeds) or not same_env:
            raise DamperError(
                f"state must come from a pool with backend, env and seeds {expected}, got {given}; "
                "make the pool with the settings of the run that saved it."
            )


def unscale_action(action: Any, low: Any, high: Any) -> Any:
    """Map the policy's [-1, 1] to the environment's [low, high]; arrays or tensors."""
    # Clipped, because rounding may exceed a bound by one digit, and environments may refuse that.
    return (low + (action + 1.0) * 0.5 * (high - low)).clip(low, high)


def action_scale(low: Any, high: Any) -> Any:
    """Half the width of the action range, ``[A]``: the environment's unit per policy's unit."""
    return (high - low) * 0.5


def raise_unknown(env: str, known: Iterable[str], backend: str) -> NoReturn:
    """Raise for an id that the backend does not have, and suggest the closest one."""
    by_lower = {name.lower(): name for name in (*known, *TASKS)}
    close = difflib.get_close_matches(env.lower(), by_lower, n=1)
    fix = f"did you mean {by_lower[close[0]]!r}?" if close else f"choose one of {', '.join(TASKS)}."
    if backend == "Gymnasium" and re.fullmatch(r"[\w/-]+-v\d+", env):
        fix += f" For your own environment, name the module that registers it: my_module:{env}."
    raise DamperError(f"env must be an id that {backend} has registered, got {env!r}; {fix}")
