from __future__ import annotations

from dataclasses import replace

import numpy as np

from paper.experiments.catalogue import Request, expand_request
from paper.experiments.reproduce import command
from paper.experiments.store import Record
from paper.pages.html_page import page_data
from paper.statistics.cells import main_setups, setups
from paper.tables.result_tables import other_rows
from paper.tests.experiments.helpers import agents_of, invented, tiny


def with_physics(record: Record, **versions: str) -> Record:
    return replace(record, identity={**record.identity, "physics": versions})


def test_cells_hold_agents_that_differ_by_seed_only() -> None:
    records = [invented(agent) for agent in agents_of("td3-table", "eta-sweep", tasks=("Hopper",))]
    (setup,) = setups(records)
    assert setup.deviations == {} and setup.agents == len(records) == 35 + 25
    assert [cell.method for cell in setup.cells if cell.published] == [
        "plain", "caps", "grad-caps", "asap", "l2c2", "pave", "damper",
    ]  # fmt: skip
    cell = setup.find("td3", "Hopper", "damper", eta=0.4)
    assert (
        cell is not None
        and cell.settings["eta"] == 0.4
        and len(cell.seeds) == 5
        and not cell.published
    )
    assert setup.find("td3", "Hopper", "damper", eta=1.0) is setup.find("td3", "Hopper", "damper")
    assert setup.find("sac", "Hopper", "damper") is None


def test_other_budgets_protocols_and_numerics_never_share_a_table() -> None:
    paper = [invented(agent) for agent in agents_of("pegrad")]
    custom = [invented(agent) for agent in expand_request(tiny())]
    other = [invented(agent) for agent in agents_of("pegrad", protocol="authors", seeds=2)]
    quick = [invented(agent) for agent in agents_of("pegrad", settings={"tf32": True}, seeds=1)]
    found = setups([*custom, *quick, *other, *paper])
    assert [setup.agents for setup in found] == [30, 6, 12, 2]
    assert (
        "steps 300" in found[-1].title
        and "tf32" in found[1].title
        and found[2].protocol == "authors"
    )
    assert len({setup.key for setup in found}) == 4


def test_the_protocol_that_the_paper_follows_is_first_however_few_its_agents() -> None:
    few = [invented(agent) for agent in agents_of("pegrad", seeds=1)]
    many = [invented(agent) for agent in agents_of("pegrad", protocol="authors", seeds=5)]
    assert [setup.protocol for setup in main_setups(setups([*many, *few]))] == ["pave", "authors"]


def test_physics_of_two_versions_never_share_a_table() -> None:
    agents = agents_of("pegrad", tasks=("Hopper", "Walker", "LunarLander"), methods=("damper",))
    new = [with_physics(invented(agent), gymnasium="1.4", mujoco="3.5") for agent in agents[5:]]
    lunar = [with_physics(invented(agent), gymnasium="1.4", box2d="2.3") for agent in agents[:5]]
    old = [with_physics(invented(agent), gymnasium="1.4", mujoco="3.3") for agent in agents[5:7]]
    found = setups([*old, *lunar, *new])
    assert [setup.agents for setup in found] == [15, 2]
    assert found[0].physics == {"gymnasium": "1.4", "mujoco": "3.5", "box2d": "2.3"}
    assert found[1].physics["mujoco"] == "3.3"


def test_seeds_of_the_same_versions_share_a_table_however_frequent_each_version_is() -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("plain", "caps"))
    versions = [("1.3", "3.5")] * 2 + [("1.3", "3.6")] * 2 + [("1.4", "3.7")] * 3
    records = [
        with_physics(invented(agent), gymnasium=one, mujoco=other)
        for agent, (one, other) in zip(agents, versions, strict=False)
    ]
    assert [setup.agents for setup in setups(records)] == [3, 2, 2]
    assert [setup.physics for setup in setups(records)] == [
        setup.physics for setup in setups(records[::-1])
    ]


def test_of_cells_that_differ_in_the_users_code_alone_none_is_taken_for_the_other() -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("plain",))
    edited = [
        replace(r := invented(agent, level), identity={**r.identity, "custom_code": {"env": code}})
        for code, level in (("a", 100.0), ("b", 900.0))
        for agent in agents
    ]
    for records in (edited, edited[::-1]):
        (setup,) = setups(records)
        assert (
            len(setup.cells) == 2
            and setup.find("td3", "Hopper", "plain") is None
            and setup.published == []
        )
        assert [cell["published"] for cell in page_data([setup], [])["setups"][0]["cells"]] == [
            False,
            False,
        ]
        assert sorted(row[5].split("<")[0] for row in other_rows(setup)) == ["100.5", "900.5"]
    (setup,) = setups(edited[:5])
    assert setup.find("td3", "Hopper", "plain") is setup.cells[0] is setup.published[0]


def test_a_task_of_its_own_and_few_seeds_are_cells_too() -> None:
    agents = agents_of("td3-table", tasks=("Swimmer-v5",), methods=("damper",), steps=5000, seeds=1)
    (setup,) = setups([invented(agents[0], 3.0, episodes=1)])
    (cell,) = setup.cells
    summary = cell.summary("return")
    assert (
        summary is not None
        and summary.mean == 3.0
        and summary.interval is None
        and summary.pooled is None
    )
    assert setup.deviations == {"steps": 5000}


def test_a_seed_without_a_value_is_left_out_of_the_mean_and_named() -> None:
    records = [
        invented(agent, float(i))
        for i, agent in enumerate(agents_of("pegrad", tasks=("Hopper",), seeds=3))
    ]
    broken = replace(records[0], episodes={**records[0].episodes, "return": [None] * 10}, frozen=77)
    (setup,) = setups([broken, *records[1:]])
    cell = setup.cells[1] if setup.cells[0].method == "pegrad" else setup.cells[0]
    assert cell.frozen == [178132] and cell.seeds[0] == 178132
    assert np.allclose(cell.means("return"), [1.45, 2.45])


def test_no_records_are_no_setups() -> None:
    assert setups([]) == []


def test_another_unit_of_actions_is_another_cell_of_the_same_setup() -> None:
    request = Request(("pegrad",), ("Pendulum",), ("pegrad",), seeds=2)
    other = replace(request, settings={"units": "environment"})
    (setup,) = setups(
        [invented(agent) for one in (request, other) for agent in expand_request(one)]
    )
    told = {cell.label: (cell.published, len(cell.seeds)) for cell in setup.cells}
    assert told == {"PEGrad": (True, 2), "PEGrad units=environment": (False, 2)}
    assert "--units environment" in command(other)
