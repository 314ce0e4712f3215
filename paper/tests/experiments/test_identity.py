from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from damper.engine.settings import Settings, population_settings, resolve
from damper.interface import Loss
from damper.methods import METHODS, Method
from damper.provenance import canonical, digest
from damper.rules import RULES
from damper.rules._two_vector import two_vector_rule
from paper.experiments.catalogue import expand_request
from paper.experiments.identity import deviations, identity
from paper.experiments.identity import physics as physics_of
from paper.experiments.store import Store
from paper.tests.experiments.helpers import agents_of, tiny

RESULTS = Path(__file__).parents[3] / "results"
PHYSICS = {"gymnasium": "1.4.0"}


def test_numbers_have_one_form() -> None:
    assert canonical({"b": 1.0, "a": (True, None, 0.1 + 0.2)}) == {"a": [True, None, 0.3], "b": 1}
    assert digest({"eta": 1}) == digest({"eta": 1.0})
    assert digest({"eta": 1}) != digest({"eta": True})


@pytest.mark.parametrize(
    "change",
    [
        {"gamma": 0.9},
        {"steps": 7},
        {"tf32": True},
        {"dtype": "float64"},
        {"eta": 0.5},
        {"protocol": "authors"},
    ],
)
def test_what_moves_a_result_changes_the_identity(change: dict[str, object]) -> None:
    base = {"env": "Hopper", "steps": 1000, "protocol": "pave"}
    one, other = (resolve(**kind).record() for kind in (base, {**base, **change}))
    assert digest(identity(one, {"seed": 0}, PHYSICS, 10)) != digest(
        identity(other, {"seed": 0}, PHYSICS, 10)
    )


def test_a_setting_that_the_backbone_does_not_read_is_no_part_of_it() -> None:
    found = {}
    for backbone in ("td3", "sac"):
        for delay in (2, 3):
            record = resolve("Hopper", backbone, steps=1000).record() | {"policy_delay": delay}
            found[backbone, delay] = identity(record, {"seed": 0}, PHYSICS, 10)
    assert found["td3", 3]["training"]["policy_delay"] == 3
    assert found["td3", 2] != found["td3", 3]
    assert found["sac", 3] == found["sac", 2]


def test_a_setting_that_is_off_is_no_part_of_it_so_that_a_new_one_changes_no_record() -> None:
    off, on = (resolve("Hopper", steps=1000, norm_obs=value).record() for value in (False, True))
    without = {name: value for name, value in off.items() if name != "norm_obs"}
    ours, usual, earlier = (
        identity(record, {"seed": 0}, PHYSICS, 10) for record in (on, off, without)
    )
    assert usual == earlier and "norm_obs" not in usual["training"]
    assert ours["training"]["norm_obs"] is True and digest(ours) != digest(usual)


def test_a_setting_that_came_later_changes_it_only_where_it_changes_something() -> None:
    base, given, other = (
        identity(
            resolve("Hopper", method="pegrad", steps=1000, **own).record(), {"seed": 0}, PHYSICS, 10
        )
        for own in ({}, {"units": "policy"}, {"units": "environment"})
    )
    assert base == given and "units" not in base["method_settings"]
    assert digest(other) != digest(base) and other["method_settings"]["units"] == "environment"


def test_the_agents_on_record_are_still_who_they_were() -> None:
    found = {}
    for record in Store(RESULTS):
        found.setdefault(
            (record.identity["backbone"], record.identity["method"], record.identity["protocol"]),
            record,
        )
    assert len(found) > 10
    for record in found.values():
        who = record.identity
        own = {
            **who["method_settings"],
            **who["training"],
            **{name: who["numerics"][name] for name in ("dtype", "tf32")},
            "backend": who["backend"],
        }
        again = resolve(
            who["task"],
            who["backbone"],
            who["method"],
            (who["seed"],),
            protocol=who["protocol"],
            **own,
        )
        assert (
            identity(again.record(), {"seed": who["seed"]}, who["physics"], who["episodes"]) == who
        )


