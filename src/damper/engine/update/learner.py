"""A population that learns on its device: sampling, noise and update, without round trips."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from damper.engine.data.normalisation import RunningMeanStd
from damper.engine.data.random_streams import REPLAY_INDICES, WARM_UP_ACTIONS, Streams
from damper.engine.data.replay import Replay
from damper.engine.device.cuda_graph import Graphed
from damper.engine.device.transfers import Upload
from damper.engine.envs.pool import Spec, action_scale, unscale_action
from damper.engine.gradients import Given
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.settings import PER_AGENT, Settings
from damper.engine.update.check_losses import check_loss_claims, check_own_losses
from damper.engine.update.population import Population
from damper.interface import Batch, NoiseDraws
from damper.methods import find_method
from damper.schedules import value_at


class Scheduled:
    """Settings that follow a schedule, which the host sets before an update.

    ``columns`` are each setting's schedules or numbers by agent (``Settings.scheduled``);
    ``tensors`` are ``[P]`` by name, changed in place because graphs and compiled code read them.
    """

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], device: torch.device, dtype: torch.dtype
    ) -> None:
        self._columns = columns
        self.values: dict[str, list[float]] = {}  # of the last ``set``, for the log
        shape = len(columns), len(next(iter(columns.values())))
        self._staged = Upload(shape, device, dtype)
        self._device_values = torch.zeros(*shape, device=device, dtype=dtype)
        self.tensors = dict(zip(columns, self._device_values.unbind(), strict=True))
        self._remaining: float | None = None
        self.set(1.0)

    def set(self, progress_remaining: float) -> None:
        """Send the values at this point of the run, from 1 down to 0, to the device."""
        if progress_remaining == self._remaining:
            return
        self._remaining = progress_remaining
        for name, column in self._columns.items():
            self.values[name] = [value_at(schedule, progress_remaining) for schedule in column]
        self._staged.host_buffer()[...] = list(self.values.values())
        self._staged.send(self._device_values)
        self._staged.record_event()


class Learner(Population):
    """New agents for an environment, with their replay and random streams, on the device."""

    def __init__(self, settings: Settings, spec: Spec) -> None:
        self.settings, self.spec = settings, spec
        device, dtype = torch.device(settings.device), getattr(torch, settings.dtype)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # streams, events and graphs belong to the current device
        self.streams = Streams([agent["seed"] for agent in settings.agents()], device)
        columns = settings.scheduled()
        self.scheduled = Scheduled(columns, device, dtype) if columns else None
        follows = self.scheduled.tensors if self.scheduled else {}
        hparams = settings.per_agent_hparams()
        hparams |= {name: follows[name] for name in PER_AGENT if name in follows}
        sizes = NetworkSizes(spec.obs_dim, spec.act_dim, settings.net_arch, settings.activation)
        method = find_method(settings.method)
        # Networks are drawn from the streams, so that an agent starts alike alone and among others.
        super().__init__(
            networks=AgentNetworks(settings.backbone, method, sizes, self.streams, dtype),
            hparams=hparams,
            method_kwargs=settings.method_kwargs(device, dtype, follows),
            automatic_entropy=settings.backbone == "sac" and settings.ent_coef == "auto",
            fused=settings.compile,
        )
        # The tests check the shipped losses; a user's are checked before they are traced.
        if settings.compile and not method.is_shipped:
            check_own_losses(self, self.streams)
            check_loss_claims(self)
        # A replay that the run cannot fill would only take memory.
        capacity = min(settings.buffer_size, settings.steps)
        self._graph = device.type == "cuda" if settings.graph is None else settings.graph
        row = (self.n_agents, spec.obs_dim, spec.act_dim)
        self.replay = Replay(capacity, *row, device, dtype, self._graph)
        self._previous_obs = method.previous_obs
        self._low = torch.as_tensor(spec.low, device=device, dtype=dtype)
        self._high = torch.as_tensor(spec.high, device=device, dtype=dtype)
        scale = action_scale(spec.low, spec.high)
        self._action_scale = torch.as_tensor(scale, device=device, dtype=dtype)
        self.obs_rms: RunningMeanStd | None = None
        if settings.norm_obs:
            self.obs_rms = RunningMeanStd(self.n_agents, spec.obs_dim, device)
        self.updates = 0  # gradient steps: the host's copy of state()["updates"]
        # Steps acted: agents act in lockstep, so all are equal.
        self.acted = torch.zeros(self.n_agents, dtype=torch.int64, device=device)
        self._prepare()

    def _prepare(self) -> None:
        """Set up the functions that ``update`` runs, compiled and as CUDA graphs if asked for."""
        # Compute the keys now: they are hashed on the host, which neither torch.compile nor a CUDA
        # graph can capture.
        noise = (*self.noise_kinds, *self.backbone.EXPLORATION_NOISE)
        for purpose in (REPLAY_INDICES, WARM_UP_ACTIONS, *noise):
            self.streams.key(purpose)
        # Compiled one by one: in one function, Inductor would recompute the batch wherever it is
        # read, write the critics' new parameters twice (into a buffer for the actors, then in
        # place), and recompute the actors' log probabilities inside the temperature's sum.
        for name in ("sample", "step_critic", "step_actor", "step_temperature"):
            setattr(self, name, self.compiled(getattr(self, name)))
        self._sample_and_update = {
            with_actor: self.graphed(functools.partial(self._update_on_sample, with_actor))
            for with_actor in (False, True)
        }

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function with ``torch.compile`` if the settings ask for it."""
        if not self.settings.compile:
            return function
        # A learner's sizes never change; with dynamic shapes, those of a second learner would
        # become variables.
        return torch.compile(_with_fresh_code_object(function), fullgraph=True, dynamic=False)

    def graphed(
        self, function: Callable[[], Any], changed: Callable[[], Mapping[str, Tensor]] | None = None
    ) -> Callable[[], Any]:
        """Run a function on fixed tensors as a CUDA graph, by default if the device is a GPU.

        ``changed`` returns the tensors that the function changes, by default those of ``state``.
        """
        return Graphed(function, changed or self.state) if self._graph else function

    def state(self) -> dict[str, Tensor]:
        """All tensors that acting or learning changes, except the replay's rows."""
        return {**super().state(), **self.acting_state()}

    # --- learning ---------------------------------------------------------------------------------

    def update(self) -> None:
        """Take one gradient step of every agent on its own batch."""
        if self.scheduled is not None:
            self.scheduled.set(1.0 - self.replay.sampleable / self.settings.steps)
        self.updates += 1
        # Decided on the host, which counts too: the device would have to be asked.
        delayed = self.settings.backbone == "td3" and self.updates % self.settings.policy_delay != 0
        self._sample_and_update[not delayed]()

    def update_ahead(self) -> None:
        """``update`` while the environments step; the batch must not contain that step."""
        self.replay.count_next_step()
        self.update()

    def newest_sampled(self, steps: int, update: int) -> bool:
        """Whether any agent's batch of this update contains the newest of ``steps`` stored steps.

        Batches are a pure function of seed and counter, so the host can draw an update's indices
        before the device.
        """
        capacity = self.replay.capacity
        count, below = self.settings.batch_size, min(steps, capacity)
        drawn = self.streams.host_integers(REPLAY_INDICES, update, count, below)
        return bool((drawn == (steps - 1) % capacity).any())

    def _update_on_sample(self, with_actor: bool) -> None:
        fields, noise = self.sample()
        self.update_on(Batch(*fields), noise, with_actor)

    def sample(self) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
        """The fields of a batch and the noise, for the next update."""
        count, size = self._state["updates"], self.settings.batch_size
        batch = self.replay.sample(self.streams, count, size, self._previous_obs)
        if self.obs_rms:
            obs, next_obs = map(self.obs_rms.normalise, (batch.obs, batch.next_obs))
            batch = batch._replace(obs=obs, next_obs=next_obs)
            if self._previous_obs:
                batch = batch._replace(previous_obs=self.obs_rms.normalise(batch.previous_obs))
        # A plain tuple, because compiled functions cannot return a named one before torch 2.13.
        noise = self.streams.noise(self.noise_kinds, count, size, self.noise_shapes, self.dtype)
        return tuple(batch), noise

    def _given(self, batch: Batch, noise: NoiseDraws) -> Given:
        """Add what is not sampled; here, inside the compiled steps, it costs no memory."""
        progress = self.replay.sampleable_on_device / self.settings.steps
        batch = batch._replace(progress=progress, action_scale=self._action_scale)
        return super()._given(batch, noise)

    # --- acting -----------------------------------------------------------------------------------

    def acting_state(self) -> dict[str, Tensor]:
        """All tensors that acting changes."""
        return {"acted": self.acted, **(self.obs_rms.state() if self.obs_rms else {})}

    def normalise(self, obs: Tensor) -> Tensor:
        """Observations ``[P, ..., d]`` as the networks see them."""
        return self.obs_rms.normalise(obs) if self.obs_rms else obs

    def choose_actions(self, obs: Tensor) -> Tensor:
        """Actions at observations ``[P, d]``: explored in both units, and deterministic.

        They are one tensor ``[3, P, A]``, the fields of ``Actions``. Uniformly random in the first
        ``learning_starts`` steps. Observation statistics (``norm_obs``) change only here, so an
        update sees the same ones whether it runs while the environments step or afterwards.
        """
        count = self.acted[:1]
        if self.obs_rms:
            self.obs_rms.update(obs, self._state["active"])
        obs = self.normalise(obs.unsqueeze(1))
        kinds = self.backbone.EXPLORATION_NOISE
        noise = self.streams.noise(kinds, count, 1, self.noise_shapes, self.dtype)
        actor = self.networks.actor()
        chosen = self.backbone.explore(actor, obs, noise, self.hparams)
        random = self.streams.uniform(WARM_UP_ACTIONS, count, (1, self.spec.act_dim), self.dtype)
        random = self.backbone.perturb(random, noise, self.hparams)
        action = torch.where(count < self.settings.learning_starts, random, chosen)
        # A frozen agent keeps stepping, with a safe action, so that the others stay in lockstep.
        both = torch.nan_to_num(torch.stack((action, actor(obs)))).squeeze(2)
        self.acted.add_(1)
        return torch.cat((unscale_action(both[:1], self._low, self._high), both))


def _with_fresh_code_object(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy ``function`` with a new code object.

    Dynamo caches by code object, up to eight versions of each, and a process may make more learners
    than that.
    """
    if isinstance(function, MethodType):
        return MethodType(_with_fresh_code_object(function.__func__), function.__self__)
    assert isinstance(function, FunctionType)
    code, defaults, cells = function.__code__.replace(), function.__defaults__, function.__closure__
    return FunctionType(code, function.__globals__, function.__name__, defaults, cells)
