"""``damper.evaluate``: per-episode records of a run or a policy, and their summary over seeds."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save

from damper.engine.device.threads import torch_threads
from damper.engine.envs import EnvLike
from damper.engine.envs.env_spec_json import to_json
from damper.engine.envs.pool import unscale_action
from damper.engine.envs.run_episodes import Act, Episode, evaluation_seeds, run_episodes
from damper.engine.networks.stacked import StackedActor
from damper.engine.run.folder import Run
from damper.engine.run.policy import Policy
from damper.errors import DamperError
from damper.export.measure import compare_ranges, warn_of_constant_action
from damper.export.sources import Source, find_source, is_model, open_source
from damper.files import write_bytes, write_json
from damper.filters import Filter, parse_filter
from damper.metrics import is_constant, mean_change
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
        steps: environment steps that the policies were trained for, if known.
        method: the method that they were trained with, if known.
    """

    env: str
    agents: list[dict[str, Any]]
    episodes: list[list[Episode]] = field(repr=False)
    versions: dict[str, str]
    env_spec: str | None = None
    steps: int | None = None
    method: str | None = None

    def records(self) -> list[dict[str, Any]]:
        """One flat row per agent and episode."""
        rows = []
        for index, (agent, episodes) in enumerate(zip(self.agents, self.episodes, strict=True)):
            for episode in episodes:
                own = {
                    ("training_seed" if name == "seed" else name): value
                    for name, value in agent.items()
                }
                rows.append({"agent": index, **own, **episode.record()})
        return rows

    def summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """Mean, spread over seeds and pooled spread by group and measure (sample deviations; NaN for one value)."""
        records = self.records()
        names = [
            name for name, value in self.episodes[0][0].record().items() if isinstance(value, float)
        ]
        out = {}
        for label, members in group_by_settings(self.agents).items():
            tables = {
                name: np.array(
                    [[r[name] for r in records if r["agent"] == member] for member in members]
                )
                for name in ["length", *names]
            }
            out[label] = {name: _spreads(table) for name, table in tables.items()}
        return out

    def constant_agents(self) -> list[int]:
        """Indices of the agents that hold one action throughout each episode: their smoothness means nothing."""
        return [
            index
            for index, episodes in enumerate(self.episodes)
            if is_constant(
                [mean_change(e.raw, e.low, e.high) for e in episodes], [e.length for e in episodes]
            )
        ]

    def save(self, folder: Path | str) -> None:
        """Write ``episodes.json`` with every episode's numbers and ``traces.safetensors`` with its actions."""
        folder = Path(folder)
        facts = {
            "env": self.env,
            "env_spec": self.env_spec,
            "steps": self.steps,
            "versions": self.versions,
        }
        write_json(folder / "episodes.json", {**facts, "episodes": self.records()})
        traces = {
            f"{kind}.{agent:04d}.{episode.seed}": np.ascontiguousarray(getattr(episode, kind))
            for agent, episodes in enumerate(self.episodes)
            for episode in episodes
            for kind in ("raw", "executed")
        }
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
    envs: str | None = None,
) -> Evaluation:
    """Run the deterministic policy of every agent for one episode per seed.

    Args:
        run_or_policy: a ``Run``, a ``Policy``, what ``damper.load`` returns, a Stable-Baselines3
            model, the path of a run's folder, a policy file, an SB3 zip or an exported file, or a
            callable from observations ``[N, d]`` to actions ``[N, A]`` in the environment's units.
            An unfinished run is evaluated at its newest checkpoint.
        env: an id, a Gymnasium spec, or a callable that makes an environment; by default exactly
            the environment that the policy was trained in.
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
        envs: the old name of ``backend``.
    """
    backend = envs or backend
    chosen = filter if filter is None or callable(filter) else parse_filter(filter)
    opened, agents = _open(run_or_policy, env, backend, vecnormalize, trust)
    env = env if env is not None else opened.env
    if env is None:
        what = (
            run_or_policy
            if isinstance(run_or_policy, str | Path)
            else f"a {type(run_or_policy).__name__}"
        )
        raise DamperError(
            f"env must be given, because {what} does not record its environment: give its id or a "
            "function that makes "
            "it (env=, --env)."
        )
    seeds = evaluation_seeds(episodes) if seeds is None else _check_seeds(seeds)
    with torch_threads(1):  # one step's matrix products are too small to share
        every = [seed for _ in agents for seed in seeds]
        recorded, spec = run_episodes(
            opened.act, env, every, backend, env_threads, chosen, opened.sizes
        )
    compare_ranges((opened.low, opened.high), spec)
    table = [recorded[i * len(seeds) : (i + 1) * len(seeds)] for i in range(len(agents))]
    steps, method = opened.facts.get("steps"), opened.facts.get("method")
    evaluation = Evaluation(
        spec.id, agents, table, versions(), to_json(spec.env_spec), steps, method
    )
    for agent in evaluation.constant_agents():
        warn_of_constant_action(agents[agent], method)
    return evaluation


