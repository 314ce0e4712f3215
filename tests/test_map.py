"""The map of the code: every path that it names exists, and it names every room."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "damper"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TREE = PAGE.split("```text\n")[1].split("```")[0]
TABLES = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)


def paths_in_the_tables() -> set[str]:
    """Files and folders in backquotes."""
    quoted = re.findall(r"`([\w./-]+)`", TABLES)
    return {word for word in quoted if "/" in word or word.endswith((".py", ".md"))}


def paths_in_the_tree() -> set[str]:
    """Files and folders of the package that the tree names, wherever in a line."""
    package, paper = TREE.split("\nresults/")[0].split("\npaper/")
    paths = set(re.findall(r"(?<!\S)[\w./]+(?:/|\.py)(?=[\s,:;]|$)", package + "\n"))
    return paths | {f"paper/{word}" for word in re.findall(r"(?<=\s)\w+/(?=\s)", paper)}


def exists(path: str) -> bool:
    return (PACKAGE / path).exists() or (ROOT / path).exists()


def test_every_path_of_the_map_exists() -> None:
    paths = paths_in_the_tables() | paths_in_the_tree()
    assert len(paths) > 60
    assert sorted(path for path in paths if not exists(path)) == []


def test_the_tree_names_every_room() -> None:
    packages = [PACKAGE, PACKAGE / "engine"]
    rooms = {
        str(folder.parent.relative_to(PACKAGE))
        for package in packages
        for folder in package.glob("*/__init__.py")
    }
    named = {path.rstrip("/") for path in paths_in_the_tree()}
    assert sorted(rooms - named - {"engine"}) == []
