"""Evaluation during training: deterministic episodes of every agent, and each agent's best policy so far."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from damper.engine.data.episodes import EpisodeStats
from damper.engine.envs.pool import unscale_action
from damper.engine.envs.run_episodes import run_episodes
from damper.engine.run.metrics_log import MetricsLog, episode_means
from damper.engine.run.policy import Policy, PolicyInfo
from damper.engine.update.learner import Learner
from damper.metrics import mean_change, smoothness

LOG = logging.getLogger(__name__)
FIRST_SELECTION_SEED = 2_000_000


def selection_seeds(episodes: int) -> tuple[int, ...]:
    """Seeds that ``damper.evaluate`` does not use: a policy must not be judged on the episodes it was selected by."""
    return tuple(range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + episodes))


def evaluate_agents(learner: Learner) -> dict[str, list[float | None]]:
    """Means per agent over one episode per seed: return, length, sm and change, without exploration."""
    settings, (low, high) = learner.settings, (learner.spec.low, learner.spec.high)
    seeds = selection_seeds(settings.eval_episodes)
    where = settings.env, seeds * learner.n_agents, settings.backend, settings.env_threads
    episodes, _ = run_episodes(
        partial(_deterministic_actions, learner), *where, env_kwargs=settings.env_kwargs
    )
    stats = [
        EpisodeStats(
            place // len(seeds),
            one.total,
            one.length,
            smoothness(one.executed),
            mean_change(one.executed, low, high),
        )
        for place, one in enumerate(episodes)
    ]
    return episode_means(stats, learner.n_agents)


@torch.no_grad()
def _deterministic_actions(learner: Learner, obs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Actions ``[P·E, A]`` for observations ``[P·E, d]``, with an agent's E episodes next to each other."""
    inputs = torch.as_tensor(obs, device=learner.device, dtype=learner.dtype).unflatten(
        0, (learner.n_agents, -1)
    )
    chosen = torch.nan_to_num(learner.networks.actor()(learner.normalise(inputs))).flatten(0, 1)
    return unscale_action(
        chosen.to("cpu", torch.float32).numpy(), learner.spec.low, learner.spec.high
    )


class BestPolicy(NamedTuple):
    """An agent's best policy so far, and its mean return."""

    policy: Policy
    mean_return: float


class Evaluations:
    """A run's evaluations: the file ``evaluations.jsonl``, the latest one, and each agent's best policy."""

    def __init__(self, path: Path) -> None:
        """Start with no evaluation."""
        self.log = MetricsLog(path)
        self.writers: tuple[Callable[[dict[str, Any]], None], ...] = ()
        self.latest: dict[str, Any] | None = None
        self.best: dict[int, BestPolicy] = {}

    def add(
        self, step: int, means: Mapping[str, list[float | None]], policies: list[Policy]
    ) -> None:
        """Record an evaluation of these policies; keep those that are better than all before."""
        self.latest = {"step": step, **means}
        self.log.write(self.latest)
        LOG.info(
            "%s: evaluation at step %d, returns %s", self.log.path.parent, step, means["return"]
        )
        for write in self.writers:
            write(self.latest)
        for agent, (mean_return, policy) in enumerate(zip(means["return"], policies, strict=True)):
            if mean_return is not None and (
                agent not in self.best or mean_return > self.best[agent].mean_return
            ):
                self.best[agent] = BestPolicy(policy, mean_return)

    def state(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """The state for a checkpoint; the parameters of the best policies are added to ``tensors``."""
        tensors |= {f"best.{agent}": one.policy.flat_params for agent, one in self.best.items()}
        best = {
            agent: {"info": asdict(one.policy.info), "return": one.mean_return}
            for agent, one in self.best.items()
        }
        return {"offset": self.log.sync(), "latest": self.latest, "best": best}

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint; without one, or from an earlier version's, start with no evaluation."""
        self.log.rewind(facts.get("offset", 0))
        self.latest = facts.get("latest")
        for agent, one in facts.get("best", {}).items():
            self.best[int(agent)] = BestPolicy(
                Policy(PolicyInfo(**one["info"]), tensors[f"best.{agent}"]), one["return"]
            )
