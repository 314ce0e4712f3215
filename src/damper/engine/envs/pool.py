"""The interface of a pool of environments: spaces, transitions, and the checks that all backends share."""

from __future__ import annotations

import difflib
import operator
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from damper.errors import DamperError
from damper.tasks import TASKS

INT32_MAX = 2**31 - 1  # EnvPool's seeds and step counts are C++ ints


@dataclass(frozen=True, eq=False)
class Spec:
    """Spaces and times of one environment; ``period`` is its control period in seconds, None if unknown.

    ``env_spec`` is Gymnasium's description of the environment (see ``env_spec_json``).
    """

    id: str
    obs_dim: int
    act_dim: int
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    max_episode_steps: int | None
    period: float | None
    obs_low: NDArray[np.float32]
    obs_high: NDArray[np.float32]
    env_spec: EnvSpec


class Transition(NamedTuple):
    """One true step ``(s, a, r, s')`` of every environment; the arrays are new, and read-only by convention.

    ``next_obs`` is ``s'``, the final observation where an episode ended. ``obs`` is the observation
    to act on next: the first of the new episode where one ended, ``next_obs`` elsewhere (the same
    array if no episode ended).
    """

    next_obs: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    obs: NDArray[np.float32]


class InexactReplayError(DamperError):
    """An episode cannot be restored: replaying its actions gives other observations."""


