"""From nothing to the page: reproduce, report, browser, on a budget of seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paper.cli import main
from paper.experiments.store import Store
from paper.tests.browser import needs_browser, selftest

pytestmark = pytest.mark.serial
REPRODUCE = (
    "reproduce td3-table --tasks Pendulum LunarLander --methods plain damper --seeds 2 --steps 400"
)
REPRODUCE += " --net-arch 16 --batch-size 16 --learning-starts 100 --log-every 100 --episodes 2"


def run(folder: Path) -> dict[str, bytes]:
    places = f" --results {folder}/results --out {folder}/runs"
    main((REPRODUCE + places).split())
    main(f"report --results {folder}/results --out {folder}/report --formats svg".split())
    return {
        path.name: path.read_bytes() for path in (folder / "report").rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("chain")
    return folder, run(folder)


def test_the_tables_hold_what_was_trained(built: tuple[Path, dict[str, bytes]]) -> None:
    folder, files = built
    records = list(Store(folder / "results"))
    assert len(records) == 8
    assert all(
        record.deviations["steps"] == 400 for record in records
    )  # never mixed with the paper's budget
    tables = files["tables.md"].decode()
    assert "pave, batch_size 16, learning_starts 100, net_arch 16, steps 400" in tables
    assert (
        tables.count("n=2") == (2 * 2 + 1) * 5
    )  # methods, tasks, measures; on Pendulum η = 1 is the paper's own
    assert {"report.html", "tables.tex", "fronts-td3.svg", "curves-td3.svg"} <= set(files)


def test_running_again_changes_nothing_and_a_hole_is_filled(
    built: tuple[Path, dict[str, bytes]],
) -> None:
    folder, files = built
    assert run(folder) == files
    before = {record.digest: record.episodes for record in Store(folder / "results")}
    shutil.rmtree(folder / "results" / "spool" / "pave" / "Pendulum")
    run(folder)
    assert {record.digest: record.episodes for record in Store(folder / "results")} == before


@needs_browser
def test_the_page_works(built: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    found = selftest(built[0] / "report" / "report.html", tmp_path)
    assert (
        found["errors"] == [] and found["cells"] == 5
    )  # at the last choice of the measures: the lengths
