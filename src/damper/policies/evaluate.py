"""``damper.evaluate``: per-episode records of a run or a policy, and their summary over seeds."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save

from damper.engine.device.threads import torch_threads
from damper.engine.envs import EnvLike, Spec, spec_of
from damper.engine.envs.env_spec_json import to_json
from damper.engine.envs.pool import unscale_action
from damper.engine.networks.stacked import StackedActor
from damper.errors import DamperError
from damper.files import write_bytes, write_json
from damper.metrics import is_constant, mean_change
from damper.policies.episodes import Act, Episode, evaluation_seeds, run_episodes
from damper.policies.filters import Filter, parse_filter
from damper.policies.loaded import LoadedPolicy, Request
from damper.policies.opening import open_policies
from damper.provenance import versions
from damper.seed_groups import group_by_settings


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Episodes of one or more agents on the same seeds.

    Attributes:
        env: the environment's id.
        agents: one row per agent, as in the run's manifest.
        episodes: for each agent, its episodes in the order of the seeds.
        versions: of libraries and physics engines that made the episodes.
        env_spec: Gymnasium's spec of the environment as JSON, where it is known.
        training: what is known of the first policy's training, as in an export's contract.
    """

    env: str
    agents: list[dict[str, Any]]
    episodes: list[list[Episode]] = field(repr=False)
    versions: dict[str, str]
    env_spec: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)

    def records(self) -> list[dict[str, Any]]:
        """One flat row per agent and episode."""
        rows = []
        for index, (agent, episodes) in enumerate(zip(self.agents, self.episodes, strict=True)):
            settings = {name: value for name, value in agent.items() if name != "seed"}
            row = {"agent": index, "training_seed": agent["seed"], **settings}
            rows += [row | episode.record() for episode in episodes]
        return rows

    def summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """Mean, spread over seeds and pooled spread, by group of agents and measure.

        Spreads are sample deviations, NaN for a single value.
        """
        records = [[episode.record() for episode in episodes] for episodes in self.episodes]
        first = records[0][0]
        names = ["length", *(name for name, value in first.items() if isinstance(value, float))]
        tables = {
            name: np.array([[row[name] for row in rows] for rows in records]) for name in names
        }
        return {
            label: {name: _spreads(table[members]) for name, table in tables.items()}
            for label, members in group_by_settings(self.agents).items()
        }

    def constant_agents(self) -> list[int]:
        """Agents that hold one action throughout each episode: their smoothness means nothing."""
        constant = []
        for index, episodes in enumerate(self.episodes):
            # The raw actions: behind a strong filter any policy looks constant.
            changes = [mean_change(e.raw, e.low, e.high) for e in episodes]
            if is_constant(changes, [e.length for e in episodes]):
                constant.append(index)
        return constant

    def save(self, folder: Path | str) -> None:
        """Write every episode's numbers, ``episodes.json``, and actions, ``traces.safetensors``."""
        folder, steps = Path(folder), self.training.get("steps")
        facts = {"env": self.env, "env_spec": self.env_spec, "steps": steps}
        content = {**facts, "versions": self.versions, "episodes": self.records()}
        write_json(folder / "episodes.json", content)
        traces = {}
        for agent, episodes in enumerate(self.episodes):
            for episode in episodes:
                name = f"{agent:04d}.{episode.seed}"
                traces[f"raw.{name}"] = np.ascontiguousarray(episode.raw)
                traces[f"executed.{name}"] = np.ascontiguousarray(episode.executed)
        write_bytes(folder / "traces.safetensors", save(traces))


def _spreads(table: NDArray[np.float64]) -> dict[str, float]:
    """Mean and spreads of a table with a row per seed and a column per episode."""
    over_seeds = float(table.mean(1).std(ddof=1)) if len(table) > 1 else math.nan
    pooled = float(table.std(ddof=1)) if table.size > 1 else math.nan
    return {"mean": float(table.mean()), "over_seeds": over_seeds, "pooled": pooled}


