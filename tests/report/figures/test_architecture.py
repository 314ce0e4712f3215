"""The map of the code leads where it says: every module on it exists, and a transition does pass through it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from damper.cli import main
from damper.report.figures.architecture import WALK, architecture
from damper.report.figures.style import draw_all
from tests.pictures import texts
from tests.test_layout import MODULES as EVERY_MODULE
from tests.test_layout import SOURCES, imported, known_modules, module

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "damper"
PAGE, STEPS = (
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("architecture.md", "changing.md")
)
MODULES = [module for stage in WALK for module in stage.modules]


def named() -> Iterator[str]:
    """Every file and folder that the two pages or the picture name."""
    yield from (path for module in MODULES for path in (module.path, *module.instead))
    code = re.sub(r"```.*?```", "", PAGE + STEPS, flags=re.DOTALL)
    yield from (
        word
        for word in re.findall(r"`([\w./-]+)`", code)
        if "/" in word or word.endswith((".py", ".md"))
    )


def test_every_module_that_the_map_names_exists() -> None:
    names = list(named())
    assert len(names) > 60
    places = [(PACKAGE / name, ROOT / name) for name in names if "my_" not in name]
    assert [
        str(place.relative_to(PACKAGE))
        for place, other in places
        if not (place.exists() or other.exists())
    ] == []


def test_every_name_that_the_map_gives_is_in_its_file() -> None:
    text = (PAGE + STEPS).replace("\n  ", " ")
    several = re.findall(r"`([\w/]+\.py)`: ((?:(?:, | and | or )?`\w+`(?!:))+)", text)
    found = [(file, name) for file, names in several for name in re.findall(r"`(\w+)`", names)]
    assert len(found) > 150
    files = {
        file: (ROOT if file.startswith("tests/") else PACKAGE) / file
        for file, _ in found
        if "my_" not in file
    }
    known = {file: set(defined(path)) for file, path in files.items()}
    assert [pair for pair in found if pair[0] in known and pair[1] not in known[pair[0]]] == []


def defined(path: Path) -> Iterator[str]:
    """Names that a file defines: functions, classes, and whatever is assigned, fields and attributes included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_a_name_that_is_only_mentioned_is_not_defined(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import a\n# b\nclass C:\n    d: int = e\n    def f(self):\n        self.g, h.i = 'j', k()\n"
    )
    assert sorted(defined(file)) == ["C", "d", "f", "g", "i"]


def test_every_change_has_a_row_and_names_a_test() -> None:
    """The map's rows and the steps are the same changes in the same order; a strict build checks the rows' links."""
    rows = re.findall(r"^\| \[(.+)\]\(changing\.md#[\w-]+\) \|", PAGE, re.MULTILINE)
    changes = [part.split("\n", 1) for part in STEPS.split("\n### ")[1:]]
    assert rows == [title[0].lower() + title[1:] for title, _ in changes] and len(rows) > 30
    without = [
        title
        for title, text in changes
        if not re.search(r"^- \*\*Tests\*\*.*`tests/", text, re.MULTILINE)
    ]
    assert without == []


def rooms() -> dict[str, int]:
    """Every room of the page's table, a folder or a file, and in which row it stands."""
    rows = re.findall(r"^\| (`.+?`) \|", PAGE.split("## Rooms")[1], re.MULTILINE)
    return {
        room: row
        for row, text in enumerate(rows)
        for room in re.findall(r"`([\w/]+?)(?:/|\.py)`", text)
    }


def test_every_module_has_its_room() -> None:
    files = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    houses = (".", "engine", "report")  # all of whose rooms and files have rows of their own
    folders = {str(file.parent) for file in files} - {*houses, "cli/options"}
    alone = {str(file.with_suffix("")) for file in files if str(file.parent) in houses}
    assert folders | {file for file in alone if "__" not in file} <= rooms().keys()


def test_a_module_imports_only_from_its_own_row_and_from_rows_above() -> None:
    row = rooms()

    def place(one: str) -> int:
        path = one.removeprefix("damper.").replace(".", "/")
        inside = [room for room in row if f"{path}/".startswith(f"{room}/")]
        return (
            row[max(inside, key=len)] if inside else len(row)
        )  # behind all: damper itself, damper.engine, ...

    rank = {one: place(one) for one in EVERY_MODULE}
    wrong = [
        f"{module(path)} imports {other}"
        for path in SOURCES
        for dotted in imported(path)
        for other in known_modules(dotted)
        if rank[other] > rank[module(path)]
    ]
    assert wrong == []


def test_the_published_picture_is_that_of_the_walk(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_all({"architecture": architecture}, tmp_path, ["svg"])
    published = ROOT / "docs" / "figures" / "architecture.svg"
    assert texts(tmp_path / "architecture.svg") == texts(published), (
        "run damper figures --out docs/figures"
    )
    assert "](figures/architecture.svg)" in PAGE


def test_a_transition_passes_every_module_of_the_walk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code  # of a function with a name: importing a module runs the others
        if (
            event == "call"
            and code.co_flags & inspect.CO_OPTIMIZED
            and not code.co_name.startswith("<")
        ):
            entered.add(code.co_filename)

    train = (
        "reproduce td3-table --tasks Pendulum --methods plain damper --seeds 1 --steps 60 "
        "--net-arch 8"
    )
    train += (
        " --batch-size 8 --learning-starts 20 --log-every 30 --checkpoint-every 30 --episodes 1"
    )
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        main(f"{train} --results {tmp_path}/results --out {tmp_path}/runs".split())
        main(f"report --results {tmp_path}/results --out {tmp_path}/report --formats".split())
    finally:
        sys.setprofile(before)
    passed = {module.path: str(PACKAGE / module.path) in entered for module in MODULES}
    assert [path for path, was_entered in passed.items() if not was_entered] == []
