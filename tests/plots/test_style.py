"""One look per method in every picture: figures, page, terminal pictures, bench."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from matplotlib import rcParams
from matplotlib.image import imread

from damper.errors import DamperError
from damper.methods import METHODS
from damper.plots.style import DPI, LOOKS, draw_all, look, saved_figure, shades

SHAPES = {
    "circle": "o",
    "square": "s",
    "up": "^",
    "diamond": "D",
    "down": "v",
    "plus": "P",
    "cross": "X",
    "left": "<",
}
SHAPES |= {"right": ">", "hexagon": "h", "pentagon": "p"}


def page(name: str) -> str:
    return files("paper").joinpath("pages", "html", name).read_text(encoding="utf-8")


def test_the_page_has_the_figures_colours_and_markers() -> None:
    light = page("style.css").partition("@media")[0]
    colours = dict(re.findall(r"--m-([a-z0-9-]+): (#[0-9a-f]{6})", light))
    assert {method: colours[method] for method in LOOKS} == {
        method: own.colour for method, own in LOOKS.items()
    }
    listed = re.search(r"const MARKERS = \{(.*?)\};", page("chart.js"), re.S)
    assert listed
    markers = dict(re.findall(r'"?([a-z0-9-]+)"?: "(\w+)"', listed[1]))
    assert {method: SHAPES[shape] for method, shape in markers.items()} == {
        m: own.marker for m, own in LOOKS.items()
    }


def lightness(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


def test_looks_differ_also_in_grey_and_stand_out_from_paper() -> None:
    for part in zip(*LOOKS.values(), strict=True):  # colours, markers, dashes
        assert len(set(part)) == len(LOOKS)
    assert all(1.05 / (lightness(own.colour) + 0.05) > 2.9 for own in LOOKS.values())
    assert {look(method) for method in METHODS} >= set(LOOKS.values())


def test_settings_of_one_method_are_shades_of_its_colour() -> None:
    assert shades("damper", 1) == [look("damper")]
    five = shades("damper", 5)
    assert five[-1].colour == look("damper").colour and len({own.colour for own in five}) == 5
    assert [lightness(own.colour) for own in five] == sorted(
        (lightness(own.colour) for own in five), reverse=True
    )


def test_pictures_are_sharp_and_the_same_bytes(tmp_path: Path) -> None:
    def draw(name: str) -> bytes:
        with saved_figure(tmp_path / name) as figure:
            figure.set_size_inches(2, 1)
            figure.subplots()
        return (tmp_path / name).read_bytes()

    assert DPI >= 150
    assert draw("a.png") == draw("b.png")
    assert draw("a.svg") == draw("b.svg")
    assert imread(tmp_path / "a.png").shape[:2] == (DPI, 2 * DPI)


def test_drawing_leaves_the_user_s_matplotlib_alone(tmp_path: Path) -> None:
    before = dict(rcParams)
    with saved_figure(tmp_path / "a.svg"):
        assert dict(rcParams) != before
    assert dict(rcParams) == before


@pytest.mark.parametrize("name", ["old.svg", "new.svg"])
def test_a_figure_that_fails_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "old.svg").write_text("old")
    with pytest.raises(ZeroDivisionError), saved_figure(tmp_path / name):
        raise ZeroDivisionError
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamperError, match="formats must be among svg, png, pdf, but gif was given"):
        draw_all({"a": lambda _: None}, tmp_path, ["svg", "gif"])
    assert list(tmp_path.iterdir()) == []
