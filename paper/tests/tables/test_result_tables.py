from __future__ import annotations

from dataclasses import replace

import pytest

from damper.intervals import bracketed, signed
from damper.tables import markdown_table
from paper.experiments.printed import Printed
from paper.experiments.store import Record
from paper.experiments.timings import Timing
from paper.pages.build import _section
from paper.statistics.cells import Setup, setups
from paper.statistics.estimates import summarise
from paper.statistics.numbers import number
from paper.tables.markup import latex_results, markdown_results
from paper.tables.result_tables import (
    Entry,
    Table,
    ablation_tables,
    aggregates,
    best_of,
    code_versions,
    cost_tables,
    eta_rows,
    main_tables,
    other_rows,
    speed_rows,
    sweep_rows,
)
from paper.tests.experiments.helpers import agents_of, invented


def world() -> Setup:
    level = {
        "plain": (100.0, 2.0),
        "damper": (120.0, 0.5),
        "pegrad": (90.0, 1.0),
        "scalarization": (110.0, 0.6),
    }
    records = []
    for agent in agents_of(
        "td3-table", "pegrad", "scalarization-sweep", "eta-sweep", tasks=("Hopper",)
    ):
        if agent.identity["method"] in level:
            re, sm = level[agent.identity["method"]]
            extra = abs(agent.identity["method_settings"].get("weight", 0.3) - 0.3)
            records.append(invented(agent, re, sm + extra))
    (setup,) = setups(records)
    return setup


def test_the_main_table_is_the_papers_with_ours_beside_it() -> None:
    first, second, third, *_ = main_tables(world())
    names = [table.name for table in (first, second, third)]
    assert names == ["td3-mean_change", "td3-return", "td3-sm"]
    assert [name for name, _ in first.rows] == ["TD3", "DAMPER", "DAMPER, η = 1 everywhere"]
    (plain,), (damper,), (one,) = (entries for _, entries in third.rows)
    assert one == damper, "the paper's η is 1 on Hopper"
    assert (
        plain.ours is not None and plain.ours.mean == 2.0 and plain.paper == Printed(3.061, 0.421)
    )
    assert damper.best and not plain.best


def test_ablations_have_their_own_table() -> None:
    returns, smoothness = ablation_tables(world())
    assert [name for name, _ in returns.rows] == ["DAMPER", "PEGrad"]
    assert smoothness.rows[1][1][0].paper == Printed(0.636, 0.046)


def test_methods_of_ones_own_and_other_settings_have_a_table_too() -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("damper",), seeds=2)

    def changed(level: float, **identity: object) -> list[Record]:
        records = (invented(agent, level) for agent in agents)
        return [replace(record, identity={**record.identity, **identity}) for record in records]

    mine = {"method": "mine", "method_settings": {"weight": 0.5}}
    records = changed(7.0, **mine, custom_code={"actor": "before"})
    records += changed(9.0, **mine, custom_code={"actor": "after"})
    records += changed(
        5.0, method_settings={**agents[0].identity["method_settings"], "eta": 0.35}
    ) + changed(1.0)
    (setup,) = setups(records)
    rows = other_rows(setup)
    assert [(method, seeds, total) for _, method, _, seeds, _, total, *_ in rows] == [
        ("DAMPER", "2", "5.45<br><small>5.45 to 5.45</small>"),
        ("mine", "2", "7.45<br><small>7.45 to 7.45</small>"),
        ("mine", "2", "9.45<br><small>9.45 to 9.45</small>"),
    ]
    codes = [row[2].removeprefix("weight=0.5, code ") for row in rows[1:]]
    assert (
        "eta=0.35" in rows[0][2] and len(set(codes)) == 2 and all(len(code) == 8 for code in codes)
    )
    assert "| Hopper, TD3 | mine | weight=0.5, code " in _section(setup, [setup], "")


