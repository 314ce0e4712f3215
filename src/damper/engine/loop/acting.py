"""Acting: copy observations to the device and exploring actions back, on a GPU as one CUDA graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from damper.engine.data.random_streams import WARM_UP_ACTIONS
from damper.engine.device.transfers import Download, Upload
from damper.engine.envs.pool import unscale_action
from damper.engine.update.learner import Learner


class Actions(NamedTuple):
    """The actions of one step, ``[P, A]`` each.

    Attributes:
        env: explored, in the environment's units.
        buffer: the same in [-1, 1], as the replay stores it.
        deterministic: without exploration, in [-1, 1].
    """

    env: NDArray[np.float32]
    buffer: NDArray[np.float32]
    deterministic: NDArray[np.float32]


class Acting:
    """Explores with the policies of all agents of a learner."""

    def __init__(self, learner: Learner) -> None:
        """Allocate the buffers."""
        self.learner = learner
        spec, like = learner.spec, {"device": learner.device, "dtype": learner.dtype}
        self._obs = torch.zeros(learner.n_agents, spec.obs_dim, **like)
        self._low, self._high = (torch.as_tensor(bound, **like) for bound in (spec.low, spec.high))
        self._download = Download((3, learner.n_agents, spec.act_dim), **like)
        self._upload = Upload(self._obs.shape, **like, done_event=self._download.done_event)
        choose = learner.compiled(self._compute_actions)

        def act() -> None:
            self._upload.send(self._obs)
            self._download.start(choose())

        self._act = learner.graphed(act, learner.acting_state)

    def act(self, obs: NDArray[np.float32]) -> Actions:
        """``start``, then ``actions``."""
        self.start(obs)
        return self.actions()

    def start(self, obs: NDArray[np.float32]) -> None:
        """Launch the actors on observations ``[P, d]``; work launched afterwards does not delay ``actions``."""
        self._upload.host_buffer()[...] = obs
        self._act()
        self._download.record_event()

    def actions(self) -> Actions:
        """Wait for the actions."""
        return Actions(*self._download.wait())

    def _compute_actions(self) -> Tensor:
        """``Actions`` as one tensor ``[3, P, A]``; uniformly random in the first ``learning_starts`` steps.

        Observation statistics (``norm_obs``) change only here, so an update sees the same ones
        whether it runs while the environments step or afterwards.
        """
        learner, count = (
            self.learner,
            self.learner.acted[:1],
        )  # agents act in lockstep, so one counter is enough
        population, streams = learner.population, learner.streams
        if learner.obs_rms:
            learner.obs_rms.update(self._obs, population.state()["active"])
        obs = learner.normalise(self._obs.unsqueeze(1))
        noise = population.draw(population.backbone.EXPLORATION_NOISE, streams, count, rows=1)
        hparams, actor = population.hparams, population.networks.actor()
        chosen = population.backbone.explore(actor, obs, noise, hparams)
        random = streams.uniform(WARM_UP_ACTIONS, count, (1, learner.spec.act_dim), learner.dtype)
        random = population.backbone.perturb(random, noise, hparams)
        action = torch.where(count < learner.settings.learning_starts, random, chosen)
        # A frozen agent keeps stepping, with a safe action, so that the others stay in lockstep.
        both = torch.nan_to_num(torch.stack((action, actor(obs)))).squeeze(2)
        learner.acted.add_(1)
        return torch.cat((unscale_action(both[:1], self._low, self._high), both))