def evaluate(
    run_or_policy: Any,
    env: EnvLike | None = None,
    episodes: int = 10,
    seeds: Sequence[int] | None = None,
    filter: Filter | str | None = None,
    backend: str = "gymnasium",
    env_threads: int | None = None,
    vecnormalize: Any = None,
    trust: bool = False,
) -> Evaluation:
    """Run the deterministic policy of every agent for one episode per seed.

    Args:
        run_or_policy: a ``Run``, a ``Policy``, what ``damper.load`` returns, a Stable-Baselines3
            model, the path of a run's folder, a policy file, an SB3 zip or an exported file, or a
            callable from observations ``[N, d]`` to actions ``[N, A]`` in the environment's units.
            An unfinished run is evaluated at its newest checkpoint.
        env: an id, a Gymnasium spec, or a callable that makes an environment; by default exactly
            the environment that the policy was trained in. An id is put into the wrappers that
            the policy was trained in.
        episodes: number of episodes, on the protocol's fixed seeds; not used with ``seeds``.
        seeds: the environments' seeds, one per episode, the same for all agents.
        filter: a filter on the executed action, or its text ("low-pass:0.3"); records then hold raw
            and executed smoothness.
        backend: the library that steps the environments, "gymnasium" or "envpool".
        env_threads: number of EnvPool's threads.
        vecnormalize: for an SB3 model, its ``VecNormalize`` or the file which that saved (a pickle:
            needs ``trust``).
        trust: allow unpickling what cannot be read otherwise; it runs whatever code the file
            contains.
    """
    chosen = filter if filter is None or callable(filter) else parse_filter(filter)
    seeds = evaluation_seeds(episodes) if seeds is None else _check_seeds(seeds)
    spec = None if env is None else spec_of(env, backend)
    policies = open_policies(run_or_policy, Request(None, env, spec, vecnormalize, trust))
    first = policies[0]
    if first.env is None:
        named = isinstance(run_or_policy, str | Path)
        what = run_or_policy if named else f"a {type(run_or_policy).__name__}"
        raise DamperError(
            f"env must be given, because {what} does not record its environment: give its id or a "
            "function that makes it (env=, --env)."
        )
    act, all_seeds = _together(policies), [*seeds] * len(policies)
    options = (backend, env_threads, chosen, first.sizes)
    with torch_threads(1):  # one step's matrix products are too small to share
        recorded, spec = run_episodes(act, first.env, all_seeds, *options)
    _compare_ranges(first, spec)
    agents = [policy.agent for policy in policies]
    by_agent = [recorded[i : i + len(seeds)] for i in range(0, len(recorded), len(seeds))]
    env_spec = to_json(spec.env_spec)
    evaluation = Evaluation(spec.id, agents, by_agent, versions(), env_spec, first.facts)
    for agent in evaluation.constant_agents():
        warn_of_constant_action(policies[agent])
    return evaluation


def _check_seeds(seeds: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(seed) for seed in seeds)
    except TypeError as error:
        given = f"{seeds!r} was given: use episodes for a number of them"
        what = "seeds must be the environments' seeds, as in [0, 1]"
        raise DamperError(f"{what}, but {given}.") from error


def _compare_ranges(policy: LoadedPolicy, spec: Spec) -> None:
    """Warn where the policy acts in another range: the same number means another force there."""
    given = np.array([np.ravel(policy.low), np.ravel(policy.high)], float)
    taken = np.array([spec.low, spec.high])
    if given.shape == taken.shape and np.isfinite(given).all() and not np.allclose(given, taken):
        ranges = (*given.tolist(), spec.id, *taken.tolist())
        logging.getLogger("damper").warning(
            "the policy's actions go from %s to %s, but %s takes actions from %s to %s: they were "
            "clipped, not rescaled; evaluate it in the environment that it was trained in, or wrap "
            "this one to take the policy's range.",
            *ranges,
        )


def warn_of_constant_action(policy: LoadedPolicy) -> None:
    """Warn that a policy holds one action, which makes its perfect smoothness meaningless."""
    row = {"method": policy.facts.get("method"), **policy.agent}
    parts = [
        str(value) if name == "method" else f"{name} {value}"
        for name, value in row.items()
        if value is not None and (name, value) != ("seed", -1)
    ]
    logging.getLogger("damper").warning(
        "%s holds one action throughout each episode, so its smoothness says nothing: a smaller "
        "eta (or weight of the smoothing loss) is the usual fix.",
        f"the agent of {', '.join(parts)}" if parts else "the policy",
    )


def _together(policies: Sequence[LoadedPolicy]) -> Act:
    """All policies as one batch: observations ``[P·E, d]`` in, actions out.

    A diverged policy is still evaluated: where it gives NaN, the action is the middle of the range,
    or 0 for a policy that is cut to its range (PPO's).
    """
    several = [policy.weights for policy in policies if policy.weights is not None]
    if not several:
        return policies[0].act
    first, count = several[0], len(several)
    if not first.info.squash:  # always a single policy: runs hold TD3's and SAC's
        return lambda obs: np.nan_to_num(first(obs))
    flat_params = torch.stack([policy.flat_params for policy in several])
    low, high = torch.tensor([first.info.low, first.info.high], dtype=flat_params.dtype)
    # Agents of a run share one architecture, so that one stack of weights acts for all.
    actor = StackedActor(first.layout.unflatten(flat_params), first.info.activation)

    @torch.no_grad()
    def act(obs: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = obs.reshape(count, -1, obs.shape[-1])
        if first.normaliser is not None:
            pairs = zip(several, rows, strict=True)
            rows = np.stack([policy.normalised(row) for policy, row in pairs])
        mu = torch.nan_to_num(actor(torch.from_numpy(rows).to(flat_params.dtype))).flatten(0, 1)
        actions: torch.Tensor = unscale_action(mu, low, high)
        return actions.numpy()

    return act
