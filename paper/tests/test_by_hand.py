"""Every place of the tables and of the page, against numbers formed here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from paper.claims.verdicts import verdicts
from paper.experiments.catalogue import ETAS
from paper.pages.html_page import page, page_data
from paper.statistics.cells import MEASURES, Setup, main_setups, setups
from paper.tables.claims import decided_table
from paper.tables.details import (
    distances_table,
    late_return,
    precision_gaps,
    protocols_table,
    sweep_table,
    unit_gaps,
)
from paper.tables.markup import latex_results, markdown_results
from paper.tables.pairs import constant_table, ends_of_sweep_table, pairs_table, readme_table
from paper.tables.result_tables import Table, aggregates, eta_rows, main_tables
from paper.tests.browser import document, needs_browser
from paper.tests.experiments.helpers import agents_of, invented

TASKS = ("Hopper", "Walker")
ROWS = {"plain": "TD3", "caps": "CAPS", "damper": "DAMPER"}
CELLS = [(method, task) for method in ROWS for task in TASKS]
PLACES = [(task, measure) for task in TASKS for measure in ("return", "sm")]  # the page's columns
Scores = Callable[[str, str, str], np.ndarray]


def different(method: str, task: str, measure: str) -> np.ndarray:
    """Scores ``[5 seeds, 10 episodes]``, unlike those of any other cell and measure."""
    own = np.random.default_rng([*map(ord, method + task + measure)])
    scale = 300.0 if measure in ("return", "length") else 1.0
    return scale * (1.0 + 0.3 * own.standard_normal((5, 1)) + 0.1 * own.standard_normal((5, 10)))


def world(scores: Scores) -> Setup:
    seeds: dict[tuple[str, str], int] = {}
    records = []
    for agent in agents_of("td3-table", tasks=TASKS, methods=tuple(ROWS)):
        cell = agent.identity["method"], agent.identity["task"]
        seed = seeds[cell] = seeds.get(cell, -1) + 1
        record = invented(agent)
        own = {measure: scores(*cell, measure)[seed].tolist() for measure in MEASURES}
        records.append(replace(record, episodes={**record.episodes, **own}))
    (setup,) = setups(records)
    return setup


@pytest.fixture(scope="module")
def setup() -> Setup:
    return world(different)


def by_hand(scores: np.ndarray) -> tuple[float, float, float]:
    """Mean, deviation of the seeds' means, deviation of all episodes."""
    means = [sum(row) / len(row) for row in scores]
    return float(np.mean(means)), float(np.std(means, ddof=1)), float(np.std(scores, ddof=1))


def table_of(setup: Setup, measure: str) -> Table:
    return next(table for table in main_tables(setup) if table.name == f"td3-{measure}")


@pytest.mark.parametrize("measure", MEASURES)
def test_tables(setup: Setup, measure: str) -> None:
    table = table_of(setup, measure)
    assert table.columns == list(TASKS)
    for method, task in CELLS:
        entry = dict(table.rows)[ROWS[method]][TASKS.index(task)]
        found = entry.ours
        assert found is not None
        assert (found.mean, found.over_seeds, found.pooled) == pytest.approx(
            by_hand(different(method, task, measure))
        )
        rivals = [by_hand(different(other, task, measure))[0] for other in ROWS]
        best = max(rivals) if measure == "return" else min(rivals)
        assert entry.best == (measure != "length" and found.mean == pytest.approx(best))


def test_what_is_printed(setup: Setup) -> None:
    table = table_of(setup, "sm")
    pages = {
        "markdown": [
            line.strip("| ").split(" | ")
            for line in markdown_results(table).splitlines()
            if "|" in line
        ],
        "latex": [line.split(" & ") for line in latex_results(table).splitlines() if " & " in line],
    }
    for rows in pages.values():
        assert rows[0][1:] == [*TASKS[:-1], rows[0][-1]] and rows[0][-1].startswith(TASKS[-1])
        for method, task in CELLS:
            (cells,) = (row[1:] for row in rows if row[0] == ROWS[method])
            mean, over_seeds, pooled = by_hand(different(method, task, "sm"))
            first = cells[TASKS.index(task)]
            assert f"{mean:.3f}" in first and f"({over_seeds:.3f}; {pooled:.3f})" in first


