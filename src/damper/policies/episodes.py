"""Deterministic episodes on given seeds, all environments stepped together."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper import metrics
from damper.engine.envs import EnvLike, Spec, make_pool
from damper.errors import DamperError
from damper.policies.filters import Filter
from damper.protocols import EVALUATION_SEEDS

WARN_AFTER_STEPS = 10_000  # a longer episode may have no end at all
# A longer one is assumed to have none, unless the environment has a longer limit.
GIVE_UP_AFTER_STEPS = 100_000
FIRST_EXTRA_SEED, FIRST_SELECTION_SEED = 1_000_000, 2_000_000
TIME_LIMIT_FIX = "add gymnasium.wrappers.TimeLimit, or register it with max_episode_steps"
Act = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Episode:
    """One evaluated episode; actions as the policy gave them and as executed, ``[length, A]``."""

    seed: int
    total: float
    terminated: bool
    raw: NDArray[np.float32]
    executed: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    filtered: bool = False

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.executed)

    def record(self) -> dict[str, Any]:
        """The episode's numbers; with a filter also the measures of the policy's raw actions."""
        record = {"seed": self.seed, "return": self.total, "length": self.length}
        record["terminated"] = self.terminated
        record |= metrics.summary(self.executed, self.low, self.high)
        if self.filtered:
            raw = metrics.summary(self.raw, self.low, self.high)
            record |= {f"raw_{name}": value for name, value in raw.items() if name != "length"}
        return record


def evaluation_seeds(episodes: int) -> tuple[int, ...]:
    """The protocol's ten fixed seeds, then 1,000,000, 1,000,001, ... for more episodes."""
    if not isinstance(episodes, int | Integral) or episodes < 1:
        what = "episodes must be at least 1, a whole number"
        raise DamperError(f"{what}, but {episodes!r} was given.")
    episodes = operator.index(episodes)
    extra = range(FIRST_EXTRA_SEED, FIRST_EXTRA_SEED + max(0, episodes - len(EVALUATION_SEEDS)))
    return (*EVALUATION_SEEDS[:episodes], *extra)


def selection_seeds(episodes: int) -> tuple[int, ...]:
    """Seeds of evaluations during training, which ``damper.evaluate`` does not use.

    A policy must not be judged on the episodes by which it was selected.
    """
    return tuple(range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + episodes))


def run_episodes(
    act: Act,
    env: EnvLike,
    seeds: Sequence[int],
    backend: str = "gymnasium",
    threads: int | None = None,
    filter: Filter | None = None,
    sizes: tuple[int, int] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> tuple[list[Episode], Spec]:
    """Run one episode per seed.

    ``act`` maps observations ``[N, d]`` to actions ``[N, A]`` in the environment's units. ``sizes``
    are d and A if they are known; an environment with other sizes is refused.
    """
    pool = make_pool(env, seeds, backend, threads, **(env_kwargs or {}))
    spec = pool.spec
    try:
        check_fit(spec, sizes)
        raw, executed, totals, lengths, terminated = _run(act, pool, len(seeds), filter)
    finally:
        pool.close()
    episodes, filtered = [], filter is not None
    for i, seed in enumerate(seeds):
        actions = raw[: lengths[i], i], executed[: lengths[i], i]
        outcome = float(totals[i]), bool(terminated[i])
        episodes.append(Episode(seed, *outcome, *actions, spec.low, spec.high, filtered))
    return episodes, spec


def check_fit(spec: Spec, sizes: tuple[int, int] | None) -> None:
    """Raise for an environment whose numbers of observations and actions are not the policy's."""
    if sizes is not None and sizes != (spec.obs_dim, spec.act_dim):
        raise DamperError(
            f"env must have the policy's {sizes[0]} observations and {sizes[1]} actions, but "
            f"{spec.id!r} has {spec.obs_dim} and {spec.act_dim}: name the environment it was "
            "trained for."
        )


def _as_array(actions: Any) -> NDArray[Any]:
    """The policy's output as an array; the user's callable may return anything."""
    try:
        array = np.asarray(actions)
    except (TypeError, ValueError, RuntimeError):
        # Parts of different shapes; a tensor on a GPU or with a gradient.
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        module = "actor(torch.as_tensor(obs)).detach().cpu().numpy()"
        hint = "predict(obs)[0]" if isinstance(actions, tuple) else module
        raise DamperError(
            "the policy must return its actions as one array [N, A], but returned a "
            f"{type(actions).__name__}: wrap it, as in lambda obs: {hint}."
        )
    return array


def _run(act: Act, pool: Any, count: int, filter: Filter | None) -> tuple[Any, ...]:
    spec, obs = pool.spec, pool.reset()
    low, high = spec.low, spec.high
    totals, lengths = np.zeros(count), np.zeros(count, np.int64)
    running, terminated = np.ones(count, bool), np.zeros(count, bool)
    raw: list[NDArray[np.float32]] = []
    executed: list[NDArray[np.float32]] = []
    give_up_after = max(GIVE_UP_AFTER_STEPS, spec.max_episode_steps or 0)
    while running.any():
        if len(executed) == WARN_AFTER_STEPS:
            logging.getLogger("damper").warning(
                "an episode of %s has not ended after %s steps: if it needs a time limit, %s.",
                *(spec.id, f"{WARN_AFTER_STEPS:,}", TIME_LIMIT_FIX),
            )
        if len(executed) == give_up_after:
            raise DamperError(
                f"env={spec.id!r} must have episodes that end, but {running.sum()} of {count} had "
                f"not ended after {give_up_after:,} steps: {TIME_LIMIT_FIX}."
            )
        actions = _as_array(act(obs))
        if actions.shape != (count, spec.act_dim):
            raise DamperError(
                f"the policy must give {spec.act_dim} actions for each observation of {spec.id}, "
                f"shape {(count, spec.act_dim)}, but gave shape {actions.shape}: choose the "
                "environment it was trained for."
            )
        clipped = np.clip(actions, low, high).astype(np.float32)
        sent = clipped
        if filter is not None and executed:
            sent = np.clip(filter(clipped, executed[-1], high - low), low, high).astype(np.float32)
        transition = pool.step(sent)
        raw.append(clipped)
        executed.append(sent)
        totals += np.where(running, transition.reward, 0.0)
        lengths += running
        ended = running & (transition.terminated | transition.truncated)
        terminated |= ended & transition.terminated
        running &= ~ended
        obs = transition.obs
    return np.stack(raw), np.stack(executed), totals, lengths, terminated
