"""The bench page's pictures show what its measurements hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from damper.errors import DamperError
from paper.bench.result import Measurement, read
from paper.figures.bench import draw_bench_figures
from tests.pictures import kept_figures, texts

pytest.importorskip("matplotlib")
DOCS = Path(__file__).parents[3] / "docs"


def test_the_published_pictures_are_those_of_the_measurements(tmp_path: Path) -> None:
    fresh = draw_bench_figures(DOCS / "bench", tmp_path)
    assert [path.name for path in fresh] == ["cost.svg", "scaling.svg"]
    page = (DOCS / "bench.md").read_text(encoding="utf-8")
    for path in fresh:
        again = (
            "run python -m paper figures --bench docs/bench --out docs/figures/bench --formats svg"
        )
        assert texts(path) == texts(DOCS / "figures" / "bench" / path.name), again
        assert f"figures/bench/{path.name}" in page


def test_every_ratio_is_written_at_its_bar(tmp_path: Path) -> None:
    cost, scaling = (texts(path) for path in draw_bench_figures(DOCS / "bench", tmp_path))
    for machine in ("cpu", "h200"):
        for row in read(DOCS / "bench" / machine / "update.json").rows:
            if row["method"] not in ("plain", "plain, SB3"):
                assert {f"{row[column]:.2f}" for column in ("× plain", "paper's × plain")} <= set(
                    cost
                )
    for row in read(DOCS / "bench" / "h200" / "scaling.json").rows:
        if row["method"] == "damper":
            assert f"{row['µs per agent']:.3g}" in scaling and str(row["agents"]) in scaling


def test_one_backbone_and_some_methods_are_enough(tmp_path: Path) -> None:
    for name in ("update", "scaling"):
        found = json.loads((DOCS / "bench" / "h200" / f"{name}.json").read_text(encoding="utf-8"))
        found["rows"] = [
            row for row in found["rows"] if row["backbone"] == "TD3" and row["method"] != "pave"
        ]
        found["rows"] += [
            {**row, "method": "mgda"} for row in found["rows"] if row["method"] == "damper"
        ]
        (tmp_path / "here").mkdir(exist_ok=True)
        (tmp_path / "here" / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")
    cost, scaling = (texts(path) for path in draw_bench_figures(tmp_path, tmp_path / "out"))
    assert (
        {"damper", "asap", "HERE"} <= set(cost)
        and not {"pave", "SAC"} & set(cost)
        and "TD3 mgda" in scaling
    )


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DamperError, match=r"one per machine, .* python -m paper bench --out FOLDER/MACHINE"
    ):
        draw_bench_figures(tmp_path, tmp_path)


def test_a_measurement_s_plot_has_values_and_a_panel_per_backbone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_figures(monkeypatch)
    rows = [
        {"backbone": b, "method": m, "ms": ms}
        for b in ("TD3", "SAC")
        for m, ms in (("plain", 0.5), ("damper", 50))
    ]
    Measurement("update", "Update time", "", rows, ("ms",)).save(
        tmp_path, "python -m paper bench update"
    )
    axes = kept[0].axes
    assert [panel.get_title(loc="left") for panel in axes] == ["TD3", "SAC"]
    assert [text.get_text() for text in axes[0].texts] == ["0.500", "50"]
    assert [tick.get_text() for tick in axes[0].get_yticklabels()] == ["plain", "damper"]
    assert axes[0].get_xscale() == "log" and "log" in axes[0].get_xlabel()
