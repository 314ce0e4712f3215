"""A population that learns on its device: replay sampling, noise and update, without host round trips."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from damper.engine.data.normalisation import RunningMeanStd
from damper.engine.data.random_streams import REPLAY_INDICES, WARM_UP_ACTIONS, Streams
from damper.engine.data.replay import Replay
from damper.engine.device.cuda_graph import Graphed
from damper.engine.envs.pool import Spec, action_scale
from damper.engine.gradients.autograd import AutogradBackend
from damper.engine.gradients.backend import GradientBackend
from damper.engine.gradients.shared_forward import SharedForwardBackend
from damper.engine.kernels import layer_ops
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.settings import PER_AGENT, Settings
from damper.engine.update.check_loss_claims import check_loss_claims, check_own_losses
from damper.engine.update.population import Population
from damper.engine.update.scheduled import Scheduled
from damper.engine.update.update import Update, make_update
from damper.interface import Batch
from damper.methods import find_method


class Learner:
    """A population with its replay and random streams, all on the device."""

    def __init__(self, settings: Settings, spec: Spec) -> None:
        """Make new agents for the environment described by ``spec``."""
        self.settings, self.spec = settings, spec
        self.device, self.dtype = torch.device(settings.device), getattr(torch, settings.dtype)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(
                self.device
            )  # streams, events and graphs belong to the current device
        self.method = find_method(settings.method)
        self.streams = Streams([agent["seed"] for agent in settings.agents()], self.device)
        self.n_agents = len(self.streams.seeds)
        sizes = NetworkSizes(spec.obs_dim, spec.act_dim, settings.net_arch, settings.activation)
        columns = settings.scheduled()
        self.scheduled = Scheduled(columns, self.device, self.dtype) if columns else None
        follows = self.scheduled.tensors if self.scheduled else {}
        hparams = settings.per_agent_hparams() | {
            name: follows[name] for name in PER_AGENT if name in follows
        }
        method_kwargs = settings.method_kwargs(self.device, self.dtype, follows)
        automatic = settings.backbone == "sac" and settings.ent_coef == "auto"
        networks = AgentNetworks(settings.backbone, self.method, sizes, self.streams, self.dtype)
        # This is the only place that chooses how updates run; other code reads the backend's
        # attributes.
        backend: GradientBackend = (SharedForwardBackend if settings.compile else AutogradBackend)(
            networks
        )
        self.population = Population(
            gradient_backend=backend,
            hparams=hparams,
            method_kwargs=method_kwargs,
            automatic_entropy=automatic,
        )
        if backend.traceable and not self.method.is_shipped:
            check_own_losses(self.population, self.streams)
            check_loss_claims(self.population)
        capacity = min(settings.buffer_size, settings.steps)
        self.replay = Replay(
            capacity, self.n_agents, spec.obs_dim, spec.act_dim, self.device, self.dtype
        )
        self._action_scale = torch.as_tensor(
            action_scale(spec.low, spec.high), device=self.device, dtype=self.dtype
        )
        self.obs_rms = (
            RunningMeanStd(self.n_agents, spec.obs_dim, self.device) if settings.norm_obs else None
        )
        self.updates = 0  # gradient steps: the host's copy of state()["updates"]
        self.acted = torch.zeros(
            self.n_agents, dtype=torch.int64, device=self.device
        )  # steps acted: all equal
        self._prepare()

    def _prepare(self) -> None:
        """Set up the functions that ``update`` runs, compiled and as CUDA graphs where the settings say so."""
        layer_ops.check_capability(self.device)
        # Compute the keys now: they are hashed on the host, which neither torch.compile nor a CUDA
        # graph can capture.
        population = self.population
        for purpose in (
            REPLAY_INDICES,
            WARM_UP_ACTIONS,
            *population.noise_kinds,
            *population.backbone.EXPLORATION_NOISE,
        ):
            self.streams.key(purpose)
        # Compiled separately from the update: Inductor would otherwise recompute the batch wherever
        # it is read.
        self._sample = self.compiled(self.sample)
        self._sample_and_update = {
            with_actor: self.graphed(self._make_sample_and_update(with_actor))
            for with_actor in (False, True)
        }
        self.replay.capture(self.graphed)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function with ``torch.compile`` if the settings ask for it."""
        if not self.population.gradient_backend.traceable:
            return function
        # A learner's sizes never change; with dynamic shapes, those of a second learner would
        # become variables.
        return torch.compile(_with_fresh_code_object(function), fullgraph=True, dynamic=False)

    def graphed(
        self, function: Callable[[], Any], changed: Callable[[], Mapping[str, Tensor]] | None = None
    ) -> Callable[[], Any]:
        """Run a function on fixed tensors as a CUDA graph, by default if the device is a GPU.

        ``changed`` returns the tensors that the function changes, by default those of the
        population.
        """
        graph = self.device.type == "cuda" if self.settings.graph is None else self.settings.graph
        return Graphed(function, changed or self.population.state) if graph else function

    def state(self) -> dict[str, Tensor]:
        """All tensors that acting or learning changes, except the replay's rows."""
        return {**self.population.state(), **self.acting_state()}

    def acting_state(self) -> dict[str, Tensor]:
        """All tensors that acting changes."""
        return {"acted": self.acted, **(self.obs_rms.state() if self.obs_rms else {})}

    def normalise(self, obs: Tensor) -> Tensor:
        """Observations ``[P, ..., d]`` as the networks see them."""
        return self.obs_rms.normalise(obs) if self.obs_rms else obs

    # --- learning -----------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Take one gradient step of every agent on its own batch."""
        if self.scheduled is not None:
            self.scheduled.set(1.0 - self.replay.sampleable / self.settings.steps)
        self.updates += 1
        delayed = self.settings.backbone == "td3" and self.updates % self.settings.policy_delay != 0
        self._sample_and_update[not delayed]()

    def newest_sampled(self, steps: int, update: int) -> bool:
        """Whether, with ``steps`` steps stored, any agent's batch of this update contains the newest one.

        Batches are a pure function of seed and counter, so the host can draw an update's indices
        before the device.
        """
        capacity = self.replay.capacity
        drawn = self.streams.host_integers(
            REPLAY_INDICES, update, self.settings.batch_size, min(steps, capacity)
        )
        return bool((drawn == (steps - 1) % capacity).any())

    def update_ahead(self) -> None:
        """``update`` while the environments still step; only allowed if the batch does not contain that step."""
        self.replay.count_next_step()
        self.update()

    def _make_sample_and_update(self, with_actor: bool) -> Callable[[], None]:
        update = self.make_update(with_actor)

        def sample_and_update() -> None:
            fields, noise = self._sample()
            update(Batch(*fields), noise)

        return sample_and_update

    def make_update(self, with_actor: bool) -> Update:
        """Make an update, compiled if the settings ask for it."""
        return make_update(self.population, with_actor, self.compiled, self._add_context)

    def _add_context(self, batch: Batch) -> Batch:
        progress = self.replay.sampleable_on_device / self.settings.steps
        return batch._replace(progress=progress, action_scale=self._action_scale)

    def sample(self) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
        """The fields of a batch and the noise, for the next update."""
        count = self.population.state()["updates"]
        size, previous = self.settings.batch_size, self.method.previous_obs
        batch = self.replay.sample(self.streams, count, size, previous)
        if self.obs_rms:
            observations = ("obs", "next_obs", "previous_obs") if previous else ("obs", "next_obs")
            batch = batch._replace(
                **{name: self.normalise(getattr(batch, name)) for name in observations}
            )
        # A plain tuple, so that compiled functions need not return a named one (torch 2.13 can).
        return tuple(batch), self.noise(count, size)

    def noise(self, count: Tensor, batch_size: int) -> dict[str, Tensor]:
        """All draws of one update, by name, ``[P, B, ·]``."""
        return self.population.draw(self.population.noise_kinds, self.streams, count, batch_size)


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
