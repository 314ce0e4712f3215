"""The documentation is executed: every ``python`` block runs, every command and link exists."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

import damper
from damper.errors import MissingExtraError

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<no_run>^[ \t]*<!-- no-run: .+? -->\s*)?"
    r"^(?P<indent>[ \t]*)```[ \t]*\{?\.?(?:python|py)\b[^\n]*\n(?P<code>.*?)^(?P=indent)```[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


# What a page shows at full size runs here at a small one.
SHORTER = [(re.compile(r"(total_timesteps=)[\d_]{5,}"), r"\g<1>120")]


class Block(NamedTuple):
    code: str
    runs: bool


def blocks(markdown: str) -> list[Block]:
    """The page's python blocks in order, on their own lines, so that tracebacks fit the page."""
    listed = []
    for match in BLOCK.finditer(markdown):
        lines_above = markdown.count("\n", 0, match.start("code"))
        listed.append(
            Block("\n" * lines_above + textwrap.dedent(match["code"]), match["no_run"] is None)
        )
    return listed


def shorter(code: str) -> str:
    for pattern, small in SHORTER:
        code = pattern.sub(small, code)
    return code


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
@patch.dict(damper.METHODS)  # what a page registers is forgotten after it
@patch.dict(damper.rules.RULES)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        ast.parse(block.code, filename=name(page))
        if block.runs:
            exec(compile(shorter(block.code), page, "exec"), namespace)


def test_most_blocks_run() -> None:
    everywhere = [block for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))]
    assert sum(block.runs for block in everywhere) > len(everywhere) / 2


def test_blocks_are_found_wherever_they_stand() -> None:
    page = "a\n```python\nx = 1\n```\n<!-- no-run: needs a robot -->\n\n```python\ny = 2\n```\n"
    page += '=== "tab"\n\n    ```python title="t"\n    z = 3\n    ```\n```bash\nls\n```\n'
    assert blocks(page) == [
        Block("\n" * 2 + "x = 1\n", True),
        Block("\n" * 7 + "y = 2\n", False),
        Block("\n" * 12 + "z = 3\n", True),
    ]


def test_the_readme_begins_with_what_a_user_would_write() -> None:
    first = blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert first.runs
    assert "total_timesteps=20_000" in first.code and "total_timesteps=120" in shorter(first.code)
    assert not re.search("net_arch|learning_starts|batch_size", first.code), (
        "toy sizes are for tests"
    )


def test_the_readme_s_first_screen() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    screen = text[: text.index("\n## ")]
    assert len(screen.splitlines()) < 50 and screen.count("\n| ") <= 2 + 12, (
        "a dozen rows and their header"
    )
    pictures = re.findall(r'src="([^"]+)"', screen)
    assert len(pictures) == 1 and (ROOT / pictures[0]).stat().st_size < 2_000_000


def defined_in(module: Any) -> list[Any]:
    """What a module defines itself."""
    values = vars(module).values()
    return [value for value in values if getattr(value, "__module__", None) == module.__name__]


def documented() -> Iterator[Any]:
    """Every object that the reference shows: those named, and members of modules."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for path, options in re.findall(r"^::: (\S+)\n((?:[ ]+.*\n)*)", page, re.MULTILINE):
        target = pkgutil.resolve_name(path)
        members = re.search(r"members: \[(.+)\]", options)
        if not inspect.ismodule(target):
            yield target
        elif members:
            yield from (getattr(target, member) for member in members[1].split(", "))
        else:
            yield from defined_in(target)


def test_the_reference_has_every_public_name() -> None:
    public = [getattr(damper, name) for name in damper.__all__]
    public += defined_in(damper.interface)
    described = [value for value in public if inspect.isclass(value) or inspect.isfunction(value)]
    shown = [id(value) for value in documented()]
    missing = [value for value in described if id(value) not in shown]
    assert len(public) > 20 and missing == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/install.md"])
def test_make_commands_exist(page: str) -> None:
    targets = set(
        re.findall(
            r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    # Commands start a line of a block or stand in backquotes; assignments such as PYTHON=… are not
    # targets.
    commands = re.findall(
        r"(?:^|`)make((?: [\w=.-]+)+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    named = {word for command in commands for word in command.split() if "=" not in word}
    assert named, f"{page} names no make command"
    assert named <= targets


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_names_in_the_text_exist_and_can_be_called_where_they_are() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"`(damper(?:\.\w+)+)(\(?)", text))
    assert len(named) > 20
    for name, called in sorted(named):
        try:
            target = pkgutil.resolve_name(name)
        except MissingExtraError:
            continue
        assert callable(target) or not called, name
