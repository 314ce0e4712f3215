"""The figures: the same drawing is the same file, and every label can be read."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure
from matplotlib.text import Text

from damper.errors import DamperError
from damper.plots.style import Draw, styled
from paper.figures.theory import FIGURES, FORMULAS, draw_theory


def test_draw_writes_each_figure_in_each_format(tmp_path: Path) -> None:
    paths = draw_theory(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        f"{name}.{suffix}" for name in ("overview", "gain", "metrics") for suffix in ("svg", "png")
    ]
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir()), (
        "nothing temporary is left"
    )
    for path in paths:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_same_drawing_is_the_same_file(suffix: str, tmp_path: Path) -> None:
    first, second = (draw_theory(tmp_path / name, formats=[suffix]) for name in ("first", "second"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("draw", FIGURES.values())
def test_labels_neither_overlap_nor_leave_the_page(draw: Draw) -> None:
    with styled(FORMULAS if draw in FIGURES.values() else None):
        page = Figure(layout="constrained")
        draw(page)
        page.draw_without_rendering()
        boxes = [(text.get_text(), text.get_window_extent()) for text in visible_labels(page)]
    assert len(boxes) > 10
    for text, box in boxes:
        assert page.bbox.x0 <= box.x0 < box.x1 <= page.bbox.x1, text
        assert page.bbox.y0 <= box.y0 < box.y1 <= page.bbox.y1, text
    for (text, box), (other_text, other_box) in itertools.combinations(boxes, 2):
        assert not box.overlaps(other_box), (text, other_text)


def visible_labels(figure: Figure) -> list[Text]:
    """What a reader sees: not the tick labels of hidden axes or of ticks outside the axes."""
    shown = [text for axes in figure.axes for text in (*axes.texts, axes.title, axes._left_title)]
    for axes in figure.axes:
        legend = axes.get_legend()
        shown += [*legend.get_texts(), legend.get_title()] if legend else []
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            shown += [axis.label, *(tick.label1 for tick in ticks)] if axes.axison else []
    return [text for text in shown if text.get_visible() and text.get_text()]


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamperError, match="formats must be among svg, png, pdf, but gif"):
        draw_theory(tmp_path, formats=["gif"])


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DamperError, match=r'pip install "damper-rl\[plot\]"'):
        draw_theory(tmp_path)
