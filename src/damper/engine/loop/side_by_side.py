"""Several populations beside each other: methods on one simulator, or one large population in two parts.

Each keeps its own folder, log and checkpoints, and trains what it would train alone: an environment depends on its own
seed only. They step in two groups, each with a pool of environments: while one group's step, the other one acts and
learns, so that neither the processor's threads nor this one wait for each other at every step. On a GPU each population
has a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from damper.engine.device.precision import on_device
from damper.engine.device.threads import fitting_threads, threads
from damper.engine.envs import Transition, make_pool, spec_of
from damper.engine.envs.envpool_pool import EnvPoolPool, usable_cores
from damper.engine.envs.pool_slice import PoolSlice
from damper.engine.loop.trainer import Listener, Trainer, raise_if_stopped
from damper.engine.run.folder import Run, left_to_train
from damper.engine.run.progress import Progress
from damper.engine.run.stop import StopSignals
from damper.engine.settings import Settings
from damper.errors import DamperError

# What trainers on one pool and one device must share.
MUST_MATCH = ("env", "backend", "env_threads", "device", "dtype", "tf32")


def train_side_by_side(
    runs: Sequence[tuple[Settings, Path]], progress: bool = True, listeners: tuple[Listener, ...] = ()
) -> list[Run]:
    """Train complete settings into their folders, all with EnvPool's environments of one task.

    Args:
        runs: settings and folders; what was begun is gone on with, what is finished stays as it is.
        progress: say now and then how far each one is.
        listeners: called with every line of every run's log.
    """
    check_compatible([settings for settings, _ in runs])
    first = runs[0][0]
    rows = max(len(settings.agents()) * settings.batch_size for settings, _ in runs) if first.device == "cpu" else 0
    with threads(fitting_threads(rows, first.net_arch)), on_device(first.device, first.tf32):
        trainers: list[StreamedTrainer] = []
        for settings, out in runs:
            if left_to_train(Run(out), settings):
                seeds = [agent["seed"] for agent in settings.agents()]
                pool_slice = PoolSlice(spec_of(settings.env, settings.backend), seeds)
                # Tables that redraw themselves would fight over the terminal.
                table: tuple[Listener, ...] = (Progress(settings, live=False),) if progress else ()
                trainer = Trainer(settings, out, (*table, *listeners), pool_slice)
                trainers.append(StreamedTrainer(trainer, pool_slice))
        if trainers:
            _train(trainers)
    return [Run(out) for _, out in runs]


def check_compatible(settings: Sequence[Settings]) -> None:
    """Refuse runs that cannot share one pool of EnvPool's environments on one device."""
    for name in MUST_MATCH:
        values = list(dict.fromkeys(getattr(one, name) for one in settings))
        if len(values) > 1:
            raise DamperError(
                f"{name} must be the same for runs side by side, but {values[0]!r} and {values[1]!r} were given."
            )
    if settings[0].backend != EnvPoolPool.backend:
        raise DamperError(f"backend must be 'envpool' for runs side by side, but {settings[0].backend!r} was given.")


class StreamedTrainer:
    """A trainer with its slice of a pool, on a CUDA stream of its own where the device has streams."""

    def __init__(self, trainer: Trainer, pool_slice: PoolSlice) -> None:
        self.trainer, self.pool_slice = trainer, pool_slice
        device = torch.device(trainer.settings.device)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))  # on which it was made

    def on_stream(self) -> AbstractContextManager[Any]:
        """What is launched in this context goes to its stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


class LockstepGroup:
    """Trainers in lockstep on one pool of environments."""

    def __init__(self, trainers: Sequence[StreamedTrainer], threads: int | None) -> None:
        """Make the pool, with so many threads."""
        settings = trainers[0].trainer.settings
        seeds = [seed for one in trainers for seed in one.pool_slice.start_seeds]
        ends = accumulate((one.pool_slice.size for one in trainers), initial=0)
        self.slices = list(zip(trainers, (slice(*pair) for pair in pairwise(ends)), strict=True))
        self.pool = make_pool(settings.env, seeds, settings.backend, threads)
        self.actions = np.zeros((len(seeds), self.pool.spec.act_dim), np.float32)

    def begin(self) -> None:
        """Start episodes and clocks, and send the first step; a run that was killed after its last is only finished."""
        obs = self.pool.reset()
        for one, rows in self.slices:
            one.trainer.obs = obs[rows]
            one.trainer.start()
            if one.trainer.done:
                with one.on_stream():
                    one.trainer.finish()
        if self.unfinished:
            self.send()

    @property
    def unfinished(self) -> list[tuple[StreamedTrainer, slice]]:
        """Trainers with steps left; the others' environments repeat their last actions, and nobody looks."""
        return [(one, rows) for one, rows in self.slices if not one.trainer.done]

    def send(self) -> None:
        """Act, begin to learn, and let the environments step."""
        unfinished = self.unfinished
        for one, _ in unfinished:
            with one.on_stream():
                one.trainer.begin()
        for one, rows in unfinished:
            self.actions[rows] = one.trainer.send()
        self.pool.send(self.actions)
        for one, _ in unfinished:
            with one.on_stream():
                one.trainer.while_environments_step()

    def receive(self) -> None:
        """Take in what the environments did."""
        unfinished = self.unfinished
        transition = self.pool.receive()
        for one, rows in unfinished:
            with one.on_stream():
                one.trainer.receive(_rows_of(transition, rows))
                if one.trainer.done:
                    one.trainer.finish()


def _train(trainers: Sequence[StreamedTrainer]) -> None:
    """Step everyone until the last is done, the two groups in turn."""
    groups: list[LockstepGroup] = []
    settings = trainers[0].trainer.settings
    threads = split_threads(settings.env_threads) if len(trainers) > 1 else (settings.env_threads,)
    try:
        with StopSignals() as stop:
            for one in trainers:
                one.trainer.stop = stop
            for part, count in zip((trainers[::2], trainers[1::2]), threads, strict=False):
                groups.append(LockstepGroup(part, count))
            for group in groups:
                group.begin()
            while unfinished := [group for group in groups if group.unfinished]:
                for group in unfinished:
                    group.receive()
                    if group.unfinished:
                        group.send()
    finally:
        for group in groups:
            group.pool.close()
    raise_if_stopped([one.trainer for one in trainers])


def split_threads(env_threads: int | None) -> tuple[int, int]:
    """EnvPool's threads for two pools that step at the same time, at least one each.

    ``None`` shares out one for each core that this process may use.
    """
    threads = usable_cores() if env_threads is None else env_threads
    return (threads + 1) // 2, max(1, threads // 2)


def _rows_of(transition: Transition, rows: slice) -> Transition:
    obs_next, reward, terminated, truncated, obs = transition
    return Transition(obs_next[rows], reward[rows], terminated[rows], truncated[rows], obs[rows])