@pytest.mark.parametrize(("task", "backbone"), [("Pendulum", "td3"), ("Hopper", "sac")])
def test_a_value_of_a_sweep_is_listed_where_no_table_of_sweeps_has_it(
    task: str, backbone: str
) -> None:
    agents = agents_of(f"{backbone}-table", tasks=(task,), methods=("damper",), seeds=2)
    records = [invented(agent) for agent in agents]
    for eta in (0.4, 1.0):
        settings = {**agents[0].identity["method_settings"], "eta": eta}
        records += [
            replace(one, identity={**one.identity, "method_settings": settings})
            for one in records[:2]
        ]
    (setup,) = setups({one.digest: one for one in records}.values())
    (row,) = other_rows(setup)
    assert "eta=0.4" in row[2]


def test_ablations_on_other_tasks_and_backbones_are_not_left_out() -> None:
    agents = [
        *agents_of("td3-table", tasks=("Hopper", "Pendulum"), methods=("damper",)),
        *agents_of("projection-ablation", tasks=("Pendulum",), methods=("unconditional-sum",)),
        *agents_of("pegrad", tasks=("Pendulum",), methods=("pegrad",), backbones=("sac",)),
    ]
    (setup,) = setups([invented(agent) for agent in agents])
    tables = {table.name: table for table in ablation_tables(setup)}
    assert tables.keys() == {f"{b}-ablation-{m}" for b in ("td3", "sac") for m in ("return", "sm")}
    assert tables["td3-ablation-return"].columns == ["Pendulum"], "Hopper has nothing to compare"
    assert [name for name, _ in tables["td3-ablation-return"].rows] == [
        "DAMPER",
        "Unconditional sum",
    ]
    assert [name for name, _ in tables["sac-ablation-return"].rows] == ["PEGrad"]


def test_the_sweeps_name_their_best() -> None:
    (row,) = sweep_rows(world())
    assert row[:2] == ["Hopper", "0.3 (20 of 20)"] and row[6:] == ["0.8", "3338", "0.714"]
    assert eta_rows(world()) == [["Hopper", *["0.500"] * 6]]


def test_one_constant_action_is_not_the_smoothest_weight() -> None:
    records = []
    for agent in agents_of("scalarization-sweep", tasks=("Hopper",), methods=("scalarization",)):
        weight = agent.identity["method_settings"]["weight"]
        record = invented(agent, sm=0.0 if weight == 0.5 else 1.0 + weight)
        held = (
            {"mean_change": [0.0] * 10}
            if weight == 0.5 or (weight == 0.05 and agent.rank == 0)
            else {}
        )
        records.append(replace(record, episodes={**record.episodes, **held}))
    ((_, weight, _, sm, *_),) = sweep_rows(setups(records)[0])
    assert (weight, sm) == ("0.05 (20 of 20)", "1.050, constant action, 1 of 5")


def test_one_eta_has_a_row_and_the_papers_numbers_only_where_they_are_its_own() -> None:
    agents = agents_of(
        "td3-table", "one-eta", tasks=("LunarLander", "Ant", "Hopper"), methods=("plain", "damper")
    )
    level = {0.0: 0.3, 0.8: 0.2, 1.0: 0.1}
    (setup,) = setups(
        [invented(a, sm=level.get(a.identity["method_settings"].get("eta"), 1.0)) for a in agents]
    )
    table = next(table for table in main_tables(setup) if table.name == "td3-sm")
    rows = dict(table.rows)
    assert table.columns == ["LunarLander", "Ant", "Hopper"]
    assert [e.ours and e.ours.mean for e in rows["DAMPER"]] == pytest.approx([0.2, 0.3, 0.1])
    one = rows["DAMPER, η = 1 everywhere"]
    assert [e.ours and e.ours.mean for e in one] == pytest.approx([0.1, 0.1, 0.1])
    assert [e.paper for e in one] == [None, None, Printed(0.24, 0.035)]
    assert [e.best for e in one] == [True] * 3 and [e.best for e in rows["DAMPER"]] == [
        False,
        False,
        True,
    ]


