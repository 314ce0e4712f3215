"""Acting and learning of a population on its device: sampling, noise and update without host round trips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from damper.engine import dense
from damper.engine.declared import check_declared
from damper.engine.envs.spec import Spec
from damper.engine.graphs import WARM_UP, Aside, Graphed
from damper.engine.population import Population, Shape
from damper.engine.replay import Replay
from damper.engine.settings import Settings
from damper.engine.streams import Streams
from damper.engine.transfers import Download, Upload
from damper.losses._interface import Batch, NoiseDraws
from damper.methods import Method, find_method

Actions = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


class Learner:
    """A population with its replay and random streams; every number it needs is on the device."""

    def __init__(self, settings: Settings, spec: Spec, method: Method | None = None) -> None:
        """Fresh agents for the environment described by ``spec``."""
        self.settings, self.spec = settings, spec
        self.device, self.dtype = torch.device(settings.device), getattr(torch, settings.dtype)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)  # streams, events and recordings are the current device's
        self.method = method or find_method(settings.method)
        self.streams = Streams([agent["seed"] for agent in settings.agents()], self.device)
        self.agents = len(self.streams.seeds)
        shape = Shape(spec.obs_dim, spec.act_dim, settings.net_arch, settings.activation)
        hyper, routed = settings.hyper(), settings.routed(self.device, self.dtype)
        automatic = settings.backbone == "sac" and settings.ent_coef == "auto"
        if settings.compile:
            check_declared(settings.backbone, self.method, shape, hyper, routed)
        self.population = Population(
            settings.backbone, self.method, shape, self.streams, hyper, routed, self.dtype, automatic
        )
        capacity = min(settings.buffer_size, settings.steps)
        self.replay = Replay(capacity, self.agents, spec.obs_dim, spec.act_dim, self.device, self.dtype)
        self.updates = 0
        self.population.state["acted"] = torch.zeros((), dtype=torch.int64, device=self.device)
        self._obs = torch.zeros(self.agents, spec.obs_dim, device=self.device, dtype=self.dtype)
        self._low, self._high = (
            torch.as_tensor(b, device=self.device, dtype=self.dtype) for b in (spec.low, spec.high)
        )
        self._seen = Upload(self._obs.shape, self.device, self.dtype)
        self._chosen = Download((3, self.agents, spec.act_dim), self.device, self.dtype)
        self._prepare()

    def _prepare(self) -> None:
        """Choose how acting and learning run."""
        dense.look_at(self.device)
        # Keys are hashed on the host, which neither torch.compile nor a recording can follow.
        for purpose in ("replay", "random", *self.population.noise_kinds, *self.population.backbone.EXPLORATION):
            self.streams.key(purpose)
        # Apart from the update: a compiler that saw both would draw the batch anew wherever it is read.
        self._sample = self.compiled(self.sample)
        self._learn = {with_actor: self.graphed(self._learning(with_actor)) for with_actor in (False, True)}
        self._act = self.graphed(self._acting(self.compiled(self._choose)))
        self.replay.record(self.graphed, WARM_UP)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function through ``torch.compile``, where that is asked for."""
        if not self.settings.compile:
            return function
        # A learner's sizes never change; left to itself, the compiler takes those of a second learner for variables.
        # Nor does anything else that it would make sure of at every call, for a fifth of a millisecond each time.
        options: dict[str, Any] = {"guard_filter_fn": lambda guards: [False] * len(guards)}
        if self.device.type == "cpu":
            # Between kernels of some microseconds each, Python's own time and its checks of sizes count.
            options |= {"cpp_wrapper": True, "size_asserts": False}
        return torch.compile(_own(function), fullgraph=True, dynamic=False, options=options)

    def graphed(
        self, function: Callable[[], Any], changed: Callable[[], Mapping[str, Tensor]] | None = None
    ) -> Callable[[], Any]:
        """A function of fixed tensors as a CUDA graph, by default on a GPU; it changes ``state``, or what is given."""
        graph = self.device.type == "cuda" if self.settings.graph is None else self.settings.graph
        return Graphed(function, changed or self.state) if graph else function

    def state(self) -> dict[str, Tensor]:
        """Every tensor that acting or learning changes, except the replay's rows."""
        return self.population.state

    # --- acting -------------------------------------------------------------------------------------------------

    def act(self, obs: NDArray[np.float32]) -> Actions:
        """Actions for the environments, the same in [-1, 1], and the deterministic ones without exploration."""
        self.start_acting(obs)
        return self.actions()

    def start_acting(self, obs: NDArray[np.float32]) -> None:
        """Begin to act; what is begun afterwards on the device does not delay ``actions``."""
        self._seen.room()[...] = obs
        self._act()
        self._seen.mark()
        self._chosen.mark()

    def actions(self) -> Actions:
        """What ``act`` returns, for the observations that were given last."""
        scaled, chosen, mean = self._chosen.wait()
        return scaled, chosen, mean

    def _acting(self, choose: Callable[[], Tensor]) -> Callable[[], None]:
        """From the host's observations to the host's actions, as one launch."""

        def acting() -> None:
            self._seen.send(self._obs)
            self._chosen.start(choose())

        return acting

    def _choose(self) -> Tensor:
        """Explore with the policy, or uniformly at first; ``[3, P, A]``: scaled, in [-1, 1], mean."""
        population, count = self.population, self.population.state["acted"]
        shape = (1, self.spec.act_dim)
        kinds = population.backbone.EXPLORATION
        noise = {name: getattr(self.streams, own.kind)(name, count, shape, self.dtype) for name, own in kinds.items()}
        actor, obs = population.actor(), self._obs.unsqueeze(1)
        chosen = population.backbone.explore(actor, obs, noise, population.hyper)
        random = self.streams.uniform("random", count, shape, self.dtype)
        random = population.backbone.perturb(random, noise, population.hyper)
        action = torch.where(count < self.settings.learning_starts, random, chosen)
        # A frozen agent goes on stepping, with a safe action, so that the others stay in lockstep.
        both = torch.nan_to_num(torch.stack((action, actor(obs)))).squeeze(2)
        count += 1
        scaled = self._low + (both[:1] + 1.0) * 0.5 * (self._high - self._low)
        return torch.cat((scaled, both))

    # --- learning -----------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """One gradient step of every agent on its own batch."""
        self.updates += 1
        delayed = self.settings.backbone == "td3" and self.updates % self.settings.policy_delay != 0
        self._learn[not delayed]()

    def _learning(self, with_actor: bool) -> Callable[[], None]:
        update = self.updating(with_actor)

        def learning() -> None:
            fields, noise = self._sample()
            update(Batch(*fields), noise)

        return learning

    def updating(self, with_actor: bool, targets: bool = True) -> Callable[[Batch, NoiseDraws], None]:
        """An update, compiled where that is asked for; without its target copies where only its steps are timed.

        Critics and actors are compiled apart: in one piece, the critics' new parameters would be written twice, once
        for the actors to read and once in their place.
        """
        population = self.population

        def actor(batch: Batch, noise: NoiseDraws, kept: Sequence[Tensor]) -> None:
            population.update_actor(self._informed(batch), noise, kept, targets)

        first, second = self._critics(with_actor, targets), self.compiled(actor)

        def update(batch: Batch, noise: NoiseDraws) -> None:
            kept = first(batch, noise)
            if with_actor:
                second(batch, noise, kept)

        return update

    def _critics(self, with_actor: bool, targets: bool) -> Callable[[Batch, NoiseDraws], Sequence[Tensor]]:
        """The critics' half; compiled, a term that shares no pass is found beside the rest of it."""
        population = self.population

        def whole(batch: Batch, noise: NoiseDraws) -> Sequence[Tensor]:
            return population.update_critic(self._informed(batch), noise, with_actor, targets)

        if not (self.settings.compile and self.method.critic_apart):
            return self.compiled(whole)

        def term(batch: Batch, noise: NoiseDraws) -> tuple[Tensor, Tensor]:
            return population.critic_term(self._informed(batch), noise)

        def rest(batch: Batch, noise: NoiseDraws) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
            return population.critic_gradient(self._informed(batch), noise, apart=True)

        def step(gradient: Tensor, loss: Tensor, other: Tensor, value: Tensor) -> None:
            population.step_critic(gradient + other, loss + value, with_actor, targets)

        aside = Aside(self.device)
        find_term, find_rest, take_step = (self.compiled(part) for part in (term, rest, step))

        def critic(batch: Batch, noise: NoiseDraws) -> Sequence[Tensor]:
            with aside.begin():
                found = find_term(batch, noise)
            gradient, loss, kept = find_rest(batch, noise)
            aside.join()
            take_step(gradient, loss, *found)
            return kept  # type: ignore[no-any-return]

        return critic

    def _informed(self, batch: Batch) -> Batch:
        return batch._replace(progress=self.population.state["acted"] / self.settings.steps)

    def sample(self) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
        """The fields of a batch and the noise for the next update."""
        count = self.population.state["updates"]
        size, previous = self.settings.batch_size, self.method.previous_obs
        return tuple(self.replay.sample(self.streams, count, size, previous)), self.noise(count, size)

    def noise(self, count: Tensor, batch_size: int) -> dict[str, Tensor]:
        """Every draw of one update."""
        return self.population.noise(self.streams, count, batch_size)


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with code of its own.

    torch.compile remembers by code what it compiled. Without guards it would run the first learner's for all others.
    """
    if isinstance(function, MethodType):
        return MethodType(_own(function.__func__), function.__self__)
    assert isinstance(function, FunctionType)
    code, defaults, cells = function.__code__.replace(), function.__defaults__, function.__closure__
    return FunctionType(code, function.__globals__, function.__name__, defaults, cells)
