"""The training loop: environments step, the population acts and learns, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from damper.engine.checkpoint import CheckpointStore, join_arrays, split_arrays
from damper.engine.envs import make_pool, spec_of
from damper.engine.episodes import Episode, Episodes
from damper.engine.learner import Learner
from damper.engine.metrics_log import MetricsLog, episode_means, take_diagnostics
from damper.engine.policy import Policy, PolicyInfo, describe
from damper.engine.population import layouts
from damper.engine.provenance import memory_available, versions
from damper.engine.replay import Replay
from damper.engine.run import Run, open_run
from damper.engine.settings import Settings
from damper.errors import DamperError
from damper.methods import find_method

Listener = Callable[[dict[str, Any]], None]


class Trainer:
    """One population on its way to its budget; a killed one goes on from its last checkpoint."""

    def __init__(self, settings: Settings, out: Path, listeners: tuple[Listener, ...] = ()) -> None:
        """Open the run's folder and build everything, from its checkpoint if it has one."""
        self.settings, self.listeners = settings, listeners
        self.spec = spec_of(settings.env, settings.envs)
        check_memory(settings, self.spec.obs_dim, self.spec.act_dim)
        self.run = open_run(out, settings)
        self.store, self.log = CheckpointStore(out / "checkpoints"), MetricsLog(out / "metrics.jsonl")
        torch.backends.cuda.matmul.allow_tf32 = settings.tf32
        seeds = [agent["seed"] for agent in settings.agents()]
        self.pool = make_pool(settings.env, seeds, settings.envs, settings.env_threads)
        self.learner = Learner(settings, self.spec)
        self.episodes = Episodes(len(seeds), self.spec.low, self.spec.high)
        self.recent: list[Episode] = []
        self.step, self.started_at = 0, 0
        self.obs = self._resume() if not self.run.finished else np.zeros(0, np.float32)

    # --- the loop -----------------------------------------------------------------------------------------------

    def train(self) -> Run:
        """Step and learn until the budget is spent, then write the policies."""
        if self.run.finished:
            return self.run
        settings, self.clock, self.started_at = self.settings, time.perf_counter(), self.step
        due = 0
        try:
            while self.step < settings.steps:
                due = self._advance(due)
                if self.step % settings.log_every == 0 or self.step == settings.steps:
                    self._log()
                if settings.checkpoint_every and self.step % settings.checkpoint_every == 0:
                    due = self._learn(due)
                    self.checkpoint()
            self._learn(due)
            self._finish()
        finally:
            self.pool.close()
        return self.run

    def _advance(self, due: int) -> int:
        """One true step of every agent; returns the gradient steps that are due after it."""
        settings = self.settings
        sent, action, mean = self.learner.act(self.obs)
        if settings.overlap:
            due = self._learn(due)
        transition = self.pool.step(sent)
        self._store(action, transition.obs_next, transition.reward, transition.terminated)
        ended = transition.terminated | transition.truncated
        self.recent += self.episodes.step(mean, transition.reward, ended)
        self.obs = transition.obs
        self.step += 1
        if self.step > settings.learning_starts and self.step % settings.train_freq == 0:
            due += settings.gradient_steps
        return due if settings.overlap else self._learn(due)

    def _learn(self, due: int) -> int:
        for _ in range(due):
            self.learner.learn()
        return 0

    def _store(
        self,
        action: NDArray[np.float32],
        obs_next: NDArray[np.float32],
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
    ) -> None:
        parts = (self.obs, action, obs_next, reward, terminated, self.episodes.first)
        self.learner.replay.add(Replay.pack(*(torch.from_numpy(np.asarray(part)) for part in parts)))

    # --- what is kept -------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Everything needed to go on as if nothing had happened."""
        tensors = {f"learner.{name}": tensor for name, tensor in self.learner.state().items()}
        facts = {"step": self.step, "updates": self.learner.updates, "metrics_offset": self.log.offset}
        host = {"pool": self.pool.state(), "episodes": self.episodes.state(), "obs": self.obs}
        facts["host"] = split_arrays(host, "host", tensors)
        facts["recent"] = [list(episode) for episode in self.recent]
        self.store.save(self.step, facts, tensors, self.learner.replay)

    def _resume(self) -> NDArray[np.float32]:
        """Start anew, or put back the newest whole checkpoint."""
        checkpoint = self.store.newest()
        if checkpoint is None:
            self.log.rewind(0)
            return self.pool.reset()
        facts = checkpoint.facts
        self.store.fill(self.learner.replay, checkpoint)
        for name, tensor in self.learner.state().items():
            tensor.copy_(checkpoint.tensors[f"learner.{name}"])
        self.step, self.learner.updates = facts["step"], facts["updates"]
        self.log.rewind(facts["metrics_offset"])
        host = join_arrays(facts["host"], checkpoint.tensors)
        self.episodes.restore(host["episodes"])
        self.recent = [Episode(*values) for values in facts["recent"]]
        obs = self.pool.restore(host["pool"])
        exact = self.pool.exact_resume
        if not exact:
            self.episodes = Episodes(self.learner.agents, self.spec.low, self.spec.high)
        event = {"step": self.step, "environments": "exact" if exact else "fresh episodes"}
        self.run.update_manifest(resumed=[*self.run.manifest["resumed"], event])
        return obs

    def _log(self) -> None:
        seconds = time.perf_counter() - self.clock
        line: dict[str, Any] = {"step": self.step, "updates": self.learner.updates}
        line |= {"seconds": round(seconds, 3), "steps_per_second": round((self.step - self.started_at) / seconds, 1)}
        line |= episode_means(self.recent, self.learner.agents) | take_diagnostics(self.learner.population)
        line["frozen"] = [int(at) for at in self.learner.state()["died_at"].tolist()]
        self.recent = []
        self.log.write(line)
        for listener in self.listeners:
            listener(line)

    def _finish(self) -> None:
        """One policy file per agent; then the checkpoints are no longer needed."""
        settings, layout = self.settings, self.learner.population.actor_layout
        plain = layouts(settings.backbone, find_method("plain"), self.learner.population.shape)[0]
        rows = self.learner.state()["actor"].to("cpu", torch.float32)
        for index, agent in enumerate(settings.agents()):
            own = {name: value for name, value in agent.items() if name != "seed"}
            info = PolicyInfo(
                backbone=settings.backbone,
                method=settings.method,
                seed=agent["seed"],
                steps=settings.steps,
                activation=settings.activation,
                settings={**settings.method_settings, **own},
                versions=versions(),
                **describe(self.spec, plain),
            )
            # A second head serves training only, and lies behind the others in the row.
            Policy(info, rows[index, : plain.size].clone()).save(self.run.policy_path(index))
        died = {i: int(at) for i, at in enumerate(self.learner.state()["died_at"].tolist()) if at >= 0}
        self.run.update_manifest(finished=True, frozen=died, seconds=round(time.perf_counter() - self.clock, 1))
        for path in self.store.folder.glob("*"):
            path.unlink()


def check_memory(settings: Settings, obs_dim: int, act_dim: int) -> None:
    """Refuse a population whose replay cannot fit, before anything is trained."""
    agents, rows = len(settings.agents()), min(settings.buffer_size, settings.steps)
    itemsize = getattr(torch, settings.dtype).itemsize
    needed = rows * agents * Replay.width(obs_dim, act_dim) * itemsize
    available = memory_available(torch.device(settings.device))
    if available is not None and needed > 0.95 * available:
        raise DamperError(
            f"buffer_size={settings.buffer_size} for {agents} agents needs {needed / 2**30:.1f} GiB of replay on "
            f"{settings.device}, but {available / 2**30:.1f} GiB are free: lower buffer_size, or train fewer agents at once."
        )


