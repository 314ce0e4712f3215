from __future__ import annotations

from dataclasses import replace

from damper.experiments.paper import Printed
from damper.experiments.timings import Timing
from damper.report.cells import Setup, setups
from damper.report.result_tables import (
    Entry,
    Table,
    ablation_tables,
    aggregates,
    cost_rows,
    eta_rows,
    main_tables,
    number,
    speed_rows,
    sweep_rows,
)
from damper.report.statistics import summarise
from damper.report.tables import latex_results, markdown_results, markdown_table
from tests.experiments.helpers import agents_of, invented


def world() -> Setup:
    level = {"plain": (100.0, 2.0), "damper": (120.0, 0.5), "pegrad": (90.0, 1.0), "scalarization": (110.0, 0.6)}
    records = []
    for agent in agents_of("td3-table", "pegrad", "scalarization-sweep", "eta-sweep", tasks=("Hopper",)):
        if agent.identity["method"] in level:
            re, sm = level[agent.identity["method"]]
            extra = abs(agent.identity["method_settings"].get("weight", 0.3) - 0.3)
            records.append(invented(agent, re, sm + extra))
    (setup,) = setups(records)
    return setup


def test_the_main_table_is_the_papers_with_ours_beside_it() -> None:
    first, second, *_ = main_tables(world())
    assert (first.name, second.name) == ("td3-return", "td3-smoothness")
    assert [name for name, _ in first.rows] == ["TD3", "DAMPER"]
    (plain,), (damper,) = (entries for _, entries in second.rows)
    assert plain.ours is not None and plain.ours.mean == 2.0 and plain.paper == Printed(3.061, 0.421)
    assert damper.best and not plain.best


def test_ablations_have_their_own_table() -> None:
    returns, smoothness = ablation_tables(world())
    assert [name for name, _ in returns.rows] == ["DAMPER", "PEGrad"]
    assert smoothness.rows[1][1][0].paper == Printed(0.636, 0.046)


def test_ablations_on_other_tasks_and_backbones_are_not_left_out() -> None:
    agents = [
        *agents_of("td3-table", tasks=("Hopper", "Pendulum"), methods=("damper",)),
        *agents_of("projection-ablation", tasks=("Pendulum",), methods=("unconditional-sum",)),
        *agents_of("pegrad", tasks=("Pendulum",), methods=("pegrad",), backbones=("sac",)),
    ]
    (setup,) = setups([invented(agent) for agent in agents])
    tables = {table.name: table for table in ablation_tables(setup)}
    assert tables.keys() == {f"{b}-ablation-{m}" for b in ("td3", "sac") for m in ("return", "smoothness")}
    assert tables["td3-ablation-return"].columns == ["Pendulum"], "Hopper has nothing to compare"
    assert [name for name, _ in tables["td3-ablation-return"].rows] == ["DAMPER", "Unconditional sum"]
    assert [name for name, _ in tables["sac-ablation-return"].rows] == ["PEGrad"]


def test_the_sweeps_name_their_best() -> None:
    (row,) = sweep_rows(world())
    assert row[:2] == ["Hopper", "0.3 (20 of 20)"] and row[6:] == ["0.8", "3338", "0.714"]
    assert eta_rows(world()) == [["Hopper", *["0.500"] * 6]]


def test_aggregates_count_seeds_not_episodes() -> None:
    found = {(a.measure, a.method): a for a in aggregates(world())}
    better = found["smoothness", "plain"]
    assert better.improvement == (1.0, 1.0, 1.0) and better.tasks == 1
    assert found["smoothness", "damper"].change == (-0.75, -0.75, -0.75)
    assert found["return", "damper"].improvement == (0.5, 0.5, 0.5)


def test_times_stand_beside_the_papers() -> None:
    timing = Timing("td3", "plain", "Hopper", 0.5, 1000, 1, 256, {}, {}, {"cpu": "x"}, None, "")
    rows = cost_rows([timing, replace(timing, method="damper", milliseconds=0.6)])
    assert rows[0][:5] == ["Unregularized", "0.5", "1.00", "4.54", "1.00"]
    assert rows[-1][:5] == ["DAMPER", "0.6", "1.20", "6.57", "1.45"]
    assert rows[1][1:3] == ["", ""]
    assert ["Hopper", "TD3", "DAMPER", "5", "test", "100"] in speed_rows(world())


def test_numbers_are_written_like_the_papers() -> None:
    assert [number(v, "return") for v in (-154.6, 3078.2, -3.634)] == ["−154.6", "3078", "−3.63"]
    assert number(599.2, "return", 3078.0) == "599" and number(0.2401, "smoothness") == "0.240"


def entries() -> list[Entry]:
    five, three = summarise([[1.0, 2.0]] * 5), summarise([[1.0, 2.0]] * 3)
    return [Entry(five, Printed(1.2, 0.3), best=True), Entry(three, None, frozen=True), Entry(None, None)]


def test_markdown_says_where_a_cell_is_short_of_seeds() -> None:
    text = markdown_results(Table("t", "A & B", "smoothness", ["x", "y", "z"], [("DAMPER", entries())]))
    assert "**1.500** (0.000; 0.527)<br><small>paper 1.200 (0.300)</small>" in text
    assert "| 1.500 (0.000; 0.548) n=3 † |  |" in text


def test_latex_is_escaped_and_whole() -> None:
    text = latex_results(Table("t", "A & B", "smoothness", ["x_1", "y", "z"], [("100 %", entries())]))
    assert r"\textbf{1.500}" in text and r"x\_1" in text and r"100 \%" in text and r"A \& B" in text
    assert text.count(r"\begin{") == text.count(r"\end{") and " & -- " in text


def test_a_bar_within_a_cell_does_not_end_it() -> None:
    lines = markdown_table(["method", "mean|Δa|"], [["plain", "0.1\n(0; 0)"]]).splitlines()
    assert lines == ["| method | mean\\|Δa\\| |", "| --- | ---: |", "| plain | 0.1 (0; 0) |"]
