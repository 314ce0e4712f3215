"""The shape of the code base."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import damper
from damper.provenance import DISTRIBUTION

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "damper"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# A module imports from its own ring and from rings above, never from one below.
RINGS = [
    # Words and numbers that need nothing.
    {"_checks", "activations", "errors", "schedules", "tasks", "terminal", "version"},
    # Two gradients in, one out; numbers about actions. No environment, no file.
    {"rules", "losses", "interface", "methods", "method_args", "metrics", "presets", "protocols"}
    | {"theory", "_backward", "inspection", "intervals", "jax", "settings", "tables"},
    # What is written and read.
    {"files", "provenance", "seed_groups"},
    # What trains, acts, is evaluated and exported.
    {"agents", "engine", "export", "policies", "rsl_rl", "sb3"},
    {"compare", "plots"},
    {"cli"},
    {"__init__", "__main__"},
]
RANK = {room: rank for rank, ring in enumerate(RINGS) for room in ring}
PICKLING = {
    "pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "load_from_pkl",
    "save_to_pkl",
}
UNPICKLES_WHEN_TRUSTED = {
    ("src/damper/sb3/convert.py", "load_from_pkl")
}  # SB3's VecNormalize has no other form


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    files = [ROOT / file for file in listed.split("\0") if file]
    assert files
    return [file for file in files if file.is_file()]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(path: Path) -> Iterator[str]:
    """Dotted names of everything that a file imports, wherever the import stands.

    Relative ones made absolute.
    """
    here = ("damper", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            strings = [str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)]
            yield from (string for string in strings if re.fullmatch(r"\w+(\.\w+)*", string))


def room(dotted: str) -> str:
    """Room of an imported name of the package.

    What is not a module there comes from its ``__init__``.
    """
    first = dotted.split(".")[1] if "." in dotted else "__init__"
    return (
        first if (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file() else "__init__"
    )


def own_room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_go_one_way() -> None:
    unplaced = {own_room(path) for path in SOURCES} - set(RANK)
    assert unplaced == set(), "a room has no place yet: put it where it belongs in RINGS"
    wrong = [
        f"{name(path)} imports {dotted}"
        for path in SOURCES
        for dotted in imported(path)
        if dotted.split(".")[0] == "damper" and RANK[room(dotted)] > RANK[own_room(path)]
    ]
    assert wrong == [], "a module may import only from its own ring and those before it"


def test_the_package_knows_nothing_of_the_evidence() -> None:
    wrong = [
        f"{name(path)} imports {dotted}"
        for path in SOURCES
        for dotted in imported(path)
        if dotted.split(".")[0] in ("paper", "tests")
    ]
    assert wrong == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/damper"]}
    assert project["project"]["scripts"] == {"damper": "damper.cli:main"}


def test_importing_what_evaluates_imports_no_drawing() -> None:
    code = "import sys, damper; damper.train, damper.evaluate; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    rooms = {module.split(".")[1] for module in done.stdout.split() if module.startswith("damper.")}
    assert {"engine", "rules"} <= rooms and not {"plots", "compare", "cli"} & rooms


def test_what_trains_knows_no_loss_by_name() -> None:
    # One more loss must not change the engine or the SB3 classes: they take what ``damper.methods``
    # hands them.
    wrong = [
        f"{name(path)} imports {dotted}"
        for path in SOURCES
        if own_room(path) in ("engine", "sb3")
        for dotted in imported(path)
        if dotted.startswith("damper.losses")
    ]
    assert wrong == []


def module(path: Path) -> str:
    return ".".join(("damper", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


MODULES = {module(path) for path in SOURCES}


def test_no_import_is_circular() -> None:
    # Imports inside functions and under TYPE_CHECKING count: there a circle does no harm until
    # somebody moves them.
    left = {
        module(path): {other for dotted in imported(path) for other in known_modules(dotted)}
        for path in SOURCES
    }
    while True:
        needed = {other for name, needs in left.items() for other in needs - {name}}
        free = [
            name
            for name, needs in left.items()
            if name not in needed or not needs & (left.keys() - {name})
        ]
        if not free:
            break
        left = {name: needs for name, needs in left.items() if name not in free}
    circle = {name: sorted(needs & left.keys()) for name, needs in left.items()}
    assert circle == {}, "modules import each other: move what both need to a third"


def known_modules(dotted: str) -> list[str]:
    """The module that an imported name is or lies in; packages above it are not asked for."""
    parent = dotted.rpartition(".")[0]
    return [name for name in (dotted, parent) if name in MODULES][:1]


def test_tests_lie_in_the_rooms_of_what_they_test() -> None:
    rooms = {path.parent for path in tracked() if path.name.startswith("test_")}
    places = {ROOT / "tests": PACKAGE, ROOT / "paper" / "tests": ROOT / "paper"}
    tested = [
        (room, source / room.relative_to(tests))
        for room in rooms
        for tests, source in places.items()
        if room.is_relative_to(tests)
    ]
    assert len(tested) == len(rooms)
    assert [name(room) for room, source in tested if not source.is_dir()] == []


def test_no_code_path_depends_on_being_compiled() -> None:
    # How an update runs is chosen where a learner is built. Three checks of what a caller hands in
    # read what a trace cannot; none tells anybody else whether there is one.
    asking = {
        f"{name(path)}: {function.name}"
        for path in SOURCES
        for function in ast.walk(parse(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and asks_whether_compiled(function)
    }
    checks = {
        "src/damper/_checks.py: check_range",
        "src/damper/rules/_report.py: _versions",
        "src/damper/losses/temporal.py: look",
    }
    assert asking == checks
    mentioned = [name(path) for path in SOURCES if "_compiling" in path.read_text(encoding="utf-8")]
    assert mentioned == sorted(check.partition(":")[0] for check in checks)


def asks_whether_compiled(function: ast.AST) -> bool:
    mentioned = [
        part
        for node in ast.walk(function)
        for part in (getattr(node, "attr", ""), getattr(node, "id", ""))
    ]
    return any(name.endswith("_compiling") for name in mentioned)


def test_nothing_is_pickled() -> None:
    parts = {
        (name(path), part)
        for path in SOURCES
        for dotted in imported(path)
        for part in dotted.split(".")
    }
    assert {(path, part) for path, part in parts if part in PICKLING} == UNPICKLES_WHEN_TRUSTED


@pytest.mark.parametrize(("package", "pages"), [("rules", "rules"), ("losses", "methods")])
def test_each_has_a_test_and_a_page(package: str, pages: str) -> None:
    stems = [path.stem for path in (PACKAGE / package).glob("[!_]*.py")]
    expected = [ROOT / "tests" / package / f"test_{stem}.py" for stem in stems]
    expected += [ROOT / "docs" / pages / f"{stem.replace('_', '-')}.md" for stem in stems]
    assert stems
    assert sorted(name(path) for path in expected if not path.is_file()) == []


def test_files_name_no_machine_and_no_registry() -> None:
    local = r"(?<![\w.:/-])/(?:home|root|work|opt|Users|mnt)/\w"
    registry = (
        r"pypi[.]org|pythonhosted[.]org|npmjs[.]|download[.]pytorch[.]org|conda[.]anaconda[.]org"
    )
    texts = {name(file): file.read_bytes().decode("utf-8", "ignore") for file in tracked()}
    mentions = {
        file: match[0]
        for file, text in texts.items()
        if (match := re.search(f"{local}|{registry}", text))
    }
    assert mentions == {}


def test_what_pip_installs_is_called_by_its_name() -> None:
    # "damper" is somebody else's on the Python Package Index: whoever follows a message must not
    # fetch that.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    extras = project["optional-dependencies"]
    wrong = rf"(?<![\w.-])damper\[(?:{{extra}}|{'|'.join(extras)})"
    wrong += r"|\binstall (?:-\S+ )*[\"']?damper(?![\w-])"
    files = [
        path
        for path in tracked()
        if path.suffix in (".py", ".md", ".toml", ".yml") or not path.suffix
    ]
    texts = {
        name(path): path.read_text(encoding="utf-8") for path in files if "tests" not in path.parts
    }
    texts.pop("CHANGELOG.md")  # tells what the name was
    misnamed = {file: match[0] for file, text in texts.items() if (match := re.search(wrong, text))}
    assert misnamed == {}
    offered = {
        extra for text in texts.values() for extra in re.findall(r"damper-rl\[([\w,-]+)\]", text)
    }
    assert offered and {name for extra in offered for name in extra.split(",")} <= set(extras)


def test_extras_bring_only_what_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [
        wanted
        for extra, wanted in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")
    ]
    brought = {
        re.split("[<>=]", need)[0]
        for wanted in (project["dependencies"], *extras)
        for need in wanted
    }
    brought -= {
        "imageio",
        "packaging",
        "pygame-ce",
        "box2d",
        "tensorboard",
    }  # Gymnasium or torch imports these
    names = {"imageio[ffmpeg]": "imageio_ffmpeg", "rsl-rl-lib": "rsl_rl", "sbx-rl": "sbx"}
    wanted = {names.get(need, need.replace("-", "_")) for need in brought}
    sources = [*SOURCES, *(ROOT / "paper").rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert wanted - {*re.findall(r'(?:\bimport |\bfrom |")(\w+)', code)} == set()


def test_the_installation_page_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert {*re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)} == set(extras)


def test_the_versions_of_python_are_told_alike() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, beyond = map(int, re.findall(r"3\.(\d+)", project["requires-python"]))
    classified = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    assert [*map(int, classified)] == [*range(first, beyond)]


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {damper.__version__}\n" in (ROOT / "CITATION.cff").read_text(
        encoding="utf-8"
    )
