"""The workloads to time: updates of the engine on a task's random transitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from damper.engine.data.replay import Replay
from damper.engine.envs import Spec, make_pool, spec_of
from damper.engine.envs.pool import unscale_action
from damper.engine.settings import resolve
from damper.engine.update.learner import Learner
from damper.errors import DamperError
from paper.bench.interleaved_timing import Workload

MODES: dict[str, dict[str, Any]] = {
    "eager": {"compile": False, "graph": False},
    "compile": {"compile": True, "graph": False},
    "graph": {"compile": False, "graph": True},
    "compile-graph": {"compile": True, "graph": True},
}
ROWS = 2000  # transitions: enough for random batches of 256, and collected in a second


@dataclass(frozen=True)
class ExecutionMode:
    """Where and how the engine's updates run; shared by everything in one measurement."""

    device: str = "cpu"
    mode: str = "eager"
    tf32: bool = False
    batch_size: int = 256

    @property
    def precision(self) -> str:
        """Number format of matrix products."""
        return "TF32" if self.tf32 else "float32"

    def record(self) -> dict[str, Any]:
        """The mode as data; only timings with the same mode are compared."""
        where = {"device": self.device, "threads": torch.get_num_threads()}
        return {**where, "mode": self.mode, "tf32": self.tf32}


@dataclass(frozen=True)
class Transitions:
    """Consecutive steps of one environment with uniformly random actions."""

    env: str
    spec: Spec
    rows: Tensor


@dataclass(frozen=True)
class Subjects:
    """What is compared: methods of some backbones and population sizes, on the same data."""

    data: Transitions
    backbones: Sequence[str]
    methods: Sequence[str]
    sizes: Sequence[int] = (1,)


def backends(env: str) -> list[str]:
    """The backends that can step an environment here; if none can, raises Gymnasium's error."""
    usable, refusals = [], []
    for backend in ("gymnasium", "envpool"):
        try:
            spec_of(env, backend)
            usable.append(backend)
        except DamperError as refusal:
            refusals.append(refusal)
    if not usable:
        raise refusals[0]
    return usable


def random_transitions(env: str = "Hopper", count: int = ROWS, seed: int = 0) -> Transitions:
    """Step an environment ``count`` times with uniformly random actions."""
    pool, generator = make_pool(env, [seed], backends(env)[0]), np.random.default_rng(seed)
    low, high = pool.spec.low, pool.spec.high
    obs, first, rows = pool.reset(), np.array([True]), []
    for _ in range(count):
        action = generator.uniform(-1.0, 1.0, (1, pool.spec.act_dim)).astype(np.float32)
        step = pool.step(unscale_action(action, low, high))
        parts = (obs, action, step.next_obs, step.reward, step.terminated, first)
        rows.append(Replay.pack(*parts))
        obs, first = step.obs, step.terminated | step.truncated
    pool.close()
    return Transitions(env, pool.spec, torch.from_numpy(np.concatenate(rows)))


def make_learner(
    data: Transitions,
    backbone: str,
    method: str,
    mode: ExecutionMode,
    n_agents: int = 1,
    **settings: Any,
) -> Learner:
    """New agents with the paper's networks, published settings and a replay full of ``data``."""
    torch.backends.cuda.matmul.allow_tf32 = mode.tf32
    if method == "damper":
        settings.setdefault("eta", 0.0)  # as the paper times it
    made = resolve(
        data.env,
        backbone,
        method,
        range(n_agents),
        len(data.rows),
        "authors",
        batch_size=mode.batch_size,
        device=mode.device,
        **MODES[mode.mode],
        **settings,
    )
    learner = Learner(made, data.spec)
    fill_replay(learner.replay, data)
    return learner


def fill_replay(replay: Replay, data: Transitions) -> None:
    """Fill every agent's replay with copies of ``data``."""
    times, rest = divmod(replay.capacity, len(data.rows))
    assert rest == 0, "the capacity is a multiple of the transitions"
    replay.rows.unflatten(0, (times, -1)).copy_(data.rows.unsqueeze(1))
    replay.set_stored(replay.capacity)


def whole_update(learner: Learner) -> Workload:
    """Updates as in training: sampling, noise, update, target copies, sums for the log."""

    def run(iterations: int) -> None:
        for _ in range(iterations):
            learner.update()

    return run


def paper_update(learner: Learner) -> Workload:
    """Updates in the paper's scope, on one fixed batch, without target copies and the log's sums.

    TD3's actor is updated every ``policy_delay`` iterations.
    """
    delay = learner.settings.policy_delay
    step = {actor: learner.graphed(networks_step(learner, actor)) for actor in (False, True)}
    done = 0

    def run(iterations: int) -> None:
        nonlocal done
        for _ in range(iterations):
            done += 1
            step[learner.settings.backbone == "sac" or done % delay == 0]()

    return run


def networks_step(learner: Learner, with_actor: bool) -> Callable[[], None]:
    """One update on a fixed batch; the learner loses target copies and the log's sums for good."""
    left_out = [(learner, "polyak_update"), (learner, "update_actor_average")]
    for owner, name in [*left_out, (learner.diagnostics, "add")]:
        assert hasattr(owner, name), f"{name} would be timed"
        setattr(owner, name, lambda *_, **__: None)
    size, count = learner.settings.batch_size, learner.state()["updates"]
    batch = learner.replay.sample(learner.streams, 0, size, learner.method.previous_obs)
    kinds, shapes, dtype = learner.noise_kinds, learner.noise_shapes, learner.dtype
    noise = learner.compiled(lambda: learner.streams.noise(kinds, count, size, shapes, dtype))
    return lambda: learner.update_on(batch, noise(), with_actor)
