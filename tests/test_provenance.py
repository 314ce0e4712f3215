from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import damper
from damper import provenance
from damper.provenance import (
    NOT_HASHED,
    code_version,
    commit,
    digest_of,
    origin,
    source_digest,
    versions,
)

PACKAGE = Path(damper.__file__).parent


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.autocrlf=false"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def checkout(root: Path, project: str | None, package: str = "src/damper") -> Path:
    """A repository with one commit: a copy of the package, and a project file of this name."""
    copy = root / package
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if project is not None:
        (root / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n')
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "one")
    return copy


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAMPER_COMMIT", raising=False)
    source_digest()  # of the real package, before a test puts another one in its place


def test_a_checkout_of_our_own_names_its_commit_and_changes_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = checkout(tmp_path, "damper-rl")
    monkeypatch.setattr(provenance, "PACKAGE", copy)
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit() == head
    (tmp_path / "results.json").write_text("{}")
    assert commit() == head, "a record that was just written changes no code"
    (copy / "errors.py").write_text("# other\n")
    assert commit() == f"{head}+changes"
    assert code_version()["origin"] is None
    monkeypatch.setenv("DAMPER_COMMIT", "told")
    assert commit() == "told"


@pytest.mark.parametrize(
    ("project", "package"),
    [
        (None, "damper"),
        ("theirs", "src/damper"),
        ("theirs", "vendor/damper"),
        ("damper-rl", "vendor/damper"),
    ],
)
def test_a_copy_in_a_foreign_repository_names_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str | None, package: str
) -> None:
    monkeypatch.setattr(provenance, "PACKAGE", checkout(tmp_path, project, package))
    assert commit() is None


def test_an_installation_inside_our_own_checkout_names_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout(tmp_path, "damper-rl")
    installed = tmp_path / ".venv" / "damper"
    shutil.copytree(tmp_path / "src" / "damper", installed)
    monkeypatch.setattr(provenance, "PACKAGE", installed)
    assert commit() is None
    git(tmp_path, "rm", "-r", "--cached", "--quiet", "src")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "src" / "damper")
    assert commit() is None, "the repository does not track it"


def test_the_digest_is_that_of_the_source_and_of_nothing_else(tmp_path: Path) -> None:
    copy = tmp_path / "damper"
    shutil.copytree(PACKAGE, copy)
    assert digest_of(copy) == source_digest()
    for path in copy.rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    (copy / "notes.txt").write_text("nothing")
    assert digest_of(copy) == source_digest(), "line endings and strangers' files decide nothing"
    shutil.move(copy / "errors.py", copy / "mistakes.py")
    renamed = digest_of(copy)
    (copy / "rules" / "settings.json").write_text("{}")
    assert len({source_digest(), renamed, digest_of(copy)}) == 3


def test_the_digest_covers_what_trains_and_evaluates_and_nothing_else(tmp_path: Path) -> None:
    copy = tmp_path / "damper"
    shutil.copytree(PACKAGE, copy)
    rooms = {path.relative_to(copy).parts[0] for path in copy.rglob("*.py")}
    assert set(NOT_HASHED) < rooms, "a room that is left out has another name now"
    for room in sorted(rooms):
        before = digest_of(copy)
        edited = copy / room if room.endswith(".py") else copy / room / "__init__.py"
        edited.write_text(edited.read_text() + "# edited\n")
        assert (digest_of(copy) == before) == (room in NOT_HASHED), room


def test_what_the_digest_leaves_out_is_not_imported_to_train_or_evaluate() -> None:
    code = "import sys, damper; damper.train, damper.Evaluation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    used = {name.split(".")[1] for name in done.stdout.split() if name.startswith("damper.")}
    left_out = {room.removesuffix(".py") for room in NOT_HASHED}
    # They print, or open files of other libraries: neither changes a run's result.
    assert used & left_out <= {"terminal", "export"}


INSTALLED = [
    ({}, "damper-rl==9.9"),
    (
        {"url": "https://x.y/damper.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
        "git+https://x.y/damper.git@abc",
    ),
    (
        {"url": "https://x.y/damper_rl.whl", "archive_info": {"hashes": {"sha256": "12"}}},
        "https://x.y/damper_rl.whl#sha256=12",
    ),
    ({"url": "file:///secret/place/sources", "dir_info": {}}, "file:sources"),
]


@pytest.mark.parametrize(("told", "expected"), INSTALLED)
def test_an_installation_tells_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, object], expected: str
) -> None:
    facts = tmp_path / "damper_rl-9.9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: damper-rl\nVersion: 9.9\n")
    if told:
        (facts / "direct_url.json").write_text(json.dumps(told))
    monkeypatch.syspath_prepend(tmp_path)
    before = origin()
    assert before != expected, "what is installed there is another copy than the one that runs"
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path.resolve() / "damper")
    assert origin() == expected
    assert code_version() == {"source": source_digest(), "commit": None, "origin": expected}


def test_an_editable_installation_is_the_folder_that_it_points_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tmp_path / "site" / "damper_rl-9.9.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: damper-rl\nVersion: 9.9\n")
    (facts / "direct_url.json").write_text(
        json.dumps({"url": (tmp_path / "mine").as_uri(), "dir_info": {"editable": True}})
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path.resolve() / "mine" / "src" / "damper")
    assert origin() == "file:mine"


def test_the_version_is_known_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance.importlib.metadata, "version", lambda name: "a stranger's")
    assert versions()["damper"] == damper.__version__
