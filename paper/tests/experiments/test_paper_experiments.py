from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from damper.engine.settings import devices, resolving
from damper.errors import DamperError
from damper.protocols import TRAINING_SEEDS
from paper.experiments.catalogue import ETAS, EXPERIMENTS, WEIGHTS, Request, expand_request
from paper.tests.experiments.helpers import TINY, agents_of, tiny

COUNTS = {
    "td3-table": 210,
    "sac-table": 210,
    "projection-ablation": 45,
    "pegrad": 30,
    "scalarization-sweep": 630,
}
COUNTS |= {"eta-sweep": 90, "one-eta": 60, "walker-variation": 4}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_the_experiments_have_the_papers_size(name: str, count: int) -> None:
    assert len(agents_of(name)) == count


def test_the_sweeps_are_the_papers() -> None:
    assert WEIGHTS[0] == 0.05 and WEIGHTS[-1] == 1.0 and len(WEIGHTS) == 20
    assert ETAS == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def test_one_agent_serves_every_experiment_that_needs_it() -> None:
    # η = 0.8 on LunarLander is both the main table's DAMPER and a point of the sweep, as are η = 1
    # on the others.
    table = {agent.digest for agent in agents_of("td3-table", methods=("damper",))}
    sweep = {agent.digest for agent in agents_of("eta-sweep")}
    assert len(table & sweep) == 15
    assert len(agents_of("td3-table", "eta-sweep", "pegrad")) == 210 + 75 + 15


def test_one_eta_everywhere_takes_the_agents_that_the_papers_tables_lack() -> None:
    tables = {agent.digest for agent in agents_of("td3-table", "sac-table")}
    lacking = [agent.identity for agent in agents_of("one-eta") if agent.digest not in tables]
    assert {who["method_settings"]["eta"] for who in lacking} == {1}
    pairs = {(who["backbone"], who["task"]) for who in lacking}
    assert pairs == {
        ("td3", "LunarLander"),
        ("td3", "Ant"),
        ("sac", "Reacher"),
        ("sac", "Ant"),
        ("sac", "Hopper"),
    }
    assert len(lacking) == 25


def test_agents_have_the_published_settings_and_the_protocols_seeds() -> None:
    agents = agents_of("sac-table", tasks=("Hopper",), methods=("pave",))
    assert [agent.identity["seed"] for agent in agents] == list(TRAINING_SEEDS[:5])
    assert {agent.identity["method_settings"]["lambda_3"] for agent in agents} == {3}
    assert {agent.identity["training"]["steps"] for agent in agents} == {1_000_000}


def test_a_method_outside_the_experiment_runs_at_its_own_settings() -> None:
    agents = agents_of("td3-table", tasks=("Ant",), methods=("temporal-ramp",), seeds=3)
    assert [agent.identity["method"] for agent in agents] == ["temporal-ramp"] * 3


def test_mistakes_are_told_in_one_sentence() -> None:
    with pytest.raises(DamperError, match="did you mean 'td3-table'"):
        agents_of("td3-tabel")
    with pytest.raises(DamperError, match="learning_rate must be one value"):
        expand_request(Request(("pegrad",), settings={"learning_rate": (1e-3, 1e-4)}))
    with pytest.raises(DamperError, match="steps must be given"):
        agents_of("pegrad", tasks=("Swimmer-v5",))
    with pytest.raises(
        DamperError, match="steps must be a whole number of at least 1, but 0 was given"
    ):
        agents_of("pegrad", steps=0)
    with pytest.raises(DamperError, match="episodes must be at least 1"):
        agents_of("pegrad", episodes=0)


def test_every_experiment_is_described() -> None:
    assert all(experiment.title for experiment in EXPERIMENTS.values())


def test_a_gpu_s_environments_are_stepped_as_damper_train_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cpu = expand_request(tiny())
    assert {agent.identity["backend"] for agent in on_cpu} == {"gymnasium"}
    monkeypatch.setattr(devices, "_fastest_device", lambda: "cuda")
    monkeypatch.setattr(resolving, "_envpool_has", lambda task: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    on_gpu = expand_request(tiny())
    assert {(agent.settings.device, agent.identity["backend"]) for agent in on_gpu} == {
        ("cuda", "envpool")
    }
    asked = expand_request(tiny(settings={**TINY, "backend": "gymnasium"}))
    assert [agent.digest for agent in asked] == [agent.digest for agent in on_cpu], (
        "the device is no part of an agent"
    )


def test_a_plan_for_another_machine_may_name_its_device() -> None:
    request = tiny(settings={**TINY, "device": "cuda:7"})
    with pytest.raises(DamperError, match="device must be one that this machine has"):
        expand_request(request)
    assert expand_request(replace(request, trained_here=False))[0].settings.device == "cuda:7"
