"""Acting of some of a learner's agents, or of all: from the host's observations to the host's actions in one launch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from damper.engine.device.transfers import Download, Upload
from damper.engine.envs.spec import unscale_action
from damper.engine.update.learner import Learner

Actions = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


class Acting:
    """The policies that a learner shows, for all its agents or a slice of them, on its ``act_stream`` if it has one."""

    def __init__(self, learner: Learner, agents: slice | None = None) -> None:
        """Of agents ``agents.start`` to ``agents.stop``."""
        agents = agents or slice(0, learner.agents)
        self.learner, self.agents, self._stream = learner, agents, learner.act_stream
        spec, like = learner.spec, {"device": learner.device, "dtype": learner.dtype}
        count = agents.stop - agents.start
        self._acted = learner.acted[agents]
        self._obs = torch.zeros(count, spec.obs_dim, **like)
        self._low, self._high = (torch.as_tensor(bound, **like) for bound in (spec.low, spec.high))
        self._chosen = Download((3, count, spec.act_dim), **like)
        self._seen = Upload(self._obs.shape, **like, through=self._chosen.through)
        choose = learner.compiled(self._choose)

        def act() -> None:
            self._seen.send(self._obs)
            self._chosen.start(choose())

        self._act = learner.graphed(act, lambda: {"acted": self._acted})
        self._ready = False

    def act(self, obs: NDArray[np.float32]) -> Actions:
        """``start``, then ``actions``."""
        self.start(obs)
        return self.actions()

    def start(self, obs: NDArray[np.float32]) -> None:
        """Begin to act; what the device is asked to do afterwards does not delay ``actions``."""
        if self._stream is not None and not self._ready:
            # On which all this was made, and filled from a checkpoint.
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._ready = True
        self._seen.room()[...] = obs
        with self._here():
            self._act()
            self._chosen.mark()

    def actions(self) -> Actions:
        """Actions for the environments, the same in [-1, 1], and the deterministic ones without exploration."""
        scaled, chosen, mean = self._chosen.wait()
        return scaled, chosen, mean

    def _here(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _choose(self) -> Tensor:
        """Explore with the policy, or uniformly at first; ``[3, P, A]``: scaled, in [-1, 1], mean."""
        learner, agents, count = self.learner, self.agents, self._acted[:1]
        population, streams, shape = learner.population, learner.streams, (1, learner.spec.act_dim)
        hyper = {name: value[agents] for name, value in population.hyper.items()}
        noise = {
            name: getattr(streams, own.kind)(name, count, shape, learner.dtype)[agents]
            for name, own in population.backbone.EXPLORATION.items()
        }
        networks = population.networks
        actor = networks.bound_actor(networks.actor_layout.split(learner.behaviour_params[agents]))
        obs = self._obs.unsqueeze(1)
        chosen = population.backbone.explore(actor, obs, noise, hyper)
        random = streams.uniform("random", count, shape, learner.dtype)[agents]
        random = population.backbone.perturb(random, noise, hyper)
        action = torch.where(count < learner.settings.learning_starts, random, chosen)
        # A frozen agent goes on stepping, with a safe action, so that the others stay in lockstep.
        both = torch.nan_to_num(torch.stack((action, actor(obs)))).squeeze(2)
        self._acted.add_(1)
        return torch.cat((unscale_action(both[:1], self._low, self._high), both))
