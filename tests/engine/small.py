"""Populations small enough to train in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from damper.engine.data.random_streams import Streams
from damper.engine.envs import spec_of
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.networks.layout import weight_list
from damper.engine.settings import Settings, resolve
from damper.engine.update.learner import Learner
from damper.engine.update.population import Population
from damper.interface import Batch, Noise
from damper.methods import METHODS, find_method

OBS, ACT, BATCH = 3, 2, 8
SHAPE = NetworkSizes(OBS, ACT, (10, 8))
HYPER = {
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "tau": 0.005,
    "target_policy_noise": 0.2,
    "target_noise_clip": 0.5,
    "action_noise": 0.1,
    "ent_coef": 0.2,
}
# Gradients depend on a method's losses, and on whether it has a rule: the first method of each
# kind.
_KINDS = {
    (id(m.actor), id(m.critic), m.rule is None): name for name, m in reversed(METHODS.items())
}
METHODS_BY_LOSSES = list(_KINDS.values())


def population(
    backbone: str,
    method: str,
    seeds: Sequence[int],
    dtype: torch.dtype = torch.float32,
    automatic: bool = False,
    hparams: Mapping[str, Sequence[float]] | None = None,
    own: Mapping[str, Sequence[float]] | None = None,
    fused: bool = False,
) -> Population:
    """One agent per seed; ``hparams`` and ``own`` (the method's settings) give values per agent."""
    numbers = {name: torch.full((len(seeds),), value, dtype=dtype) for name, value in HYPER.items()}
    numbers |= {name: torch.tensor(values, dtype=dtype) for name, values in (hparams or {}).items()}
    chosen = find_method(method)
    method_kwargs = chosen.route(
        {name: torch.tensor(values, dtype=dtype) for name, values in (own or {}).items()}
    )
    return Population(
        AgentNetworks(backbone, chosen, SHAPE, Streams(seeds), dtype),
        hparams=numbers,
        method_kwargs=method_kwargs,
        automatic_entropy=automatic,
        fused=fused,
    )


def inputs(made: Population, seeds: Sequence[int], counter: int) -> tuple[Batch, dict[str, Tensor]]:
    """A batch and noise that depend on each agent's own seed alone."""
    streams = Streams(seeds)
    sizes = {"obs": (BATCH, OBS), "action": (BATCH, ACT), None: (BATCH,)}

    def draw(name: str, kind: Noise) -> Tensor:
        value: Tensor = getattr(streams, kind.kind)(
            f"given {name}", counter, sizes[kind.like], made.dtype
        )
        return value

    normal, uniform = Noise("normal", "obs"), Noise("uniform", "action")
    obs, previous = draw("obs", normal), draw("previous", normal)
    reward, done = draw("reward", Noise("normal", None)), draw("done", Noise("uniform", None)) > 0.8
    batch = Batch(
        obs,
        draw("action", uniform),
        reward,
        obs + 0.1 * previous,
        done.to(made.dtype),
        previous,
        0.5,
    )
    return batch, {name: draw(name, kind) for name, kind in made.noise_kinds.items()}


def train(made: Population, seeds: Sequence[int], updates: int, start: int = 0) -> None:
    """Updates on ``inputs``, the actor at every second one as TD3 does."""
    for k in range(start, start + updates):
        made.update_on(*inputs(made, seeds, k), with_actor=k % 2 == 1)


class Combined(NamedTuple):
    """An actor update's two gradients ``[P, n]`` and the one that the rule made of them."""

    primary: Tensor
    auxiliary: Tensor
    result: Tensor


def watch_rule(made: Population) -> list[Combined]:
    """What the rule is given and gives, for every actor update from now on."""
    seen: list[Combined] = []
    combine = made._combine

    def watched(gradients: Sequence[Tensor], logs: dict[str, Tensor]) -> Tensor:
        result = combine(gradients, logs)
        seen.append(Combined(*(tensor.clone() for tensor in (*gradients, result))))
        return result

    made._combine = watched  # type: ignore[method-assign]
    return seen


def rows(state: Mapping[str, Tensor], name: str, agents: Sequence[int]) -> Tensor:
    """Some agents' part of a state tensor; all of it where agents share it."""
    value = state[name]
    if value.ndim == 0 or name == "diagnosed":
        return value
    return value[:, list(agents)] if name == "diagnostics" else value[list(agents)]


def pieces(made: Population, name: str, agent: int) -> list[Tensor]:
    """An agent's part of a state tensor in float64, by layer where it is a network's."""
    part, network = rows(made.state(), name, [agent]).double(), name.split(".")[0]
    if part.ndim < 2 or not network.startswith(("actor", "critic")):
        return [part]
    networks = made.networks
    layout = networks.actor_layout if network.startswith("actor") else networks.critic_layout
    return weight_list(layout.unflatten(part.reshape(-1, layout.size)))


def settings(backbone: str = "td3", method: str = "plain", **given: Any) -> Settings:
    """A run on Pendulum of a few hundred steps with tiny networks."""
    tiny = {
        "net_arch": (12, 10),
        "batch_size": 16,
        "learning_starts": 20,
        "steps": 300,
        "log_every": 50,
    }
    return resolve("Pendulum", backbone, method, **{"seeds": (0, 1), **tiny, **given})


def learner(made: Settings, rows: int = 60, device: str = "cpu") -> Learner:
    """A learner whose agents have stored random transitions, the same ones for the same seed."""
    learner = Learner(made, spec_of(made.env))
    streams = Streams([agent["seed"] for agent in made.agents()], device)
    width = learner.replay.rows.shape[-1] - 2
    for k in range(rows):
        first = torch.full((learner.n_agents, 2), float(k % 10 == 0), device=device)
        first[:, 0] = float(k % 10 == 9)
        learner.replay.add(torch.cat((streams.normal("stored", k, (width,)), first), 1).cpu())
    return learner


def noise(learner: Learner, count: Tensor, rows: int = 16) -> dict[str, Tensor]:
    """All draws of one update, by name."""
    kinds, shapes = learner.noise_kinds, learner.noise_shapes
    return learner.streams.noise(kinds, count, rows, shapes, learner.dtype)
