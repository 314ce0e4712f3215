"""Requests small enough to train in a test, and records made without training."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from damper.policies.episodes import Episode
from paper.experiments.catalogue import AgentSpec, Request, expand_request
from paper.experiments.identity import deviations
from paper.experiments.records import pack_trace
from paper.experiments.store import Record, Store
from paper.experiments.timings import Timing

TIMING = Timing(
    "td3",
    "plain",
    "Hopper",
    0.5,
    1000,
    1,
    256,
    {"device": "cuda"},
    {},
    {"gpu": "x"},
    None,
    "python -m paper bench",
)
TINY = {
    "net_arch": (8,),
    "learning_starts": 50,
    "batch_size": 16,
    "log_every": 100,
    "checkpoint_every": 100,
}


def tiny(*experiments: str, **changes: Any) -> Request:
    """Two seeds of Pendulum, 300 steps, networks of eight units."""
    base = Request(
        experiments or ("td3-table",), ("Pendulum",), ("damper",), seeds=2, steps=300, settings=TINY
    )
    return replace(base, **changes)


def invented(
    agent: AgentSpec, level: float = 0.0, sm: float = 1.0, episodes: int = 10, **changes: Any
) -> Record:
    """A record with made-up numbers.

    Returns ``level`` to ``level + 0.9``, one smoothness, a short sine as trace.
    """
    who = {**agent.identity, "episodes": episodes}
    table = {"seed": list(range(episodes)), "return": [level + 0.1 * i for i in range(episodes)]}
    table |= {"length": [200] * episodes, "terminated": [False] * episodes, "sm": [sm] * episodes}
    table |= {name: [0.1] * episodes for name in ("mean_change", "max_change", "total_variation")}
    table |= {name: [0.2] * episodes for name in ("spectral_roughness", "saturation")}
    curve = {"step": [1000, 2000], "return": [level - 1, level], "sm": [2 * sm, sm]}
    if who["method"] != "plain":
        curve |= {
            "cosine": [-0.1, 0.1],
            "conflict": [0.6, 0.4],
            "norm_ratio": [0.1, 0.2],
            "weight": [1.0, 1.0],
        }
    record = Record(
        identity=who,
        deviations=_deviations(agent),
        episodes=table,
        curve=curve,
        trace=_sine() if agent.rank < 2 else None,
        frozen=None,
        run={
            "agents": 5,
            "seconds": 10.0,
            "steps_per_second": 100.0,
            "updates": 100,
            "resumed": [],
            "device": "cpu",
        },
        versions={"torch": "2.13.0", **who["physics"]},
        hardware={"cpu": "test", "cores": 1, "threads": 1},
        commit=None,
        command="python -m paper reproduce td3-table",
        sources=["0123456789abcdef0123"],
        origin="damper-rl==0.1.0",
    )
    return replace(record, **changes)


@functools.cache
def _sine() -> dict[str, Any]:
    t = np.linspace(0, 20, 200, dtype=np.float32)[:, None]
    bound = np.ones(1, np.float32)
    return pack_trace(Episode(178132, 0.0, False, np.sin(t), np.sin(t), -bound, bound))


@functools.cache
def _deviations(agent: AgentSpec) -> dict[str, Any]:
    return deviations(agent.identity)


def agents_of(*experiments: str, **changes: Any) -> list[AgentSpec]:
    """The published agents of experiments."""
    return expand_request(Request(experiments, **changes))


def hopper_plain() -> Record:
    """The published record of plain TD3 on Hopper, protocol ``pave``, first seed."""
    (agent,) = agents_of(
        "td3-table",
        tasks=("Hopper",),
        methods=("plain",),
        seeds=1,
        settings={"tf32": True, "device": "cuda", "backend": "envpool"},
        trained_here=False,
    )
    record = Store(Path(__file__).parents[3] / "results").find(agent.identity)
    assert record is not None
    return record