def test_what_prints_alike_is_a_tie() -> None:
    level = {"plain": -3.344, "caps": -3.336, "damper": -3.63}
    agents = agents_of("td3-table", tasks=("Reacher",), methods=tuple(level))
    (setup,) = setups([invented(agent, level[agent.identity["method"]] - 0.45) for agent in agents])
    assert {cell.method for cell in best_of(setup.cells, "return")} == {"plain", "caps"}
    assert best_of(setup.cells[:1], "return") == [] and best_of(setup.cells, "length") == []


def test_too_few_seeds_have_no_best_and_no_claims() -> None:
    level = {"plain": 1.0, "caps": 2.0, "damper": 3.0}
    agents = agents_of("td3-table", tasks=("Reacher",), methods=tuple(level))
    records = [invented(agent, level[agent.identity["method"]]) for agent in agents]
    few = [record for record in records if record.identity["method"] != "damper"] + records[-4:]
    assert [cell.method for cell in best_of(setups(few)[0].cells, "return")] == ["caps"]
    alone = [record for i, record in enumerate(records) if i % 5 == 0]
    (setup,) = setups(alone)
    assert best_of(setup.cells, "return") == []
    section = _section(setup, [setup], "")
    assert "| claim |" not in section and "not enough data" not in section
    assert "No claim has a comparison with 5 seeds on both sides." in section
    (whole,) = setups(records)
    assert "| claim |" in _section(whole, [whole], "")
    (other,) = setups([replace(record, deviations={"steps": 5}) for record in records])
    assert "claim" not in _section(other, [whole, other], ""), "of main setups only"


def test_a_table_names_its_code_and_flags_what_is_not_one_commit() -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("plain",))
    records = [replace(invented(agent), commit="a" * 40, sources=[]) for agent in agents]
    assert code_versions(setups(records)[0].cells) == "commit aaaaaaaaaa (5 agents)"
    records[0] = replace(records[0], commit="b" * 40)
    assert code_versions(setups(records)[0].cells).endswith("(1 agent). ⚠ a mixture of 2 versions")
    unclean = [replace(record, commit=f"{record.commit}+changes") for record in records]
    assert code_versions(setups(unclean)[0].cells).endswith(
        "⚠ a mixture of 2 versions, 5 agents of an uncommitted tree"
    )
    same = [replace(record, sources=["c0de"]) for record in records]
    assert code_versions(setups(same)[0].cells) == "source c0de (5 agents)", (
        "two commits of one source are one version"
    )
    resumed = [replace(record, sources=["c0de", "f00d"]) for record in records]
    assert "5 agents that one version began and another finished" in code_versions(
        setups(resumed)[0].cells
    )
    (setup,) = setups(records)
    said = _section(setup, [setup], "")
    words = (
        "<small>Code of the TD3 agents: commit aaaaaaaaaa (4 agents), commit bbbbbbbbbb (1 "
        "agent). ⚠ a mixture"
    )
    assert words in said and said.count("<small>Code") == 1, "once for all of a backbone's tables"


def test_aggregates_count_seeds_not_episodes() -> None:
    found = {(a.measure, a.method): a for a in aggregates(world())}
    better = found["sm", "plain"]
    assert better.improvement == pytest.approx((1.0, 0.6427, 1.0), abs=1e-4) and better.tasks == 1
    assert found["sm", "damper"].change == (-0.75, -0.75, -0.75)
    assert found["return", "damper"].improvement is None and found["return", "plain"].change is None


def test_one_seed_is_no_aggregate() -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("plain", "damper"), seeds=1)
    assert aggregates(setups([invented(agent) for agent in agents])[0]) == []


