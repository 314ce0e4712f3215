"""What is published is what the records say."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import damper
from damper.errors import DamperError
from damper.intervals import LOWER, change_of_mean
from paper.claims.comparisons import VERDICTS, claim_level
from paper.experiments.catalogue import EXPERIMENTS
from paper.experiments.store import Store
from paper.pages.build import PAGES, page_texts, write_report
from paper.pages.marked import MARKED, has_place, insert
from paper.statistics.cells import change, main_setups, setups
from paper.statistics.estimates import difference
from paper.statistics.numbers import number, with_bounds
from paper.tables.ppo import read_ppo
from paper.tests.experiments.helpers import agents_of, hopper_plain

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fresh")
    write_report(ROOT / "results", out, formats=())
    return out


@pytest.mark.parametrize("name", ["tables.md", "tables.tex"])
def test_the_published_report_is_that_of_the_records(fresh: Path, name: str) -> None:
    published, built = (
        folder.joinpath(name).read_text().splitlines() for folder in (ROOT / "docs/results", fresh)
    )
    # Pictures stand in the Markdown only where they are drawn, which takes longer than a test
    # should.
    published = [line for line in published if not line.startswith("![")]
    assert [line for line in published if line] == [line for line in built if line], (
        "run python -m paper report"
    )


def test_the_marked_places_hold_what_the_records_say() -> None:
    results = ROOT / "results"
    texts = page_texts(setups(Store(results)), read_ppo(results))
    places = [
        (page, match) for page in PAGES for match in MARKED.finditer((ROOT / page).read_text())
    ]
    assert {match[2] for _, match in places} == texts.keys()
    stale = [
        (page, match[2]) for page, match in places if f"\n\n{texts[match[2]]}\n" not in match[0]
    ]
    assert stale == [], "run python -m paper report"


def test_a_place_is_filled_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- headline: written by python -m paper report -->\nold\n<!-- headline ends -->\nb\n"
    )
    assert has_place(page) and not has_place(tmp_path / "none.md")
    insert(page, {"headline": "new \\1\n"})
    insert(page, {"headline": "new \\1\n"})
    assert (
        page.read_text() == "a\n<!-- headline: written by python -m paper report -->\n\nnew \\1\n\n"
        "<!-- headline ends -->\nb\n"
    )
    with pytest.raises(DamperError, match=r"must be one of findings, but .* has headline"):
        insert(page, {"findings": ""})
    page.write_text("nothing")
    with pytest.raises(DamperError, match="pages must have a marked place"):
        insert(page, {"headline": ""})


# --- numbers outside the marked places ------------------------------------------------------------


def text(page: str) -> str:
    """A page as one line, without what the report writes."""
    return " ".join(MARKED.sub("", (ROOT / page).read_text()).split())


def measured(name: str, **row: Any) -> dict[str, Any]:
    """A row of a benchmark on the H200."""
    rows = json.loads((ROOT / "docs/bench/h200" / f"{name}.json").read_text())["rows"]
    (found,) = (one for one in rows if row.items() <= one.items())
    assert isinstance(found, dict)
    return found


def test_the_readme_s_speeds_are_the_measured_ones() -> None:
    whole = measured("peers", backbone="TD3", implementation="damper engine damper")
    said = re.search(
        r"takes (\d+) µs with `--tf32`, (\d+) times as fast .* (\d+) agents trained a million "
        r"steps each on Hopper in "
        "13⅓ minutes",
        text("README.md"),
    )
    assert said, "the sentence was changed: change this test"
    facts = hopper_plain().run
    assert said.groups() == (
        f"{1000 * whole['ms']:.0f}",
        f"{whole['× faster']:.0f}",
        str(facts["agents"]),
    )
    assert facts["seconds"] == pytest.approx(40 / 3 * 60, rel=0.01)


def test_the_readme_s_demo_is_what_make_demo_measured() -> None:
    demo = json.loads((ROOT / "docs/figures/demo.json").read_text())
    makefile = " ".join((ROOT / "Makefile").read_text().replace("\\\n", " ").split())
    assert f"DEMO := {demo['command'].removeprefix('damper ')} " in makefile, "measure it again"

    def groups(method: str, measure: str) -> list[np.ndarray]:
        return np.split(np.array(demo[measure][method]), 3)  # three seeds each

    plain, ours = groups("plain", "mean_change"), groups("damper", "mean_change")
    changes = [change_of_mean(*both, "mean_change") for both in zip(plain, ours, strict=True)]
    returns = [groups(method, "return")[0] for method in ("plain", "damper")]
    readme = text("README.md")
    assert f"| plain | {plain[0].mean():.4f} | | {returns[0].mean():.0f} | |" in readme
    assert (
        f"| damper | {ours[0].mean():.4f} | {changes[0]} | {returns[1].mean():.0f} | "
        f"{change_of_mean(*returns, 'return')} |" in readme
    )
    others = [str(found).partition(" [")[0] for found in changes[1:]]
    assert f"Six other seeds gave {others[0]} and {others[1]}." in readme
    assert all(found.sign == LOWER for found in changes), "the demo shows its point"


def test_the_page_about_speed_names_what_costs_less_than_damper() -> None:
    times = {
        (b, m): measured("update", backbone=b, method=m)["ms"]
        for b in ("TD3", "SAC")
        for m in ("damper", "caps", "grad-caps", "asap", "l2c2", "pave")
    }
    less = {(b, m) for b, m in times if times[b, m] < times[b, "damper"]}
    assert less == {
        ("TD3", "asap"),
        ("SAC", "l2c2"),
        *((b, m) for b in ("TD3", "SAC") for m in ("caps", "grad-caps")),
    }
    assert "Grad-CAPS and CAPS cost less there, as do ASAP with TD3 and L2C2 with SAC." in text(
        "docs/bench.md"
    )


def test_the_page_about_reproducing_lists_every_experiment_with_its_size() -> None:
    rows = re.findall(
        r"^\| (`[^|]+) \| [^|]+ \|([^|]*)\|$",
        (ROOT / "docs/reproduce.md").read_text(),
        re.MULTILINE,
    )
    listed = {name: size for names, size in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert {name for name in listed if name in EXPERIMENTS} == EXPERIMENTS.keys()
    for name, experiment in EXPERIMENTS.items():
        if experiment.trained:
            assert int(listed[name].split()[0]) == len(agents_of(name)), name


SIMULATOR = re.compile(
    r"on Hopper earn (\d+) \(TD3, EnvPool (\d+)\) and (\d+) \(SAC, EnvPool (\d+)\)"
)


def test_other_physics_at_evaluation_earn_what_the_page_says() -> None:
    said = SIMULATOR.search(text("docs/results.md"))
    assert said, "the sentence was changed: change this test"
    records = {record.digest: record for record in Store(ROOT / "results")}
    for backbone, (gymnasium, envpool) in zip(
        ("td3", "sac"), (said.groups()[:2], said.groups()[2:]), strict=True
    ):
        (path,) = (ROOT / "results/policies/pave/Hopper").glob(
            f"{backbone}-damper-178132-*.safetensors"
        )
        record = records[path.stem.split("-")[-1]]
        assert np.mean(record.episodes["return"]) == pytest.approx(int(envpool), abs=1)
        # Rounding differs between processors and grows along an episode.
        (episodes,) = damper.evaluate(path, episodes=10, backend="gymnasium").episodes
        assert np.mean([episode.total for episode in episodes]) == pytest.approx(
            int(gymnasium), rel=0.03
        )


def test_the_statistics_page_has_every_word_of_a_verdict() -> None:
    listed = (ROOT / "docs/statistics.md").read_text().split("## Verdicts")[1]
    assert [word for word in VERDICTS if f"- **{word}**: " not in listed] == [], (
        "the results page links to it"
    )


def test_the_statistics_page_shows_where_its_two_intervals_disagree() -> None:
    said = re.search(
        r"on LunarLander, TD3, `sm` changes by (.*?), and the difference is (.*?), at",
        text("docs/statistics.md"),
    )
    assert said, "the sentence was changed: change this test"
    setup = main_setups(setups(Store(ROOT / "results")))[0]
    plain, ours = (setup.find("td3", "LunarLander", method) for method in ("plain", "damper"))
    assert plain and ours
    gap, interval = difference(ours.means("sm"), plain.means("sm"))
    assert interval and not interval.excludes_zero and change(plain, ours, "sm").sign == "lower"
    form = partial(number, measure="sm")
    assert said.groups() == (str(change(plain, ours, "sm")), with_bounds(gap, interval, form))


def test_the_statistics_page_states_the_level_of_the_claims() -> None:
    page = text("docs/statistics.md")
    assert f"each interval has {100 * claim_level():.1f} % confidence" in page
    assert f"with {round(0.05 / (1 - claim_level()))} claims" in page
