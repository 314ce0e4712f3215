from __future__ import annotations

import itertools
from dataclasses import replace

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from damper.errors import DamperError
from damper.protocols import TRAINING_SEEDS
from damper.provenance import digest
from paper.experiments.catalogue import WEIGHTS, AgentSpec
from paper.experiments.identity import identity
from paper.experiments.population_plan import Job, pack
from paper.tests.experiments.helpers import agents_of

SWEEP = agents_of("scalarization-sweep", tasks=("Hopper",), methods=("scalarization",))
BY_CELL = {
    (agent.settings.method_settings["weight"], agent.settings.seeds[0]): agent for agent in SWEEP
}


def trained(job: Job) -> list[tuple[float, int]]:
    """The agents that the engine would train, from the population's own settings."""
    settings = job.settings
    return [
        ({**settings.method_settings, **row}["weight"], row["seed"]) for row in settings.agents()
    ]


def some(cells: set[tuple[float, int]]) -> list[AgentSpec]:
    return [agent for cell, agent in BY_CELL.items() if cell in cells]


def test_a_sweep_is_one_population() -> None:
    (job,) = pack(SWEEP)
    assert len(job.settings.agents()) == 100
    assert sorted(trained(job)) == sorted(itertools.product(WEIGHTS, TRAINING_SEEDS[:5]))


def test_methods_tasks_and_backbones_are_populations_of_their_own() -> None:
    jobs = pack(
        agents_of("td3-table", "sac-table", tasks=("Ant", "Hopper"), methods=("plain", "pave"))
    )
    assert len(jobs) == 8
    assert {len(job.wanted) for job in jobs} == {5}


def test_a_table_and_a_sweep_of_one_method_share_a_population() -> None:
    jobs = pack(agents_of("td3-table", "eta-sweep", tasks=("LunarLander",), methods=("damper",)))
    assert [len(job.wanted) for job in jobs] == [30]


@hypothesis.given(st.sets(st.sampled_from(sorted(BY_CELL)), max_size=40))
@hypothesis.settings(max_examples=60)
def test_exactly_the_missing_agents_are_trained(cells: set[tuple[float, int]]) -> None:
    jobs = pack(some(cells))
    assert sorted(cell for job in jobs for cell in trained(job)) == sorted(cells)
    assert len(jobs) == bool(cells)


def test_on_a_gpu_methods_that_differ_in_the_rule_share_a_population(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("td3-table", "projection-ablation", "pegrad", "eta-sweep")
    agents = agents_of(*names, tasks=("Hopper",))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for device, sizes in (("cpu", [5, 5, 5, 5, 5, 5, 30, 5, 5, 5]), ("cuda", [50, 5, 5, 5, 5, 5])):
        there = [
            replace(agent, settings=replace(agent.settings, device=device)) for agent in agents
        ]
        jobs = pack(there)
        assert [len(job.wanted) for job in jobs] == sizes
        for job in jobs:  # and each is still who it was
            physics = job.wanted[0].identity["physics"]
            rows = [
                identity(job.settings.record(), row, physics, 10) for row in job.settings.agents()
            ]
            assert [digest(row) for row in rows] == [agent.digest for agent in job.wanted]


@pytest.mark.parametrize("most", [1, 3, 7, 30, 99, 100])
def test_populations_keep_to_the_size_asked_for(most: int) -> None:
    jobs = pack(SWEEP, most)
    assert max(len(job.settings.agents()) for job in jobs) <= most
    assert sorted(cell for job in jobs for cell in trained(job)) == sorted(BY_CELL)


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(DamperError, match="population must be at least 1"):
        pack(SWEEP, 0)


def test_names_are_stable_and_tell_populations_apart() -> None:
    names = [job.name for job in pack(SWEEP, 10)]
    assert len(set(names)) == len(names)
    assert pack(SWEEP)[0].name == pack(list(reversed(SWEEP)))[0].name
