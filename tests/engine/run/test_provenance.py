from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import damper
from damper.engine.run import provenance
from damper.engine.run.provenance import (
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
    (copy / "experiments" / "paper.json").write_text("{}")
    assert len({source_digest(), renamed, digest_of(copy)}) == 3


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
