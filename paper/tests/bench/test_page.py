"""The pages about speed show what the measurements' files hold, digit by digit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paper.bench.result import read
from paper.tests.experiments.helpers import hopper_plain

DOCS = Path(__file__).parents[3] / "docs"
FILES = sorted((DOCS / "bench").rglob("*.json"))
SUMMARY, TABLES = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("bench.md", "results/speed.md")
)


def name(path: Path) -> str:
    return str(path.relative_to(DOCS))


def measured(file: str, **row: Any) -> dict[str, Any]:
    """One row of one file."""
    (found,) = (
        one for one in read(DOCS / "bench" / f"{file}.json").rows if row.items() <= one.items()
    )
    return found


def test_every_kept_measurement_is_on_the_page_once_as_it_was_measured() -> None:
    assert FILES
    counts = {name(path): TABLES.count(read(path).markdown()) for path in FILES}
    assert counts == {name(path): 1 for path in FILES}


def test_above_every_table_stands_the_command_that_made_it() -> None:
    for path in FILES:
        command = re.sub(r" --out \S+", "", json.loads(path.read_text(encoding="utf-8"))["command"])
        command = command.replace("damper bench", "python -m paper bench")
        above = TABLES[: TABLES.index(read(path).markdown())]
        section = re.split(r"^#+ |\|$", above, flags=re.MULTILINE)[-1]
        assert f"`{command}`" in section, name(path)


def test_the_summary_is_that_of_the_runs() -> None:
    one = {"backbone": "TD3", "implementation": "damper engine damper"}
    gpu, cpu = measured("h200/peers", **one), measured("cpu/peers-2-threads-compile", **one)
    cost = [
        measured(f"{machine}/update", backbone="TD3", method="damper")
        for machine in ("h200", "cpu")
    ]
    many = measured("h200/scaling", method="damper", agents=35)
    trained = hopper_plain().run
    expected = {
        "a whole update of one agent": [
            f"{1000 * gpu['ms']:.0f} µs, {gpu['× faster']:.0f} times as fast",
            f"{cpu['ms']:.3g} ms, {cpu['× faster']:.3g} times as fast",
        ],
        "times a plain update of the same engine": [f"{row['× plain']:.2f}" for row in cost],
        "a whole update of 35 agents": [f"{many['µs per agent']:.3g} µs per agent", ""],
        f"{trained['agents']} agents training on Hopper": [
            f"{trained['steps_per_second']:,.0f} steps per second each",
            "",
        ],
    }
    summary = re.findall(
        r"^\| (.*) \| (.*) \|(?: (.*))? \|$", SUMMARY.split("\n## ")[0], re.MULTILINE
    )[1:]
    assert len(summary) == len(expected)
    for (what, *cells), (said, values) in zip(summary, expected.items(), strict=True):
        assert what.startswith(said)
        assert all(cell.startswith(value) for cell, value in zip(cells, values, strict=True)), what


@pytest.mark.parametrize("method", ["caps", "grad-caps", "asap", "l2c2", "damper"])
def test_the_methods_pages_state_the_cost_of_the_same_run(method: str) -> None:
    page = (DOCS / "methods" / f"{'temporal' if method == 'damper' else method}.md").read_text(
        encoding="utf-8"
    )
    costs = [
        measured(f"{machine}/update", backbone=backbone, method=method)[column]
        for machine, column in (("cpu", "× plain"), ("h200", "× plain"), ("cpu", "paper's × plain"))
        for backbone in ("TD3", "SAC")
    ]
    said = (
        "takes {:.2f} times as long as a plain TD3 update and {:.2f} times as long as a plain SAC "
        "update on one CPU "
        "core, {:.2f} and {:.2f} times on an H200 (the paper: {:.2f} and {:.2f})"
    )
    assert said.format(*costs) in " ".join(page.split())


def test_pave_s_page_states_the_cost_of_the_same_runs() -> None:
    page = (DOCS / "methods" / "pave.md").read_text(encoding="utf-8")
    for label, machine, column in (
        ("one CPU core, eager", "cpu", "× plain"),
        ("H200, compiled", "h200", "× plain"),
        ("the paper, on its GPU", "cpu", "paper's × plain"),
    ):
        td3, sac = (
            measured(f"{machine}/update", backbone=b, method="pave")[column] for b in ("TD3", "SAC")
        )
        assert f"| {label} | {td3:.2f} | {sac:.2f} |" in page
