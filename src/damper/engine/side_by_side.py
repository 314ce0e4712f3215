"""Several populations in lockstep on one pool of environments: methods side by side, one step of the simulator for all.

Each keeps its own folder, log and checkpoints, and trains what it would train alone: an environment depends on its own
seed only. What they share is the simulator's threads, and the device, which has work while one of them is on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.engine.envs import Transition, make_pool, spec_of
from damper.engine.envs.envpool_pool import EnvPoolPool, seed_again
from damper.engine.envs.spec import Spec, check_state
from damper.engine.progress import Progress
from damper.engine.run import Run
from damper.engine.settings import Settings
from damper.engine.threads import fitting_threads, threads
from damper.engine.trainer import Trainer
from damper.errors import DamperError

ALIKE = ("env", "envs", "env_threads", "device", "dtype", "tf32")  # what one pool and one device force on all


class Share:
    """One trainer's environments among those of a common pool, which is made when all have said how they start."""

    backend, exact_resume = EnvPoolPool.backend, EnvPoolPool.exact_resume

    def __init__(self, spec: Spec, seeds: Sequence[int]) -> None:
        """Fresh episodes from the seeds, unless ``restore`` is called."""
        self.spec, self.seeds, self.size = spec, list(seeds), len(seeds)
        self.starts, self.restores, self.resumed_fresh = list(seeds), 0, False

    def reset(self) -> NDArray[np.float32]:
        """Zeros: the common pool will give the first observations."""
        return np.zeros((self.size, self.spec.obs_dim), np.float32)

    def restore(self, state: Mapping[str, Any]) -> NDArray[np.float32]:
        """Start fresh episodes, as EnvPool's pool alone would."""
        check_state(state, self.backend, self.spec.id, self.seeds)
        self.restores, self.resumed_fresh = int(state["restores"]) + 1, True
        self.starts = [seed_again(seed, self.restores) for seed in self.seeds]
        return self.reset()

    def state(self) -> dict[str, Any]:
        """As EnvPool's."""
        return {"backend": self.backend, "env": self.spec.id, "seeds": self.seeds, "restores": self.restores}

    def step(self, actions: NDArray[Any]) -> Transition:
        """Not alone."""
        raise DamperError("environments that are shared are stepped for everyone at once.")

    def send(self, actions: NDArray[Any]) -> None:
        """Not alone."""
        self.step(actions)

    def receive(self) -> Transition:
        """Not alone."""
        return self.step(np.empty(0))

    def close(self) -> None:
        """The common pool is closed by whoever made it."""


def train_side_by_side(runs: Sequence[tuple[Settings, Path]], progress: bool = True) -> list[Run]:
    """Train complete settings into their folders, all with EnvPool's environments of one task.

    Args:
        runs: settings and folders; what was begun is gone on with, what is finished stays as it is.
        progress: say now and then how far each one is.
    """
    check_alike([settings for settings, _ in runs])
    first = runs[0][0]
    rows = max(len(settings.agents()) * settings.batch_size for settings, _ in runs) if first.device == "cpu" else 0
    with threads(fitting_threads(rows, first.net_arch)):
        active: list[tuple[Trainer, Share]] = []
        for settings, out in runs:
            if not Run(out).finished:
                share = Share(spec_of(settings.env, settings.envs), [agent["seed"] for agent in settings.agents()])
                # Tables that redraw themselves would fight over the terminal.
                listeners = (Progress(settings, live=False),) if progress else ()
                active.append((Trainer(settings, out, listeners, share), share))
        if active:
            _train(active)
    return [Run(out) for _, out in runs]


def check_alike(settings: Sequence[Settings]) -> None:
    """Refuse runs that cannot share one pool of EnvPool's environments on one device."""
    for name in ALIKE:
        values = list(dict.fromkeys(getattr(one, name) for one in settings))
        if len(values) > 1:
            raise DamperError(
                f"{name} must be the same for runs side by side, but {values[0]!r} and {values[1]!r} were given."
            )
    if settings[0].envs != EnvPoolPool.backend:
        raise DamperError(f"envs must be 'envpool' for runs side by side, but {settings[0].envs!r} was given.")


def _train(members: Sequence[tuple[Trainer, Share]]) -> None:
    """Step everyone until the last is done; who is done before stands still."""
    settings, seeds = members[0][0].settings, [seed for _, share in members for seed in share.starts]
    places = [slice(*pair) for pair in pairwise(accumulate((share.size for _, share in members), initial=0))]
    trainers = [(trainer, place) for (trainer, _), place in zip(members, places, strict=True)]
    pool = make_pool(settings.env, seeds, settings.envs, settings.env_threads)
    try:
        obs, actions = pool.reset(), np.zeros((len(seeds), pool.spec.act_dim), np.float32)
        for trainer, place in trainers:
            trainer.obs = obs[place]
            trainer.start()
        while moving := [(trainer, place) for trainer, place in trainers if not trainer.done]:
            for trainer, _ in moving:
                trainer.begin()
            for trainer, place in moving:
                actions[place] = trainer.send()
            pool.send(actions)
            for trainer, _ in moving:
                trainer.note()
            transition = pool.receive()
            for trainer, place in moving:
                trainer.receive(_part(transition, place))
                if trainer.done:
                    trainer.finish()
    finally:
        pool.close()


def _part(transition: Transition, place: slice) -> Transition:
    obs_next, reward, terminated, truncated, obs = transition
    return Transition(obs_next[place], reward[place], terminated[place], truncated[place], obs[place])
