"""The pictures on the methods' pages show what the records hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from damper.errors import DamperError
from damper.methods import METHODS
from damper.metrics import smoothness
from paper.experiments.records import unpack_trace
from paper.experiments.store import Store
from paper.figures.methods import compared, draw_method_figures
from paper.statistics.cells import setups
from tests.pictures import texts

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "figures" / "methods"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("matplotlib")
    paths = draw_method_figures(ROOT / "results", tmp_path_factory.mktemp("methods"))
    return {path.stem: path for path in paths}


def test_the_published_pictures_are_those_of_the_records(fresh: dict[str, Path]) -> None:
    again = "run python -m paper figures --methods --out docs/figures/methods --formats svg"
    assert sorted(path.stem for path in PUBLISHED.iterdir()) == sorted(fresh), again
    for name, path in fresh.items():
        assert texts(path) == texts(PUBLISHED / path.name), f"{name}: {again}"


def test_each_picture_tells_its_scores_and_where_it_comes_from(fresh: dict[str, Path]) -> None:
    found = setups(Store(ROOT / "results"))
    for method, path in fresh.items():
        words = "\n".join(texts(path))
        for setup, backbone, records in compared(found, method):
            assert list(records) == list(dict.fromkeys(("plain", method, "damper")))
            assert len({record.identity["seed"] for record in records.values()}) == 1, (
                "the same training seed"
            )
            assert (
                len({record.trace["seed"] for record in records.values() if record.trace}) == 1
            ), "the same episode"
            assert (
                f"Pendulum, {backbone.upper()}, protocol {setup.protocol}, training seed" in words
            )
            for record in records.values():
                assert record.trace is not None
                assert f"sm {smoothness(unpack_trace(record.trace)):.3f}" in words


def test_each_page_shows_its_picture_and_names_the_records(fresh: dict[str, Path]) -> None:
    for method in fresh:
        folder = "rules" if METHODS[method].rule else "methods"
        page = (ROOT / "docs" / folder / f"{method}.md").read_text(encoding="utf-8")
        assert f"](../figures/methods/{method}.svg)" in page
        _, _, records = compared(setups(Store(ROOT / "results")), method)[0]
        seed = records["plain"].identity["seed"]
        folder = f"results/{records['plain'].identity['protocol']}/Pendulum"
        assert f"training seed {seed} in `{folder}`" in " ".join(page.split())


def test_without_records_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        DamperError,
        match=r"^results must hold traced Pendulum records .* run python -m paper reproduce first",
    ):
        draw_method_figures(tmp_path, tmp_path / "out")
