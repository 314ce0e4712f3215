from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paper.experiments.catalogue import expand_request
from paper.experiments.store import Record, Store
from paper.pages.build import write_report
from paper.pages.html_page import page, page_data
from paper.statistics.cells import setups
from paper.tables.result_tables import ONE_ETA_LABEL, main_tables
from paper.tests.browser import document, needs_browser, selftest
from paper.tests.experiments.helpers import agents_of, invented, tiny

pytestmark = pytest.mark.serial
# Point at every seed of the fronts, and list what the page says of it.
HOVER = """
for (const point of document.querySelectorAll("#fronts path.mark[opacity='0.34']")) {
  const { x, y, width, height } = point.getBoundingClientRect();
  const at = { clientX: x + width / 2, clientY: y + height / 2, bubbles: true };
  point.ownerSVGElement.dispatchEvent(new PointerEvent("pointermove", at));
  document.body.append(el("li", {}, document.getElementById("tip").textContent));
}
"""


def odd_records() -> list[Record]:
    """Whatever a store may hold.

    Holes, a diverged agent, one episode, a task of its own, sweeps, small numbers.
    """
    table = agents_of(
        "td3-table", tasks=("Pendulum", "Hopper"), methods=("plain", "caps", "damper")
    )
    records = [invented(agent, -150.0 + i, 1.0 + i / 50) for i, agent in enumerate(table) if i % 11]
    lost = {name: [None] * 10 for name in ("return", "sm")}
    records[3] = replace(records[3], frozen=1234, episodes={**records[3].episodes, **lost})
    for agent in agents_of("eta-sweep", "scalarization-sweep", tasks=("Hopper",), seeds=1):
        records.append(
            invented(agent, 3000.0, 0.5 + agent.identity["method_settings"].get("weight", 0.3))
        )
    for record in (
        invented(agent, 5.0) for agent in agents_of("sac-table", tasks=("Walker",), seeds=1)
    ):
        records.append(
            replace(record, curve={**record.curve, "norm_ratio": [1e-7, 1e-5]})
        )  # 0.000001 is a wide label
    own = agents_of("td3-table", tasks=("Swimmer-v5",), methods=("damper",), steps=5000, seeds=2)
    records += [
        invented(own[0], episodes=1),
        replace(invented(own[1], episodes=1), trace=None, curve={"step": []}),
    ]
    records += [invented(agent) for agent in expand_request(tiny())]
    later = invented(expand_request(tiny())[0])  # of a method that this installation does not have
    records.append(
        replace(
            later, identity={**later.identity, "method": "of-tomorrow", "method_settings": {"x": 1}}
        )
    )
    return [
        *records,
        *(invented(agent) for agent in agents_of("pegrad", protocol="authors", seeds=1)),
    ]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    store = Store(folder / "results")
    unique = {record.digest: record for record in odd_records()}
    for record in unique.values():
        store.add(record)
    write_report(folder / "results", folder / "out", formats=())
    return folder


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_control_works_in_a_browser(
    built: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    found = selftest(built / "out" / "report.html", tmp_path, width, dark)
    assert found["errors"] == []
    assert found["tried"] > 60
    assert found["width"] == width


@needs_browser
def test_no_cell_with_data_is_empty(built: Path, tmp_path: Path) -> None:
    shown = document(built / "out" / "report.html", tmp_path)
    (setup, *_) = setups(Store(built / "results"))
    for cell in setup.cells:
        if cell.backbone == "td3" and cell.published and cell.method in ("plain", "caps", "damper"):
            summary = cell.summary("mean_change")
            assert summary is not None and f"<b>{summary.mean:.4f}</b>" in shown
    filled = re.findall(r'<td data-has="yes">(.*?)</td>', shown)
    assert len(filled) == 16 and all(re.search(r"\d", cell) for cell in filled)
    assert "†" in shown and "n=4" in shown


@needs_browser
def test_a_link_opens_the_view_it_names(built: Path, tmp_path: Path) -> None:
    shown = document(
        built / "out" / "report.html", tmp_path, "#backbone=sac&task=Walker&pair=length"
    )
    assert "Learning curves: Walker, SAC" in shown
    assert 'aria-pressed="true">length<' in shown


@needs_browser
def test_an_empty_store_says_so(tmp_path: Path) -> None:
    write_report(tmp_path / "nothing", tmp_path / "out", formats=())
    assert "No agents on record yet" in document(tmp_path / "out" / "report.html", tmp_path)
    assert "No records yet" in (tmp_path / "out" / "tables.md").read_text()


@needs_browser
def test_a_store_of_times_alone_shows_them(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    shutil.copy(Path(__file__).parents[3] / "results" / "bench.jsonl", tmp_path / "results")
    write_report(tmp_path / "results", tmp_path / "out", formats=())
    shown = document(tmp_path / "out" / "report.html", tmp_path)
    assert "No agents on record yet" in shown and "Milliseconds per update" in shown
    assert "## Update times" in (tmp_path / "out" / "tables.md").read_text()


@needs_browser
def test_one_seed_of_a_task_of_ones_own_gets_no_word_about_what_is_not_there(
    tmp_path: Path,
) -> None:
    for agent in agents_of(
        "td3-table", tasks=("Swimmer-v5",), methods=("plain", "damper"), steps=5000, seeds=1
    ):
        Store(tmp_path / "mine").add(invented(agent))
    write_report(tmp_path / "mine", tmp_path / "out", formats=())
    shown = re.sub(
        r"(?s)<script.*?</script>", "", document(tmp_path / "out" / "report.html", tmp_path)
    )
    assert "Swimmer-v5" in shown and "Needs two seeds of DAMPER and of another method" in shown
    assert ONE_ETA_LABEL not in shown and "results/" not in shown
    tables = (tmp_path / "out" / "tables.md").read_text()
    assert "Swimmer-v5" in tables and "verdict" not in tables
    assert not (tmp_path / "out" / "details.md").exists(), "a page of the project alone"


@needs_browser
def test_damper_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    alone = agents_of("td3-table", tasks=("Hopper",), methods=("damper",))
    (tmp_path / "alone.html").write_text(
        page(page_data(setups(invented(agent) for agent in alone), []))
    )
    shown = re.sub(r"(?s)<script.*?</script>", "", document(tmp_path / "alone.html", tmp_path))
    assert (
        "Needs two seeds of DAMPER and of another method" in shown
        and "No comparison yet" not in shown
    )


@needs_browser
def test_claims_appear_once_a_comparison_of_one_has_enough_seeds(
    built: Path, tmp_path: Path
) -> None:
    own = agents_of("td3-table", tasks=("Swimmer-v5",), methods=("plain", "damper"), steps=5000)
    (tmp_path / "own.html").write_text(
        page(page_data(setups(invented(agent) for agent in own), []))
    )
    shown = document(tmp_path / "own.html", tmp_path)
    assert "Swimmer-v5" in shown and "agents trained" in shown
    claims = ('<section id="claims">', ">not enough data<", ">The paper's claims about time")
    assert [words for words in claims if words in shown] == []
    assert selftest(tmp_path / "own.html", tmp_path)["errors"] == []
    paper = document(built / "out" / "report.html", tmp_path)
    assert [words for words in claims if words in paper] == list(
        claims[:2]
    )  # nothing was timed there


@needs_browser
def test_what_the_charts_rest_on_is_said(built: Path, tmp_path: Path) -> None:
    shown = document(built / "out" / "report.html", tmp_path)
    assert ">CAPS (2)</text>" in shown and ">No such sweep over η" not in shown
    swept = [invented(agent) for agent in agents_of("eta-sweep", tasks=("Hopper",))]
    one = [r.identity["method_settings"]["eta"] == 1.0 for r in swept]
    still = [
        replace(r, episodes={**r.episodes, "mean_change": [0.0] * 10}) if held else r
        for r, held in zip(swept, one, strict=True)
    ]
    for records in (still, swept[5:]):
        (tmp_path / "etas.html").write_text(page(page_data(setups(records), [])))
        assert ">No such sweep over η" in document(tmp_path / "etas.html", tmp_path)


def test_the_page_stands_alone(built: Path) -> None:
    text = (built / "out" / "report.html").read_text()
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@@" not in text
    assert not re.search(r"<(?:script|img|link)[^>]*\b(?:src|href)=\"(?!data:)", text)


def test_data_cannot_break_out_of_its_element() -> None:
    text = page({"setups": [], "evil": "</script><script>alert(1)</script>"})
    assert "</script><script>alert" not in text
    inside = re.search(r'id="data">(.*?)</script>', text)
    assert inside and json.loads(inside[1])["evil"].startswith("</script>")


def test_the_page_has_every_number_once_rounded(built: Path) -> None:
    found = setups(Store(built / "results"))
    data = page_data(found, [])
    assert [setup["agents"] for setup in data["setups"]] == [setup.agents for setup in found]
    cells = {(c["backbone"], c["task"], c["label"]): c for c in data["setups"][0]["cells"]}
    cell = cells["td3", "Hopper", "DAMPER"]
    assert cell["paper"]["sm"] == [0.24, 0.035]
    assert ("td3", "Hopper", "DAMPER η=0.2") in cells and (
        "td3",
        "Hopper",
        "scalarization λ=0.35",
    ) in cells
    assert len(data["sources"]) < 10
    ends = [
        agent["means"]["return"] - 0.45 for agent in cell["agents"]
    ]  # where the invented curves end
    assert cell["curve"]["return"][0][-1] == pytest.approx(sum(ends) / len(ends), rel=1e-3)


def test_two_builds_are_the_same_bytes(built: Path, tmp_path: Path) -> None:
    first, second = (
        write_report(built / "results", tmp_path / name, ("svg", "pdf", "png")) for name in "ab"
    )
    assert len(first) == len(second) > 10
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


@needs_browser
def test_one_eta_has_a_row_of_its_own_and_each_seed_a_dot(built: Path, tmp_path: Path) -> None:
    shown = document(built / "out" / "report.html", tmp_path)
    (row,) = re.findall(
        r"<tr[^>]*><td class=\"name\">(?:(?!</tr>).)*DAMPER, η = 1 everywhere(.*?)</tr>", shown
    )
    cells = re.findall(r'<td data-has="yes">(.*?)</td>', row)
    (setup, *_) = setups(Store(built / "results"))
    for task, cell in zip(("Pendulum", "Hopper"), cells[1::2], strict=True):
        own = setup.find("td3", task, "damper", eta=1.0)
        assert own is not None and cell.count("<circle") == len(own.means("return"))
        assert f"med. {own.summary('return').median:.1f}".replace("-", "−") in cell  # type: ignore[union-attr]


def test_the_page_marks_the_cells_that_the_tables_mark() -> None:
    level = {"plain": 2.0, "damper": 1.0, "temporal-ramp": 0.5}
    agents = agents_of("td3-table", tasks=("Hopper",), methods=tuple(level))
    records = [invented(agent, sm=level[agent.identity["method"]]) for agent in agents]
    lost = {"sm": [None] * 10}

    def marked(records: list[Record]) -> set[str]:
        (setup,) = setups(records)
        (table,) = (table for table in main_tables(setup) if table.name == "td3-sm")
        best = {label for label, (entry,) in table.rows if entry.best}
        cells = page_data([setup], [])["setups"][0]["cells"]
        assert {cell["title"] for cell in cells if "sm" in cell["best"]} == best - {ONE_ETA_LABEL}
        return best

    assert marked(records) == {"temporal-ramp"}
    few = [
        replace(r, episodes={**r.episodes, **lost}) if i == 14 else r for i, r in enumerate(records)
    ]
    assert few[14].identity["method"] == "temporal-ramp" and "DAMPER" in marked(few), (
        "four seeds have the value"
    )


@needs_browser
def test_a_point_of_a_front_names_its_seed_also_after_a_diverged_one(tmp_path: Path) -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("plain",))
    records = [invented(agent, 100.0 * i, 0.1 * (i + 1)) for i, agent in enumerate(agents)]
    records[0] = replace(
        records[0], episodes={**records[0].episodes, "return": [None] * 10, "sm": [None] * 10}
    )
    text = page(page_data(setups(records), []))
    (tmp_path / "page.html").write_text(text.replace("</body>", f"<script>{HOVER}</script></body>"))
    shown = document(tmp_path / "page.html", tmp_path)
    told = re.findall(r"<li>TD3, seed (\d+)sm [\d.]+, return ([\d.]+)</li>", shown)
    returns = {cell.identity["seed"]: 100.0 * i + 0.45 for i, cell in enumerate(records)}
    assert len(told) == 4 and {int(seed): float(value) for seed, value in told} == pytest.approx(
        {seed: value for seed, value in returns.items() if value > 1}, rel=0.01
    )


def test_code_that_is_not_one_clean_commit_is_flagged(built: Path) -> None:
    records = list(Store(built / "results"))
    clean = page_data(setups(records), [])["setups"][0]["code"]["td3"]
    assert "⚠" not in clean["Hopper"]
    records = [
        replace(r, sources=[], commit="a+changes") if i % 2 else r for i, r in enumerate(records)
    ]
    mixed = page_data(setups(records), [])["setups"][0]["code"]["td3"]
    assert (
        "a mixture of 2 versions" in mixed["Hopper"] and "of an uncommitted tree" in mixed["Hopper"]
    )
