"""Evaluation during training: deterministic episodes, and each agent's best policy so far."""

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
from damper.engine.run.metrics_log import MetricsLog, episode_means
from damper.engine.update.learner import Learner
from damper.metrics import mean_change, smoothness
from damper.policies.episodes import run_episodes, selection_seeds
from damper.policies.policy import Policy, PolicyInfo

LOG = logging.getLogger(__name__)


def evaluate_agents(learner: Learner) -> dict[str, list[float | None]]:
    """Means per agent over one episode per seed, without exploration."""
    settings, spec = learner.settings, learner.spec
    seeds = selection_seeds(settings.eval_episodes)
    episodes, _ = run_episodes(
        partial(_deterministic_actions, learner),
        settings.env,
        seeds * learner.n_agents,
        settings.backend,
        settings.env_threads,
        env_kwargs=settings.env_kwargs,
    )
    stats = []
    for place, episode in enumerate(episodes):
        sm = smoothness(episode.executed)
        change = mean_change(episode.executed, spec.low, spec.high)
        stats.append(EpisodeStats(place // len(seeds), episode.total, episode.length, sm, change))
    return episode_means(stats, learner.n_agents)


@torch.no_grad()
def _deterministic_actions(learner: Learner, obs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Actions ``[P·E, A]`` for observations ``[P·E, d]``, an agent's E episodes side by side."""
    rows = torch.as_tensor(obs, device=learner.device, dtype=learner.dtype)
    inputs = learner.normalise(rows.unflatten(0, (learner.n_agents, -1)))
    actions = torch.nan_to_num(learner.networks.actor()(inputs)).flatten(0, 1)
    on_host = actions.to("cpu", torch.float32).numpy()
    return unscale_action(on_host, learner.spec.low, learner.spec.high)


class BestPolicy(NamedTuple):
    """An agent's best policy so far, and its mean return."""

    policy: Policy
    mean_return: float


class Evaluations:
    """A run's evaluations: ``evaluations.jsonl``, the latest, and each agent's best policy."""

    def __init__(self, path: Path) -> None:
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
        returns, folder = means["return"], self.log.path.parent
        LOG.info("%s: evaluation at step %d, returns %s", folder, step, returns)
        for write in self.writers:
            write(self.latest)
        for agent, (mean_return, policy) in enumerate(zip(returns, policies, strict=True)):
            if mean_return is None:
                continue
            if agent not in self.best or mean_return > self.best[agent].mean_return:
                self.best[agent] = BestPolicy(policy, mean_return)

    def state(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """The state for a checkpoint; the best policies' parameters are added to ``tensors``."""
        best = {}
        for agent, (policy, mean_return) in self.best.items():
            tensors[f"best.{agent}"] = policy.flat_params
            best[agent] = {"info": asdict(policy.info), "return": mean_return}
        return {"offset": self.log.sync(), "latest": self.latest, "best": best}

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint; without one, start with no evaluation."""
        self.log.rewind(facts.get("offset", 0))
        self.latest = facts.get("latest")
        for agent, best in facts.get("best", {}).items():
            policy = Policy(PolicyInfo(**best["info"]), tensors[f"best.{agent}"])
            self.best[int(agent)] = BestPolicy(policy, best["return"])