def test_seed_physics_and_episodes_change_it_and_the_place_does_not() -> None:
    record = resolve("Hopper", steps=1000).record()
    base = digest(identity(record, {"seed": 0}, PHYSICS, 10))
    assert digest(identity(record, {"seed": 1}, PHYSICS, 10)) != base
    assert digest(identity(record, {"seed": 0}, {"gymnasium": "1.3.0"}, 10)) != base
    assert digest(identity(record, {"seed": 0}, PHYSICS, 5)) != base
    moved = {**record, "device": "cuda", "log_every": 7, "compile": True}
    assert digest(identity(moved, {"seed": 0}, PHYSICS, 10)) == base


def test_an_agent_of_a_population_is_the_agent_alone() -> None:
    together = resolve(
        "Hopper", method="scalarization", seeds=2, steps=1000, weight=[0.1, 0.2], gamma=[0.9, 0.99]
    )
    alone = resolve("Hopper", method="scalarization", seeds=(1,), steps=1000, weight=0.2, gamma=0.9)
    row = {"weight": 0.2, "gamma": 0.9, "seed": 1}
    assert row in together.agents()
    assert identity(together.record(), row, PHYSICS, 10) == identity(
        alone.record(), {"seed": 1}, PHYSICS, 10
    )


def who(settings: Settings) -> list[dict[str, Any]]:
    code = settings.custom_code()
    return [identity(settings.record(), row, PHYSICS, 10, code) for row in settings.agents()]


def test_code_of_the_users_own_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for loss in (
        lambda policy, batch, noise: policy(batch.obs).square().mean((-2, -1)),
        lambda policy, batch, noise: policy(batch.obs).abs().mean((-2, -1)),
    ):
        monkeypatch.setitem(METHODS, "quiet", Method("quiet", actor=Loss(loss)))
        found += [
            who(resolve("Hopper", method=name, steps=1000))[0] for name in ("quiet", "damper+quiet")
        ]
    assert len(set(map(digest, found))) == 4
    assert all(
        "custom_code" not in one
        for one in who(resolve("Hopper", method="damper+caps+pave", seeds=2))
    )


def test_an_agent_has_the_code_of_its_own_method_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        RULES, "mine", two_vector_rule()(lambda stats: (0.0 * stats.n_R, 0.0 * stats.n_R))
    )
    monkeypatch.setitem(METHODS, "mine", Method("mine", METHODS["damper"].actor, "mine"))
    alone = [resolve("Hopper", method=name, steps=1000) for name in ("plain", "damper", "mine")]
    together = who(population_settings(alone))
    assert together == [one for settings in alone for one in who(settings)]
    assert ["custom_code" in one for one in together] == [False, False, True]


def test_physics_names_what_simulates() -> None:
    known = {"gymnasium": "1.4", "mujoco": "3.5", "box2d": "2.3", "envpool": "1.2"}
    assert physics_of("Hopper", "gymnasium", known) == {"gymnasium": "1.4", "mujoco": "3.5"}
    assert physics_of("LunarLander", "gymnasium", known) == {"gymnasium": "1.4", "box2d": "2.3"}
    assert physics_of("Pendulum-v1", "gymnasium", known) == {"gymnasium": "1.4"}
    assert physics_of("Hopper", "envpool", known) == {"envpool": "1.2"}


def test_only_what_leaves_the_protocol_is_a_deviation() -> None:
    assert all(
        deviations(agent.identity) == {}
        for agent in agents_of("td3-table", "sac-table", "eta-sweep")
    )
    assert deviations(agents_of("pegrad", settings={"tf32": True})[0].identity) == {}
    assert deviations(expand_request(tiny())[0].identity) == {
        "steps": 300, "net_arch": [8], "learning_starts": 50, "batch_size": 16,
    }  # fmt: skip
    other = agents_of("td3-table", tasks=("Swimmer-v5",), steps=5000)
    assert deviations(other[0].identity) == {"steps": 5000}  # the paper has no budget for it
