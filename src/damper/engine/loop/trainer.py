"""The training loop: act, step the environments, store, update, log, checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from damper.engine.data.episodes import EpisodeStats, EpisodeTracker
from damper.engine.data.replay import Replay
from damper.engine.envs import Transition, make_pool
from damper.engine.envs.env_spec_json import to_json
from damper.engine.envs.pool import InexactReplayError
from damper.engine.loop.acting import Acting, Actions
from damper.engine.loop.callbacks import Callback, Callbacks, Training
from damper.engine.loop.evaluating import Evaluations, evaluate_agents
from damper.engine.loop.memory import check_memory
from damper.engine.loop.policies import current_policies, policy_params
from damper.engine.run.checkpoint import CheckpointStore, join_arrays, split_arrays
from damper.engine.run.folder import Run, left_to_train, open_run, record_env
from damper.engine.run.metrics_log import MetricsLog, episode_means, finite
from damper.engine.run.stop import Stopped, StopSignals
from damper.engine.settings import Settings
from damper.engine.update.learner import Learner
from damper.errors import DamperError
from damper.policies.episodes import TIME_LIMIT_FIX, WARN_AFTER_STEPS
from damper.policies.policy import Policy
from damper.provenance import hardware, source_digest, versions
from damper.seed_groups import group_mean

LOG = logging.getLogger(__name__)
# Called with each metrics line (a dict); users' callbacks get a `Training` instead.
MetricsWriter = Callable[[dict[str, Any]], None]


class Trainer:
    """Trains one population to its budget of steps, from its newest checkpoint if it has one."""

    def __init__(
        self,
        settings: Settings,
        out: Path,
        metrics_writers: tuple[MetricsWriter, ...] = (),
        callbacks: tuple[Callback, ...] = (),
    ) -> None:
        assert left_to_train(Run(out), settings), "a finished run is opened, not trained"
        self.settings, self.metrics_writers = settings, metrics_writers
        self.callbacks = Callbacks(callbacks)
        # Called after each step with the numbers of steps and updates.
        self.after_step: Callable[[int, int], None] | None = None
        self.checkpoints = CheckpointStore(out / "checkpoints")
        self.log = MetricsLog(out / "metrics.jsonl")
        self.evaluations = Evaluations(out / "evaluations.jsonl")
        seeds = [agent["seed"] for agent in settings.agents()]
        kwargs = settings.env_kwargs or {}
        self.pool = make_pool(settings.env, seeds, settings.backend, settings.env_threads, **kwargs)
        self.spec = self.pool.spec
        with ExitStack() as failing:
            failing.callback(self.pool.close)
            check_memory(settings, self.spec.obs_dim, self.spec.act_dim)
            self._begin_or_resume(out)
            failing.pop_all()

    def _begin_or_resume(self, out: Path) -> None:
        settings = self.settings
        self.learner = Learner(settings, self.spec)
        self.acting = Acting(self.learner)
        self.episodes = EpisodeTracker(self.learner.n_agents, self.spec.low, self.spec.high)
        self.recent: list[EpisodeStats] = []
        # The last step, until it is stored in the replay and added to the episode statistics.
        self._pending_transition: tuple[NDArray[Any], ...] | None = None
        self._pending_stats: tuple[Any, ...] | None = None
        self.step, self._seconds_before = 0, 0.0
        # When this process began to train, and from which step.
        self._clock, self._first_step = time.perf_counter(), 0
        self._last_checkpoint_step: int | None = None
        # Gradient steps already done for the step in progress; whether those of the next step must
        # wait for its end.
        self._updates_ahead, self._next_updates_wait = 0, True
        # On a GPU, updates are queued right after acting, before the host has the actions, so that
        # the GPU never idles.
        self._queues_updates = self.learner.device.type == "cuda"
        self.stop, self.stop_step = StopSignals(), settings.steps
        # Open the folder last, so that settings that cannot be trained leave no run behind.
        self.run = open_run(out, settings)
        record_env(self.run, to_json(self.spec.env_spec))
        self.obs = self._resume()
        self.run.extend(settings.steps)
        n_agents = self.learner.n_agents
        LOG.info("%s: %d agents train from step %d to %d", out, n_agents, self.step, settings.steps)
        self._logged_frozen: set[int] = set()
        self._warned_of_no_end = False

    # --- the loop -----------------------------------------------------------------------------

    def train(self) -> Run:
        """Step and update until the budget is spent, then write the policies."""
        self._clock, self._first_step = time.perf_counter(), self.step
        try:
            with StopSignals() as self.stop:
                while not self.done:
                    self.begin_step()
                    actions = self.acting.actions()
                    self.pool.send(actions.env)
                    self.while_environments_step()
                    self.finish_step(actions, self.pool.receive())
                    if self.after_step is not None:
                        self.after_step(self.step, self.learner.updates)
                self.finish()
        finally:
            self.pool.close()
        if self.callbacks.error is not None:
            raise self.callbacks.error
        # A callback's end is an ordinary return.
        if self.stopped and self.stop.received is not None:
            place = f"{self.run.path} at step {self.step:,} of {self.settings.steps:,}"
            raise Stopped(f"stopped {place}; the same command resumes it.", self.stop.received)
        return self.run

    @property
    def done(self) -> bool:
        """Whether the last step was taken: the budget is spent, or something asked to stop."""
        return self.step >= self.stop_step

    @property
    def stopped(self) -> bool:
        """Whether the run ended before its budget was spent."""
        return self.done and self.step < self.settings.steps

    def begin_step(self) -> None:
        """Launch acting, and store the previous step; after a request to stop, this is the last."""
        self.acting.start(self.obs)
        if self.stop.received is not None or self.callbacks.stop:
            self.stop_step = min(self.stop_step, self.step + 1)
        self._store_transition()
        if self._queues_updates:
            self.update_ahead()

    def finish_step(self, actions: Actions, transition: Transition) -> None:
        """Process actions and transition; update, evaluate, log and checkpoint where due."""
        settings, t = self.settings, transition
        stored = (self.obs, actions.buffer, t.next_obs, t.reward, t.terminated)
        self._pending_transition = (*stored, self.episodes.first)
        self._pending_stats = (actions.deterministic, t.reward, t.terminated | t.truncated)
        self.obs = transition.obs
        self.step += 1
        updates, self._updates_ahead = self._updates_after(self.step) - self._updates_ahead, 0
        if updates:
            self._store_transition()
        for _ in range(updates):
            self.learner.update()
        if settings.eval_every and self._ends_interval(settings.eval_every):
            self.evaluations.add(self.step, evaluate_agents(self.learner), self._current_policies())
        if self._ends_interval(settings.log_every):
            self._log()
        if settings.checkpoint_every and self.step % settings.checkpoint_every == 0:
            self.checkpoint()

    def _ends_interval(self, length: int) -> bool:
        return self.step % length == 0 or self.step >= self.settings.steps

    def while_environments_step(self) -> None:
        """The host's work while environments step: gradient steps and statistics."""
        if not self._queues_updates:
            self.update_ahead()
        # With train_freq > 1 this would be as exact, but a block of updates would overlap with only
        # one simulator step, and the host would have to draw the indices of all its batches first.
        self._next_updates_wait = self.settings.train_freq > 1 or self._next_updates_need_step()
        self.update_stats()

    def _next_updates_need_step(self) -> bool:
        """Whether any batch of the next step's updates will contain that step itself."""
        step = self.step + 1
        first = self.learner.updates + self._updates_after(step) - self._updates_ahead
        updates = range(first, first + self._updates_after(step + 1))
        return any(self.learner.newest_sampled(step + 1, update) for update in updates)

    def update_ahead(self) -> None:
        """Do the gradient steps of the step in progress, unless one of their batches contains it.

        The sampled indices are a function of seed and counter, and a batch of 256 from a million
        steps seldom contains the newest; so the updates are bit for bit those that would follow the
        step.
        """
        if self._next_updates_wait:
            return
        self._updates_ahead = self._updates_after(self.step + 1)
        for _ in range(self._updates_ahead):
            self.learner.update_ahead()

    def _updates_after(self, step: int) -> int:
        """Number of gradient steps after this step, by ``train_freq`` and ``learning_starts``."""
        follows = step > self.settings.learning_starts and step % self.settings.train_freq == 0
        return self.settings.gradient_steps if follows else 0

    def finish(self) -> None:
        """Write the policies of a finished run, or a checkpoint of one that may go on."""
        to_be_continued = self.stopped or self.settings.keep_checkpoint
        if to_be_continued and self._last_checkpoint_step != self.step:
            self.checkpoint()
        if self.stopped:
            LOG.info("%s: stopped at step %d of %d", self.run.path, self.step, self.settings.steps)
            return
        self._store_transition()
        self._write_policies()

    def update_stats(self) -> None:
        """Add the last step to the episode statistics, if that has not been done."""
        if self._pending_stats is None:
            return
        self.recent += self.episodes.step(*self._pending_stats)
        self._pending_stats = None
        if self.episodes.steps_since_an_end == WARN_AFTER_STEPS and not self._warned_of_no_end:
            self._warned_of_no_end = True
            if self.spec.max_episode_steps is None:
                facts = (self.run.path, self.spec.id, f"{WARN_AFTER_STEPS:,}", TIME_LIMIT_FIX)
                end = "no episode of %s ended within %s steps: if it needs a time limit, %s."
                LOG.warning(f"%s: {end}", *facts)

    def _seconds(self) -> float:
        """Seconds spent on this run, including before it was resumed."""
        return self._seconds_before + time.perf_counter() - self._clock

    def _store_transition(self) -> None:
        """Store the last step in the replay, if that has not been done."""
        if self._pending_transition is not None:
            self.learner.replay.add(Replay.pack(*self._pending_transition))
            self._pending_transition = None

    # --- checkpoints, logs and policies -------------------------------------------------------

    def checkpoint(self) -> None:
        """Save everything that a resumed run needs to continue bit for bit."""
        self._store_transition()
        self.update_stats()
        tensors = {f"learner.{name}": tensor for name, tensor in self.learner.state().items()}
        host = {"pool": self.pool.state(), "episodes": self.episodes.state(), "obs": self.obs}
        facts: dict[str, Any] = {
            "step": self.step,
            "updates": self.learner.updates,
            "seconds": self._seconds(),
            "diagnostics": self.learner.diagnostics.names,
            "metrics_offset": self.log.sync(),
            "host": split_arrays(host, "host", tensors),
            "recent": [list(episode) for episode in self.recent],
            "frozen_by_callback": self.callbacks.frozen,
        }
        infos, tensors["policies"] = policy_params(self.learner, self.step)
        facts["policies"] = [asdict(info) for info in infos]
        facts["evaluations"] = self.evaluations.state(tensors)
        self.checkpoints.save(self.step, facts, tensors, self.learner.replay)
        self._last_checkpoint_step = self.step
        LOG.debug("%s: checkpoint at step %d", self.run.path, self.step)

    def _resume(self) -> NDArray[np.float32]:
        """Start anew or load the newest checkpoint; returns the observations to act on."""
        checkpoint = self.checkpoints.newest()
        if checkpoint is None:
            self.log.rewind(0)
            self.evaluations.restore({}, {})
            return self.pool.reset()
        facts = checkpoint.facts
        self.checkpoints.load_rows(self.learner.replay, checkpoint)
        self._load_learner(checkpoint.tensors, facts["diagnostics"])
        self.step, self.learner.updates = facts["step"], facts["updates"]
        self._seconds_before, self._last_checkpoint_step = facts["seconds"], self.step
        # The values of the last update, for the log.
        if self.learner.scheduled is not None and self.learner.updates:
            last = self.step - self.step % self.settings.train_freq
            self.learner.scheduled.set(1.0 - last / self.settings.steps)
        self.log.rewind(facts["metrics_offset"])
        self.evaluations.restore(facts["evaluations"], checkpoint.tensors)
        host = join_arrays(facts["host"], checkpoint.tensors)
        self.episodes.restore(host["episodes"])
        self.recent = [EpisodeStats(*values) for values in facts["recent"]]
        frozen = facts["frozen_by_callback"].items()
        self.callbacks.frozen = {int(agent): step for agent, step in frozen}
        manifest, exact = self.run.manifest, self.pool.exact_resume
        try:
            obs = self.pool.restore(host["pool"])
        except InexactReplayError as error:  # losing an episode is better than losing the run
            obs, exact = self.pool.start_afresh(len(manifest["resumed"]) + 1), False
            sentence = "%s continues with fresh episodes, not bit for bit: %s"
            LOG.warning(sentence, self.run.path, error)
        if not exact:
            self.episodes = EpisodeTracker(self.learner.n_agents, self.spec.low, self.spec.high)
        environments = "exact" if exact else "fresh episodes"
        event: dict[str, Any] = {"step": self.step, "environments": environments}
        now = {
            "source": source_digest(),
            "versions": versions(),
            "hardware": hardware(self.settings.device),
        }
        event |= {name: fact for name, fact in now.items() if fact != manifest.get(name)}
        self.run.update_manifest(resumed=[*manifest["resumed"], event])
        return obs

    def _load_learner(self, tensors: Mapping[str, Tensor], saved_names: list[str]) -> None:
        """Load the learner's tensors; diagnostics with other names or shapes restart from zero."""
        state, diagnostics = self.learner.state(), self.learner.diagnostics
        sums = diagnostics.state()

        def fits(name: str) -> bool:
            saved = tensors.get(f"learner.{name}")
            return saved is not None and saved.shape == state[name].shape

        same = saved_names == diagnostics.names and all(map(fits, sums))
        for name, tensor in state.items():
            if name in sums and not same:
                continue
            if not fits(name):
                raise DamperError(
                    f"the checkpoint in {self.checkpoints.folder} must be from this version of "
                    f"damper, but its {name} does not fit: finish the run with the version that "
                    "started it, or choose another folder."
                )
            tensor.copy_(tensors[f"learner.{name}"])

    def _log(self) -> None:
        self.update_stats()
        speed = (self.step - self._first_step) / (time.perf_counter() - self._clock)
        line: dict[str, Any] = {"step": self.step, "updates": self.learner.updates}
        line |= {"seconds": round(self._seconds(), 3), "steps_per_second": round(speed, 1)}
        line |= episode_means(self.recent, self.learner.n_agents)
        line |= finite(self.learner.diagnostics.pop_means())
        line |= self.learner.scheduled.values if self.learner.scheduled else {}
        line["frozen"] = self._frozen_at()
        agents = range(self.learner.n_agents)
        if frozen := self.callbacks.frozen:
            line["frozen_by_callback"] = [frozen.get(agent, -1) for agent in agents]
        self.recent = []
        self.log.write(line)
        self._log_to_python(line)
        for write in self.metrics_writers:
            write(line)
        if self.callbacks.functions:
            seen = (line, self.settings.agents(), self.evaluations.latest)
            self.callbacks(
                Training(self.run, self.step, *seen, self._current_policies, self._freeze)
            )

    def _log_to_python(self, line: dict[str, Any]) -> None:
        """Send a metrics line to Python's logging, with a warning for each newly frozen agent."""
        path, mean_return = self.run.path, group_mean(line["return"], range(self.learner.n_agents))
        progress = (path, self.step, self.settings.steps, line["steps_per_second"])
        shown = "none yet" if mean_return is None else f"{mean_return:.1f}"
        LOG.info("%s: step %d of %d, %.0f steps/s, mean return %s", *progress, shown)
        for agent, update in enumerate(line["frozen"]):
            if update >= 0 and agent not in self._logged_frozen:
                self._logged_frozen.add(agent)
                inputs = " and ".join(self.learner.replay.not_finite(agent))
                why = f", and neither were {inputs} from its environment" if inputs else ""
                sentence = "%s: agent %d was frozen at update %d: its gradient was not finite%s"
                LOG.warning(sentence, path, agent, update, why)

    def _frozen_at(self) -> list[int]:
        """The update at which an agent's gradient was not finite; -1 if a callback froze it."""
        updates = enumerate(self.learner.state()["frozen_at"].tolist())
        return [-1 if agent in self.callbacks.frozen else int(at) for agent, at in updates]

    def _current_policies(self) -> list[Policy]:
        return current_policies(self.learner, self.step)

    def _freeze(self, agent: int) -> None:
        active = self.learner.state()["active"]
        if active[agent]:
            active[agent] = False
            self.callbacks.frozen[agent] = self.step

    def _write_policies(self) -> None:
        """Write one policy file per agent, then delete checkpoints that are not to be kept."""
        for index, policy in enumerate(self._current_policies()):
            policy.save(self.run.policy_path(index))
        best = {}
        for index, (policy, mean_return) in sorted(self.evaluations.best.items()):
            policy.save(self.run.policy_path(index, best=True))
            best[index] = {"step": policy.info.steps, "return": mean_return}
        keep = self.settings.keep_checkpoint
        self.run.update_manifest(
            finished=True,
            frozen={agent: at for agent, at in enumerate(self._frozen_at()) if at >= 0},
            frozen_by_callback=self.callbacks.frozen,
            best=best,
            seconds=round(self._seconds(), 1),
            kept_checkpoint=keep,
        )
        if not keep:
            self.checkpoints.clear()
        LOG.info("%s: finished", self.run.path)