def test_times_stand_beside_the_papers_with_their_spread() -> None:
    timing = Timing("td3", "plain", "Hopper", 0.5, 1000, 1, 256, {}, {}, {"cpu": "x"}, "c" * 40, "")
    (table,) = cost_tables([timing, replace(timing, method="damper", milliseconds=0.6)])
    assert table.caption == "x, eager, float32; Hopper, batch 256; code commit cccccccccc"
    assert table.rows[0][:5] == ["Unregularized", "0.5", "1.00", "4.54", "1.00"]
    assert table.rows[-1][:5] == ["DAMPER", "0.6", "1.20", "6.57", "1.45"]
    assert table.rows[1][1:3] == ["", ""]
    rounds = replace(timing, rounds=[1.0, 1.0, 2.0])
    (table,) = cost_tables(
        [rounds, replace(rounds, method="damper", milliseconds=1.5, rounds=[1.1, 1.2, 2.6])]
    )
    assert table.rows[-1][2] == "1.20 [1.11, 1.29]"
    assert len(cost_tables([timing, replace(timing, hardware={"gpu": "y"})])) == 2, (
        "machines are never mixed"
    )
    assert ["Hopper", "TD3", "DAMPER", "5", "test", "100"] in speed_rows(world())


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert [number(v, "return") for v in (-0.001, 0.001, -0.01)] == ["0.00", "0.00", "−0.01"]
    assert number(-0.3, "return", 3078.0) == "0" and number(-0.00001, "mean_change") == "0.0000"
    assert [signed(v) for v in (-0.0003, 0.0003, 0.0, -0.0006, 0.0006)] == ["0.0 %"] * 3 + [
        "−0.1 %",
        "+0.1 %",
    ]
    assert bracketed(-0.0003, 0.2) == "[0.0, +20]"


def test_numbers_are_written_like_the_papers() -> None:
    assert [number(v, "return") for v in (-154.6, 3078.2, -3.634)] == ["−154.6", "3078", "−3.63"]
    assert number(599.2, "return", 3078.0) == "599" and number(0.2401, "sm") == "0.240"


def entries() -> list[Entry]:
    five, three = summarise([[1.0, 2.0]] * 5), summarise([[1.0, 2.0]] * 3)
    return [
        Entry(five, Printed(1.2, 0.3), best=True),
        Entry(three, None, frozen=True),
        Entry(None, None),
    ]


def test_markdown_says_where_a_cell_is_short_of_seeds() -> None:
    text = markdown_results(Table("t", "A & B", "sm", ["x", "y", "z"], [("DAMPER", entries())]))
    seeds = "<small>median 1.500 of 1.500, 1.500, 1.500"
    assert (
        f"**1.500** (0.000; 0.527)<br>{seeds}, 1.500, 1.500</small><br><small>paper 1.200 "
        "(0.300)</small>" in text
    )
    assert f"| 1.500 (0.000; 0.548) n=3 †<br>{seeds}</small> |  |" in text


def test_latex_is_escaped_and_whole() -> None:
    text = latex_results(Table("t", "A & B", "sm", ["x_1", "y", "z"], [("100 %", entries())]))
    assert r"\textbf{1.500}" in text and r"x\_1" in text and r"100 \%" in text and r"A \& B" in text
    assert text.count(r"\begin{") == text.count(r"\end{") and " & -- " in text


def test_a_bar_within_a_cell_does_not_end_it() -> None:
    lines = markdown_table(["method", "mean|Δa|"], [["plain", "0.1\n(0; 0)"]]).splitlines()
    assert lines == ["| method | mean\\|Δa\\| |", "| --- | ---: |", "| plain | 0.1 (0; 0) |"]


def test_numbers_stand_on_the_right_and_words_on_the_left() -> None:
    rows = [
        ["1 task", "0.1 (0; 0)", "−3 → **2**", "fails", "–"],
        ["other", "**12**", "the same", "leans, 2 of 3", "5"],
    ]
    rows += [["third", "<small>paper 4</small>", "+7", "", ""]]
    rule = markdown_table(["a", "b", "c", "d", "e"], rows).splitlines()[1]
    assert rule == "| --- | ---: | ---: | --- | ---: |"