def _check_seeds(seeds: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(seed) for seed in seeds)
    except TypeError as error:
        raise DamperError(
            f"seeds must be the environments' seeds, as in [0, 1], but {seeds!r} was given: use "
            "episodes for a number "
            "of them."
        ) from error


def _open(
    source: Any, env: EnvLike | None, backend: str, vecnormalize: Any, trust: bool
) -> tuple[Source, list[dict[str, Any]]]:
    """The source, which acts on the observations of all agents in one batch, and the agents' rows."""
    if isinstance(source, str | Path):
        source = find_source(source)
    if isinstance(source, Path | Source) or is_model(source):
        opened = open_source(source, 0, env, vecnormalize, trust, backend)
        seed = opened.facts.get("seed")
        return opened, [{"seed": -1 if seed is None else seed}]
    if vecnormalize is not None:
        raise DamperError(
            "vecnormalize must be left out here: only a Stable-Baselines3 model or zip needs it."
        )
    if isinstance(source, Run):
        return _of_policies(source.policies()), source.agents
    if isinstance(source, Policy):
        return _of_policies([source]), [{"seed": source.info.seed}]
    if isinstance(source, torch.nn.Module):
        raise DamperError(
            f"run_or_policy must take and return arrays, but {type(source).__name__} is a module "
            "and takes tensors: "
            "wrap it, as in lambda obs: actor(torch.as_tensor(obs)).detach().numpy(), to return "
            "actions in the "
            "environment's units."
        )
    if callable(source):
        return Source(source, None), [{"seed": 0}]
    raise DamperError(
        "run_or_policy must be a run, a policy, a Stable-Baselines3 model, a path to one or a "
        "callable, not "
        f"{type(source).__name__}."
    )


def _of_policies(policies: list[Policy]) -> Source:
    first = policies[0]
    info = first.info
    facts = {"steps": info.steps, "method": info.method}
    return Source(
        _stacked(policies), first.env_spec, facts, low=info.low, high=info.high, sizes=first.sizes
    )


def _stacked(policies: list[Policy]) -> Act:
    """All policies as one batch: observations ``[P·E, d]`` in, actions out."""
    first, count = policies[0], len(policies)
    if not first.info.squash:  # PPO's, always a single policy: runs hold TD3's and SAC's
        return lambda obs: np.nan_to_num(first(obs))
    flat_params = torch.stack([policy.flat_params for policy in policies])
    low, high = (
        torch.tensor(bound, dtype=flat_params.dtype) for bound in (first.info.low, first.info.high)
    )
    weights = first.layout.unflatten(flat_params)

    @torch.no_grad()
    def act(obs: NDArray[np.float32]) -> NDArray[np.float32]:
        stacked = obs.reshape(count, -1, obs.shape[-1])
        if first.normaliser is not None:
            stacked = np.stack(
                [policy.normalised(own) for policy, own in zip(policies, stacked, strict=True)]
            )
        # A diverged policy is still evaluated: its NaN actions become zero, the middle of the
        # range.
        mu = torch.nan_to_num(
            StackedActor(weights, first.info.activation)(
                torch.from_numpy(stacked).to(flat_params.dtype)
            )
        ).flatten(0, 1)
        actions: torch.Tensor = unscale_action(mu, low, high)
        return actions.numpy()

    return act