def rows_of(table: str) -> list[list[str]]:
    """The cells of a Markdown table's rows, its header first."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return [lines[0], *lines[2:]]


def test_the_readme_s_table(setup: Setup) -> None:
    head, *rows = rows_of(readme_table([setup]))
    assert len(head) == 7 and all(
        len(re.findall(r"\d+", cell)) <= 6 for row in rows for cell in row
    )
    for task, row in zip(TASKS, rows, strict=True):
        assert row[0] == f"{task}, TD3"
        for place, measure in ((1, "mean_change"), (4, "return")):
            plain, ours = (
                by_hand(different(method, task, measure))[0] for method in ("plain", "damper")
            )
            shown = [float(cell.replace("−", "-")) for cell in row[place : place + 2]]
            assert shown == pytest.approx([plain, ours], rel=1e-3)
            words = re.findall(r"[+−]?[\d.]+", row[place + 2])
            value, low, high = (float(word.replace("−", "-")) for word in words)
            assert value == pytest.approx(100 * (ours - plain) / abs(plain), abs=0.6)
            assert low < value < high
            assert row[place + 2].startswith("**") == (low > 0 or high < 0), "bold is decided"


def test_the_numbers_of_the_pairs(setup: Setup) -> None:
    table = pairs_table(setup)
    assert "\u00a0→\u00a0" in table, "a number and its change are not torn apart"
    table = table.replace("\u00a0", " ")
    head, _, *rows = (line.strip("| ").split(" | ") for line in table.splitlines())
    (column,) = (i for i, name in enumerate(head) if name.startswith("return"))
    for task, row in zip(TASKS, rows, strict=True):
        assert row[:2] == [f"{task}, TD3", "1"]
        plain, ours = row[column].split(" → ")[:2]
        assert plain.startswith(f"{by_hand(different('plain', task, 'return'))[0]:.1f}")
        assert ours.startswith(f"{by_hand(different('damper', task, 'return'))[0]:.1f}")
        theirs = {"Hopper": "3604 → 3078", "Walker": "4596 → 4275"}[task]
        assert row[column].endswith(f"<br><small>paper {theirs}</small>")
    main = {
        line.split(" | ")[0]: line.split(" | ")
        for line in markdown_results(table_of(setup, "return")).splitlines()
    }
    for (method, task), label in zip(CELLS, np.repeat([*ROWS.values()], len(TASKS)), strict=True):
        median = np.median(different(method, task, "return").mean(1))
        cell = main[f"| {label}"][1 + TASKS.index(task)]
        assert f"<small>median {median:.1f} of " in cell, (
            "one seed can carry a mean: the main table has the medians"
        )


def test_the_numbers_with_one_eta_have_a_row_of_their_own_without_the_paper_s() -> None:
    agents = agents_of(
        "td3-table",
        "one-eta",
        tasks=("LunarLander",),
        methods=("plain", "damper"),
        backbones=("td3",),
    )
    (both,) = setups([invented(agent) for agent in agents])
    rows = [line for line in pairs_table(both).splitlines() if line.startswith("| Lunar")]
    assert [row.split(" | ")[1] for row in rows] == ["0.8", "1"]
    assert ["paper" in row for row in rows] == [True, False]


def test_the_page(setup: Setup) -> None:
    cells: dict[Any, Any] = {
        (c["method"], c["task"]): c for c in page_data([setup], [])["setups"][0]["cells"]
    }
    for method, task in CELLS:
        for measure in MEASURES:
            scores = different(method, task, measure)
            cell = cells[method, task]
            mean, over_seeds, pooled, low, high, median = cell["values"][measure]
            assert (mean, over_seeds, pooled) == pytest.approx(by_hand(scores))
            assert low < mean < high and median == pytest.approx(np.median(scores.mean(1)))
            assert [a["means"][measure] for a in cell["agents"]] == pytest.approx(
                scores.mean(1).tolist(), rel=1e-4
            )
            assert cell["seeds"] == [agent["seed"] for agent in cell["agents"]]


@needs_browser
@pytest.mark.serial
@pytest.mark.parametrize(("spread", "place"), [("seeds", 1), ("pooled", 2)])
def test_what_the_page_shows(setup: Setup, tmp_path: Path, spread: str, place: int) -> None:
    (tmp_path / "page.html").write_text(page(page_data([setup], [])))
    shown = document(tmp_path / "page.html", tmp_path, f"#spread={spread}&pair=return,sm")
    rows = dict(re.findall(r"</span>([\w-]+)</td>(<td data-has.*?)</tr>", shown))
    for method, label in ROWS.items():
        for (task, measure), cell in zip(
            PLACES, re.findall(r"<td data-has.*?</td>", rows[label]), strict=True
        ):
            numbers, digits = (
                by_hand(different(method, task, measure)),
                1 if measure == "return" else 3,
            )
            assert (
                f"<b>{numbers[0]:.{digits}f}</b>" in cell
                and f"({numbers[place]:.{digits}f})" in cell
            )


def test_intervals_are_of_seeds_not_of_episodes() -> None:
    """Episodes from −500 to 500, but the same ones for every seed: nothing is left to doubt."""
    wide = np.tile(np.linspace(-500.0, 500.0, 10) + 20.0, (5, 1))
    same = world(lambda method, task, measure: wide)
    for cell in same.cells:
        found = cell.summary("return")
        assert found is not None and found.interval == pytest.approx((20.0, 20.0))
        assert found.over_seeds == pytest.approx(0.0) and found.pooled == pytest.approx(
            by_hand(wide)[2]
        )
    values = page_data([same], [])["setups"][0]["cells"][0]["values"]["return"]
    assert values[3:5] == pytest.approx([20.0, 20.0])


def test_negative_returns() -> None:
    """Below zero, with one seed far from the others.

    Higher is still better, and a change up is positive.
    """
    returns = {
        "plain": [-200.0, -190.0, -210.0, -180.0, -1220.0],
        "damper": [-100.0, -90.0, -110.0, -105.0, -195.0],
    }
    episodes = np.linspace(-9.0, 9.0, 10)
    negative = world(
        lambda method, task, _: np.array(returns.get(method, returns["plain"]))[:, None] + episodes
    )
    entries = {name: row[0] for name, row in table_of(negative, "return").rows}
    assert entries["DAMPER"].best and not entries["TD3"].best
    for name, mean in (("TD3", -400.0), ("DAMPER", -120.0)):
        found = entries[name].ours
        assert (
            found is not None and found.mean == pytest.approx(mean) and found.interval is not None
        )
        assert found.interval.low < mean < found.interval.high
    told = {a.method: a for a in aggregates(negative) if a.measure == "return"}
    assert told["plain"].improvement is not None and told["damper"].change is not None
    # Of 25 pairs of seeds, DAMPER's −195 loses to −190 and −180.
    assert told["plain"].improvement[0] == pytest.approx(23 / 25)
    # Changes (x + 400)/400 of both tasks' five seeds, 0.75, 0.775, 0.725, 0.7375, 0.5125 twice: the
    # middle six.
    assert told["damper"].change[0] == pytest.approx((0.725 + 0.7375 + 0.75) / 3)
    text = markdown_results(table_of(negative, "return"))
    assert "−400.0 (" in text and "**−120.0** (" in text


def test_every_eta_has_its_own_column() -> None:
    agents = agents_of("eta-sweep", tasks=TASKS)
    level = {"Hopper": 1.0, "Walker": 2.0}
    records = [
        invented(
            agent,
            sm=level[agent.identity["task"]] - agent.identity["method_settings"]["eta"] ** 2 / 2,
        )
        for agent in agents
    ]
    (swept,) = setups(records)
    expected = [[task, *(f"{level[task] - eta**2 / 2:.3f}" for eta in ETAS)] for task in TASKS]
    assert eta_rows(swept) == expected and len({*expected[0][1:]}) == 6


def test_what_eta_did_stands_once_a_sweep_is_complete() -> None:
    records = [
        invented(agent, sm=1.0 - agent.identity["method_settings"]["eta"] / 2)
        for agent in agents_of("eta-sweep", tasks=TASKS)
    ]
    main = setups(records)
    (row,) = (row for row in rows_of(ends_of_sweep_table(main)) if row[0] == "`pave` Hopper, TD3")
    assert row[3] == "−50 % [−50, −50]"
    every = sweep_table(main)
    (row,) = (row for row in rows_of(every) if row[0] == "`pave` Hopper, TD3, sm")
    assert [cell.split("<br>")[0] for cell in row[1:]] == [f"{1 - eta / 2:.3f}" for eta in ETAS]
    held = [replace(r, episodes={**r.episodes, "mean_change": [0.0] * 10}) for r in records[:2]]
    note = "<small>constant action, 2 of 5</small>"
    assert note not in every and note in sweep_table(setups([*held, *records[2:]]))
    assert eta_rows(setups([*held, *records[2:]])[0])[0][1] == "1.000, constant action, 2 of 5"
    without = [
        r
        for r in records
        if (r.identity["task"], r.identity["method_settings"]["eta"]) != ("Hopper", 0.4)
    ]
    left = ends_of_sweep_table(setups(without)) + sweep_table(setups(without))
    assert "| `pave` Walker, TD3 |" in left and "Walker, TD3, sm |" in left and "Hopper" not in left


def test_policies_with_one_constant_action_are_named() -> None:
    records = [
        invented(agent)
        for agent in agents_of("td3-table", tasks=("Hopper",), methods=("plain", "damper"))
    ]
    assert constant_table(setups(records)) == "None.\n"
    still = {"mean_change": [5e-5] * 10, "return": [7.0] * 10, "length": [30] * 10}
    reacts_once = {"mean_change": [0.0] * 9 + [5e-4]}
    single_actions = {"mean_change": [0.0] * 10, "length": [1] * 10}
    for i, changed in {-4: reacts_once, -3: single_actions, -2: still, -1: still}.items():
        records[i] = replace(records[i], episodes={**records[i].episodes, **changed})
    _, row = rows_of(constant_table(setups(records)))
    # Their return, how soon their episodes end, plain's return.
    assert row == ["`pave` Hopper, TD3, DAMPER, η = 1", "2 of 5", "7.00", "30.0", "0.45"]


def constant(agents: int) -> Setup:
    """Plain, and a DAMPER that is smoother, the more so as some of its agents hold one action."""
    records = []
    for agent in agents_of("td3-table", tasks=("Hopper",), methods=("plain", "damper")):
        smooth = agent.identity["method"] == "damper"
        level = 0.0 if smooth and agent.rank < agents else 0.5 if smooth else 1.0
        own = {
            name: [level + 0.001 * agent.rank * bool(level)] * 10 for name in ("sm", "mean_change")
        }
        record = invented(agent)
        records.append(replace(record, episodes={**record.episodes, **own}))
    (setup,) = setups(records)
    return setup


def test_smoothness_of_one_constant_action_is_not_counted() -> None:
    some, most = constant(2), constant(3)
    assert "%" in rows_of(readme_table([some]))[1][3]
    _, row = rows_of(readme_table([most]))
    assert row[1:4] == ["1.0020", "0.2014", "constant action, 3 of 5"], "no change in per cent"
    table = pairs_table(most)
    assert "| Hopper, TD3<br><small>constant action, 3 of 5</small> |" in table
    assert "%" not in rows_of(table)[1][2]
    found = {(a.method, a.measure) for a in aggregates(most)}
    assert ("damper", "return") in found and ("damper", "mean_change") not in found


def test_a_pair_with_few_constant_agents_has_its_change_without_them_too() -> None:
    def smoothness(agents: int) -> str:
        return rows_of(pairs_table(constant(agents)))[1][2].replace("\u00a0", " ")

    # DAMPER's seeds have 0, 0.501, 0.502, 0.503 and 0.504, plain's 1.000 to 1.004.
    one, without, *_ = smoothness(1).split("<br>")[1:]
    assert one.startswith("**−60 % [") and without.startswith(
        "<small>without it −50 % [−50, −50]</small>"
    )
    assert "<small>without it −50 %" in smoothness(2)
    assert "without" not in smoothness(0) + smoothness(3)


@pytest.mark.parametrize("agents", [1, 5])
def test_one_constant_action_is_never_the_best_in_smoothness(agents: int) -> None:
    entries = {name: row[0] for name, row in table_of(constant(agents), "sm").rows}
    assert not entries["DAMPER"].best and dict(table_of(constant(0), "sm").rows)["DAMPER"][0].best
    for text in (markdown_results, latex_results):
        said = text(table_of(constant(agents), "sm"))
        assert said.count(f"constant action, {agents} of 5") == 2, "both rows of the same agents"
        assert "constant" not in text(table_of(constant(0), "sm"))


@needs_browser
@pytest.mark.serial
def test_the_page_marks_one_constant_action_and_never_as_the_best(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page(page_data([constant(3)], [])))
    shown = document(tmp_path / "page.html", tmp_path, "#pair=return,sm")
    (row,) = re.findall(r"</span>DAMPER</td>(<td data-has.*?)</tr>", shown)
    reward, smooth = re.findall(r"<td data-has.*?</td>", row)
    assert "constant, 3 of 5" in smooth and "cell best" not in smooth and "cell best" in reward
    assert re.search(r"<small>\d[\d.]*–\d", reward) and "–" not in smooth, (
        "no interval of such smoothness"
    )


def test_a_decided_claim_stands_with_the_comparison_that_decided_it() -> None:
    low = world(
        lambda method, _, measure: (
            np.full((5, 10), 1.0 if method == "damper" else 2.0) + np.arange(5)[:, None]
        )
    )
    table = decided_table([low])
    assert "large sm reductions" in table and "TD3 Hopper sm: DAMPER 3, TD3 4 (large: " in table
    assert "SAC Ant and Walker" not in table
    open_ones = sum(verdict.verdict == "not enough data" for verdict in verdicts(low))
    assert len(rows_of(table)) - 1 == len(verdicts(low)) - open_ones > 0


def test_the_same_method_is_compared_between_the_protocols() -> None:
    records = []
    for protocol, total in (("pave", 10.0), ("authors", 40.0)):
        for seed, agent in enumerate(
            agents_of("td3-table", tasks=("Pendulum",), methods=("plain",), protocol=protocol)
        ):
            record = invented(agent)
            records.append(
                replace(record, episodes={**record.episodes, "return": [total + seed] * 10})
            )
    every = protocols_table(main_setups(setups(records)))
    pave, authors = "12.00<br><small>median 12.00</small>", "42.0<br><small>median 42.0</small>"
    assert "| cell | `pave` | `authors` | difference |" in every
    assert f"| Pendulum, TD3, return | {pave} | {authors} | **−30.00 [−32.31, −27.69]** |" in every
    assert every.count("**") == 2 and "Pendulum, TD3, sm |" in every
    held = [replace(r, episodes={**r.episodes, "mean_change": [0.0] * 10}) for r in records[:2]]
    noted = f"{pave}<br><small>constant action, 2 of 5</small>"
    assert noted not in every
    assert noted in protocols_table(main_setups(setups([*held, *records[2:]])))


def test_units_and_precision_are_compared_between_cells_that_differ_in_nothing_else() -> None:
    records = []
    for units, total in (("policy", 10.0), ("environment", 40.0)):
        settings = {"units": units} if units == "environment" else {}
        for seed, agent in enumerate(
            agents_of("pegrad", tasks=("Pendulum",), methods=("pegrad",), settings=settings)
        ):
            record = invented(agent)
            records.append(
                replace(record, episodes={**record.episodes, "return": [total + seed] * 10})
            )
    _, gap, *_ = unit_gaps(setups(records))
    assert gap.name == "`pave` Pendulum, TD3 PEGrad" and gap.measure == "return"
    assert [cell.split("<br>")[0] for cell in gap.row[1:3]] == ["42.0", "12.00"]
    assert gap.row[3] == "**30.0 [27.7, 32.3]**" and precision_gaps(setups(records)) == []


def test_units_are_not_compared_between_cells_of_another_eta() -> None:
    own = agents_of("eta-sweep", tasks=("Hopper",), settings={"units": "environment"})
    records = [invented(agent, 40.0 + seed % 5) for seed, agent in enumerate(own)]
    records += [
        invented(agent, 10.0)
        for agent in agents_of("eta-sweep", tasks=("Hopper",))
        if "0.4" in str(agent)
    ]
    later = records[0].identity | {"method": "of-tomorrow"}  # which this installation does not have
    records.append(replace(records[0], identity=later))
    names = [(gap.name, gap.measure) for gap in unit_gaps(setups(records))]
    assert names == [
        ("`pave` Hopper, TD3 DAMPER η=0.4", measure) for measure in ("mean_change", "return", "sm")
    ]


@pytest.mark.parametrize(("version", "compared"), [("3.4.0", True), ("3.9.0", False)])
def test_precision_is_not_compared_between_versions_of_a_simulator(
    version: str, compared: bool
) -> None:
    records = []
    for tf32, mujoco in ((True, "3.4.0"), (False, version)):
        for agent in agents_of(
            "td3-table", tasks=("Hopper",), methods=("plain",), settings={"tf32": tf32}
        ):
            identity = {**agent.identity, "physics": {"gymnasium": "1.2.0", "mujoco": mujoco}}
            records.append(replace(invented(agent), identity=identity))
        for agent in agents_of(
            "td3-table", tasks=("LunarLander",), methods=("plain",), settings={"tf32": tf32}
        )[tf32:]:
            identity = {
                **agent.identity,
                "physics": {"gymnasium": "1.2.0", **({"box2d": "2.3"} if tf32 else {})},
            }
            records.append(replace(invented(agent), identity=identity))
    assert bool(precision_gaps(setups(records))) == compared


def test_a_distance_from_the_paper_stands_beside_the_errors_of_starts_and_of_seeds() -> None:
    def scores(method: str, _: str, measure: str) -> np.ndarray:
        """Seeds 3000 ± 10 for one method and ± 1000 for the other; starts differ by up to 9."""
        seeds = (10.0 if method == "plain" else 1000.0) * np.array(
            [[-1.0], [-1.0], [0.0], [1.0], [1.0]]
        )
        return 3000.0 + seeds + np.arange(10.0)

    rows = [row for row in rows_of(distances_table([world(scores)])) if "Hopper" in row[0]]
    # The std of 0..9 / √10; the scale · 1 / √5; the paper's 150 and 599 / √5.
    assert [row[4:] for row in rows] == [["±1", "±4", "±67"], ["±1", "±447", "±268"]]
    # Nearly all of plain's error is the paper's, with four degrees of freedom: t is 2.78, not 2.
    variance = 4.472**2 + 0.957**2 + (150 / 5**0.5) ** 2
    t = stats.t.ppf(0.975, variance**2 / ((4.472**4 + (150 / 5**0.5) ** 4) / 4 + 0.957**4 / 9))
    gap, half = 3004.5 - 3604, t * variance**0.5
    assert (
        rows[0][3] == f"**{gap:.0f} [{gap - half:.0f}, {gap + half:.0f}]**".replace("-", "−")
        and t > 2.7
    )
    assert rows[1][3].startswith("−74 [−1"), "3078 in the paper"


def test_the_end_of_training_is_the_last_tenth_of_the_steps() -> None:
    curve = {"step": [50, 90, 91, 100], "return": [1.0, 2.0, None, 7.0]}
    assert late_return(curve) == 7.0
    assert late_return({"step": [5, 91, 100], "return": [0.0, 4.0, 7.0]}) == 5.5
    assert (
        late_return({"step": [50, 100], "return": [1.0, None]}) is None
        and late_return({"step": []}) is None
    )
