"""Several populations beside each other: methods on one simulator, or one large population in two parts.

Each keeps its own folder, log and checkpoints, and trains what it would train alone: an environment depends on its own
seed only. They step in two groups, each with a pool of environments: while one group's step, the other one acts and
learns, so that neither the processor's threads nor this one wait for each other at every step. On a GPU each population
has a stream of its own.
"""

from __future__ import annotations

import os
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
from damper.engine.envs.envpool_pool import EnvPoolPool
from damper.engine.envs.shared import Share
from damper.engine.loop.trainer import Listener, Trainer, raise_if_stopped
from damper.engine.run.folder import Run, left_to_train
from damper.engine.run.progress import Progress
from damper.engine.run.stop import StopSignals
from damper.engine.settings import Settings
from damper.errors import DamperError

ALIKE = ("env", "backend", "env_threads", "device", "dtype", "tf32")  # what one pool and one device force on all


def train_side_by_side(
    runs: Sequence[tuple[Settings, Path]], progress: bool = True, listeners: tuple[Listener, ...] = ()
) -> list[Run]:
    """Train complete settings into their folders, all with EnvPool's environments of one task.

    Args:
        runs: settings and folders; what was begun is gone on with, what is finished stays as it is.
        progress: say now and then how far each one is.
        listeners: called with every line of every run's log.
    """
    check_alike([settings for settings, _ in runs])
    first = runs[0][0]
    rows = max(len(settings.agents()) * settings.batch_size for settings, _ in runs) if first.device == "cpu" else 0
    with threads(fitting_threads(rows, first.net_arch)), on_device(first.device, first.tf32):
        members: list[Member] = []
        for settings, out in runs:
            if left_to_train(Run(out), settings):
                share = Share(spec_of(settings.env, settings.backend), [agent["seed"] for agent in settings.agents()])
                # Tables that redraw themselves would fight over the terminal.
                own: tuple[Listener, ...] = (Progress(settings, live=False),) if progress else ()
                members.append(Member(Trainer(settings, out, (*own, *listeners), share), share))
        if members:
            _train(members)
    return [Run(out) for _, out in runs]


def check_alike(settings: Sequence[Settings]) -> None:
    """Refuse runs that cannot share one pool of EnvPool's environments on one device."""
    for name in ALIKE:
        values = list(dict.fromkeys(getattr(one, name) for one in settings))
        if len(values) > 1:
            raise DamperError(
                f"{name} must be the same for runs side by side, but {values[0]!r} and {values[1]!r} were given."
            )
    if settings[0].backend != EnvPoolPool.backend:
        raise DamperError(f"backend must be 'envpool' for runs side by side, but {settings[0].backend!r} was given.")


class Member:
    """A trainer among others, on a stream of its own where the device has streams."""

    def __init__(self, trainer: Trainer, share: Share) -> None:
        self.trainer, self.share = trainer, share
        device = torch.device(trainer.settings.device)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))  # on which it was made

    def here(self) -> AbstractContextManager[Any]:
        """What is launched in here goes to its stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


class Group:
    """Members in lockstep on one pool of environments."""

    def __init__(self, members: Sequence[Member], threads: int | None) -> None:
        """Make the pool, with so many threads."""
        settings, seeds = members[0].trainer.settings, [seed for member in members for seed in member.share.starts]
        ends = accumulate((member.share.size for member in members), initial=0)
        self.places = list(zip(members, (slice(*pair) for pair in pairwise(ends)), strict=True))
        self.pool = make_pool(settings.env, seeds, settings.backend, threads)
        self.actions = np.zeros((len(seeds), self.pool.spec.act_dim), np.float32)

    def begin(self) -> None:
        """Start episodes and clocks, and send the first step; a run that was killed after its last is only finished."""
        obs = self.pool.reset()
        for member, place in self.places:
            member.trainer.obs = obs[place]
            member.trainer.start()
            if member.trainer.done:
                with member.here():
                    member.trainer.finish()
        if self.moving:
            self.send()

    @property
    def moving(self) -> list[tuple[Member, slice]]:
        """Who is not done; the others' environments go on with their last actions, and nobody looks."""
        return [(member, place) for member, place in self.places if not member.trainer.done]

    def send(self) -> None:
        """Act, begin to learn, and let the environments step."""
        moving = self.moving
        for member, _ in moving:
            with member.here():
                member.trainer.begin()
        for member, place in moving:
            self.actions[place] = member.trainer.send()
        self.pool.send(self.actions)
        for member, _ in moving:
            with member.here():
                member.trainer.while_environments_step()

    def receive(self) -> None:
        """Take in what the environments did."""
        moving = self.moving
        transition = self.pool.receive()
        for member, place in moving:
            with member.here():
                member.trainer.receive(_part(transition, place))
                if member.trainer.done:
                    member.trainer.finish()


def _train(members: Sequence[Member]) -> None:
    """Step everyone until the last is done, the two groups in turn."""
    groups: list[Group] = []
    settings = members[0].trainer.settings
    threads = split_threads(settings.env_threads) if len(members) > 1 else (settings.env_threads,)
    try:
        with StopSignals() as stop:
            for member in members:
                member.trainer.stop = stop
            for some, own in zip((members[::2], members[1::2]), threads, strict=False):
                groups.append(Group(some, own))
            for group in groups:
                group.begin()
            while moving := [group for group in groups if group.moving]:
                for group in moving:
                    group.receive()
                    if group.moving:
                        group.send()
    finally:
        for group in groups:
            group.pool.close()
    raise_if_stopped([member.trainer for member in members])


def split_threads(env_threads: int | None) -> tuple[int, int]:
    """EnvPool's threads for two pools that step at the same time, at least one each.

    ``None`` shares out one for each core that this process may use.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = cores if env_threads is None else env_threads
    return (threads + 1) // 2, max(1, threads // 2)


def _part(transition: Transition, place: slice) -> Transition:
    obs_next, reward, terminated, truncated, obs = transition
    return Transition(obs_next[place], reward[place], terminated[place], truncated[place], obs[place])