class Pool(Protocol):
    """P environments in lockstep: each ``step`` is exactly one true step of each, also when episodes end."""

    spec: Spec
    size: int
    backend: str
    exact_resume: bool

    @abstractmethod
    def reset(self) -> NDArray[np.float32]:
        """Start every environment's first episode from its own seed -> observations [P, d]."""

    def step(self, actions: NDArray[Any]) -> Transition:
        """Take one step with actions [P, A] in the environment's own units: ``send``, then ``receive``."""
        self.send(actions)
        return self.receive()

    @abstractmethod
    def send(self, actions: NDArray[Any]) -> None:
        """Begin a step; a backend with threads runs it while the caller does other work before ``receive``."""

    @abstractmethod
    def receive(self) -> Transition:
        """Return the transition of the step that was sent."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The state that ``restore`` needs: JSON values and numpy arrays."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> NDArray[np.float32]:
        """Continue from ``state`` -> the observations [P, d] to act on; may raise ``InexactReplayError``."""

    @abstractmethod
    def start_afresh(self, restores: int) -> NDArray[np.float32]:
        """Start new episodes from seeds made of (seed, number of restores), so that no start repeats."""

    @abstractmethod
    def close(self) -> None:
        """Release the environments."""


def read_spaces(
    env_spec: EnvSpec,
    obs: gymnasium.Space[Any],
    act: gymnasium.Space[Any],
    limit: int | None,
    period: float | None,
) -> Spec:
    """Check that an actor-critic on vectors can use the spaces, and describe them."""
    name = env_spec.id
    if not isinstance(obs, gymnasium.spaces.Box) or len(obs.shape) > 1:
        raise DamperError(
            f"env={name!r} must have a Box observation of shape (n,), got {obs}; "
            "flatten it before training, for instance with gymnasium.wrappers.FlattenObservation."
        )
    if not isinstance(act, gymnasium.spaces.Box) or not np.issubdtype(act.dtype, np.floating):
        raise DamperError(
            f"env={name!r} must have a continuous Box action of shape (n,), got {act}; "
            "choose the environment's continuous variant."
        )
    if len(act.shape) > 1:
        raise DamperError(
            f"env={name!r} must have a continuous Box action of shape (n,), got {act}; flatten it, "
            "for instance with "
            "gymnasium.wrappers.TransformAction and gymnasium.spaces.flatten_space."
        )
    if not (np.isfinite(act.low).all() and np.isfinite(act.high).all()):
        raise DamperError(
            f"env={name!r} must have a bounded action space, got {act}; "
            "give it finite bounds, for instance with gymnasium.wrappers.TransformAction."
        )
    if not (act.low < act.high).all():
        fixed = np.flatnonzero(~(act.low < act.high)).tolist()
        raise DamperError(
            f"env={name!r} must have an action space with low < high, got {act}, where low is not "
            f"below high at {fixed}; leave such dimensions out of the action space."
        )
    bounds = [
        np.asarray(bound, np.float32).reshape(-1)
        for bound in (act.low, act.high, obs.low, obs.high)
    ]
    low, high, obs_low, obs_high = bounds
    # Bounds in float64 are rounded inwards: an action at a bound must not lie beyond it.
    low = np.where(low < act.low.reshape(-1), np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > act.high.reshape(-1), np.nextafter(high, np.float32(-np.inf)), high)
    return Spec(name, obs_low.size, low.size, low, high, limit, period, obs_low, obs_high, env_spec)


def unscale_action(action: Any, low: Any, high: Any) -> Any:
    """Map the policy's [-1, 1] to the environment's [low, high], as SB3's function of this name; arrays or tensors.

    Clipped, because rounding may exceed a bound by one digit, and environments may refuse that.
    """
    return (low + (action + 1.0) * 0.5 * (high - low)).clip(low, high)


def action_scale(low: Any, high: Any) -> Any:
    """Half the width of the action range, ``[A]``: multiply a change in policy units by it to get environment units."""
    return (high - low) * 0.5


def check_seeds(seeds: Sequence[int], largest: int) -> list[int]:
    """The seeds as integers, one per environment; raises unless all are from 0 to ``largest``."""
    try:
        numbers = [operator.index(seed) for seed in seeds]
    except TypeError:
        numbers = []
    if not numbers or min(numbers) < 0 or max(numbers) > largest:
        raise DamperError(
            f"seeds must be one whole number from 0 to {largest} per environment, got {seeds!r}; "
            "pass for instance seeds=range(5)."
        )
    return numbers


def check_actions(actions: NDArray[Any], size: int, spec: Spec, dtype: Any) -> NDArray[Any]:
    """A checked copy of the actions [P, A]: environments may keep their input, and callers may overwrite it."""
    copy = np.array(actions, dtype=dtype)
    if copy.shape != (size, spec.act_dim):
        raise DamperError(
            f"actions must have shape {(size, spec.act_dim)}, one row per environment, got "
            f"{copy.shape}; pass one action for every agent of the pool."
        )
    if not np.isfinite(copy).all():
        agent = int(np.flatnonzero(~np.isfinite(copy).all(axis=1))[0])
        raise DamperError(
            f"actions must be finite, got {copy[agent].tolist()} for agent {agent}; "
            "the policy may have diverged, and a smaller learning_rate is the usual fix."
        )
    return copy


def check_turn(sent: bool, receiving: bool) -> None:
    """Raise unless every step is sent once and received once."""
    if sent != receiving:
        given, fix = ("none was sent", "send") if receiving else ("one is still pending", "receive")
        raise DamperError(
            f"a step must be sent once and then received, but {given}; call pool.{fix} first."
        )


def seed_again(seed: int, restores: int) -> int:
    """A new seed for the episodes after this many restores."""
    return int(np.random.SeedSequence([seed, restores]).generate_state(1)[0]) & INT32_MAX


def check_state(state: Mapping[str, Any], backend: str, name: str, seeds: list[int]) -> None:
    """Raise unless the state comes from the same backend, environment (by its id, without module) and seeds."""
    given = (state.get("backend"), state.get("env"), list(state.get("seeds", ())))
    if (*given[:1], str(given[1]).rpartition(":")[2], *given[2:]) != (
        backend,
        name.rpartition(":")[2],
        seeds,
    ):
        raise DamperError(
            f"state must come from a pool with backend, env and seeds {(backend, name, seeds)}, "
            f"got {given}; make the pool with the settings of the run that saved it."
        )


def raise_unknown(env: str, known: Iterable[str], backend: str) -> NoReturn:
    """Raise for an id that the backend does not have, and suggest the closest one."""
    by_lower = {name.lower(): name for name in (*known, *TASKS)}
    close = difflib.get_close_matches(env.lower(), by_lower, n=1)
    fix = f"did you mean {by_lower[close[0]]!r}?" if close else f"choose one of {', '.join(TASKS)}."
    if backend == "Gymnasium" and re.fullmatch(r"[\w/-]+-v\d+", env):
        fix += f" For your own environment, name the module that registers it: my_module:{env}."
    raise DamperError(f"env must be an id that {backend} has registered, got {env!r}; {fix}")
