"""``damper.evaluate``: per-episode records of a run or a policy, with tables over seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from damper.engine.envs import EnvLike
from damper.engine.files import write_bytes, write_json
from damper.engine.groups import groups
from damper.engine.nets import StackedActor
from damper.engine.policy import Policy
from damper.engine.provenance import versions
from damper.engine.run import Run
from damper.engine.threads import threads
from damper.errors import DamperError
from damper.evaluation.filters import Filter
from damper.evaluation.rollout import Act, Episode, rollout
from damper.protocols import EVALUATION_SEEDS


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Episodes of one or more agents on the same seeds.

    Attributes:
        env: the environment's id.
        agents: one row per agent, as in the run's manifest.
        episodes: for each agent, its episodes in the order of the seeds.
        versions: of libraries and physics engines that made the episodes.
    """

    env: str
    agents: list[dict[str, Any]]
    episodes: list[list[Episode]] = field(repr=False)
    versions: dict[str, str]

    def records(self) -> list[dict[str, Any]]:
        """One flat row per agent and episode."""
        rows = []
        for index, (agent, episodes) in enumerate(zip(self.agents, self.episodes, strict=True)):
            for episode in episodes:
                own = {("training_seed" if name == "seed" else name): value for name, value in agent.items()}
                rows.append({"agent": index, **own, **episode.record()})
        return rows

    def summary(self) -> dict[str, dict[str, dict[str, float]]]:
        """For each group and measure: mean, spread over seeds, pooled spread (both sample deviations)."""
        records = self.records()
        names = [name for name, value in records[0].items() if isinstance(value, float) and name != "training_seed"]
        out = {}
        for label, members in groups(self.agents).items():
            tables = {
                name: np.array([[r[name] for r in records if r["agent"] == member] for member in members])
                for name in ["length", *names]
            }
            out[label] = {name: _spreads(table) for name, table in tables.items()}
        return out

    def save(self, folder: Path) -> None:
        """``episodes.json`` with every episode's numbers, ``traces.safetensors`` with its actions."""
        write_json(folder / "episodes.json", {"env": self.env, "versions": self.versions, "episodes": self.records()})
        traces = {
            f"{kind}.{agent:04d}.{episode.seed}": np.ascontiguousarray(getattr(episode, kind))
            for agent, episodes in enumerate(self.episodes)
            for episode in episodes
            for kind in ("raw", "executed")
        }
        write_bytes(folder / "traces.safetensors", save(traces))


def _spreads(table: NDArray[np.float64]) -> dict[str, float]:
    """Rows are seeds, columns episodes."""
    over_seeds = float(table.mean(1).std(ddof=1)) if len(table) > 1 else 0.0
    pooled = float(table.std(ddof=1)) if table.size > 1 else 0.0
    return {"mean": float(table.mean()), "over_seeds": over_seeds, "pooled": pooled}


def evaluation_seeds(episodes: int) -> tuple[int, ...]:
    """The protocol's ten fixed seeds, then 1,000,000, 1,000,001, ... for more episodes."""
    if episodes < 1:
        raise DamperError(f"episodes must be at least 1, but {episodes} was given.")
    extra = range(1_000_000, 1_000_000 + max(0, episodes - len(EVALUATION_SEEDS)))
    return (*EVALUATION_SEEDS[:episodes], *extra)


def evaluate(
    run_or_policy: Run | Policy | Callable[..., Any] | str | Path,
    env: EnvLike | None = None,
    episodes: int = 10,
    seeds: Sequence[int] | None = None,
    filter: Filter | None = None,
    envs: str = "gymnasium",
    env_threads: int | None = None,
) -> Evaluation:
    """Run the deterministic policy of every agent for one episode per seed.

    Args:
        run_or_policy: a finished run (or its folder), a policy (or its file), or a callable from observations
            ``[N, d]`` to actions ``[N, A]`` in the environment's units.
        env: an id, a ``gymnasium`` spec, or a callable that makes one; by default exactly the environment that the
            policy was trained in.
        episodes: how many, on the protocol's fixed seeds; ``seeds`` names them instead.
        seeds: the environments' seeds, the same for all agents.
        filter: a filter on the executed action; records then hold raw and executed smoothness.
        envs: "gymnasium" or "envpool".
        env_threads: EnvPool's threads.
    """
    act, agents, known, sizes = _actor(run_or_policy)
    env = env if env is not None else known
    if env is None:
        raise DamperError("env must be given, because a callable names none: evaluate(policy, env='Pendulum-v1').")
    seeds = tuple(seeds) if seeds is not None else evaluation_seeds(episodes)
    with threads(1):  # a product per step is too small to share
        found, spec = rollout(act, env, [seed for _ in agents for seed in seeds], envs, env_threads, filter, sizes)
    table = [found[i * len(seeds) : (i + 1) * len(seeds)] for i in range(len(agents))]
    return Evaluation(spec.id, agents, table, versions())


def _actor(
    source: Run | Policy | Callable[..., Any] | str | Path,
) -> tuple[Act, list[dict[str, Any]], EnvSpec | None, tuple[int, int] | None]:
    """What to call with all agents' observations in a row; the agents; environment and sizes where they are known."""
    if isinstance(source, str | Path):
        path = Path(source)
        source = Run(path) if path.is_dir() else Policy.load(path)
    if isinstance(source, Run):
        policies, agents = [source.policy(index) for index in range(len(source.agents))], source.agents
        return _stacked(policies), agents, policies[0].env_spec, policies[0].sizes
    if isinstance(source, Policy):
        return _stacked([source]), [{"seed": source.info.seed}], source.env_spec, source.sizes
    if callable(source):
        return source, [{"seed": 0}], None, None
    raise DamperError(f"run_or_policy must be a run, a policy, a path or a callable, not {type(source).__name__}.")


def _stacked(policies: list[Policy]) -> Act:
    """All policies as one batch: observations ``[P·E, d]`` in, actions out."""
    first, count = policies[0], len(policies)
    rows = torch.stack([policy.row for policy in policies])
    low, high = (torch.tensor(bound, dtype=rows.dtype) for bound in (first.info.low, first.info.high))
    weights = first.layout.split(rows)

    @torch.no_grad()
    def act(obs: NDArray[np.float32]) -> NDArray[np.float32]:
        stacked = torch.from_numpy(obs).to(rows.dtype).unflatten(0, (count, -1))
        # A diverged policy still has an episode: its actions count as zero, in the middle of the range.
        mu = torch.nan_to_num(StackedActor(weights, first.info.activation)(stacked)).flatten(0, 1)
        return (low + (mu + 1.0) * 0.5 * (high - low)).numpy()

    return act


def load_records(folder: Path) -> tuple[list[dict[str, Any]], dict[str, NDArray[np.float32]]]:
    """What ``Evaluation.save`` wrote: the episodes' numbers and the traces."""
    return json.loads((folder / "episodes.json").read_text())["episodes"], load_file(folder / "traces.safetensors")
