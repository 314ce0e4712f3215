"""Acting: observations to the device and actions back, on a GPU as one CUDA graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from damper.engine.device.transfers import Download, Upload
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
        spec = learner.spec
        like: dict[str, Any] = {"device": learner.device, "dtype": learner.dtype}
        self._obs = torch.zeros(learner.n_agents, spec.obs_dim, **like)
        self._download = Download((3, learner.n_agents, spec.act_dim), **like)
        # Both copies end together, so they share an event.
        self._upload = Upload(self._obs.shape, **like, done_event=self._download.done_event)
        self._choose = learner.compiled(learner.choose_actions)
        self._act = learner.graphed(self._copy_and_choose, learner.acting_state)

    def act(self, obs: NDArray[np.float32]) -> Actions:
        """``start``, then ``actions``."""
        self.start(obs)
        return self.actions()

    def start(self, obs: NDArray[np.float32]) -> None:
        """Launch the actors on observations ``[P, d]``; later work does not delay ``actions``."""
        self._upload.host_buffer()[...] = obs
        self._act()
        self._download.record_event()

    def _copy_and_choose(self) -> None:
        """The device's part, on device tensors and pinned memory: a CUDA graph can capture it."""
        self._upload.send(self._obs)
        self._download.start(self._choose(self._obs))

    def actions(self) -> Actions:
        """Wait for the actions."""
        return Actions(*self._download.wait())
