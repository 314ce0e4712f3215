"""``python -m paper`` as users type it: its help, its files, one sentence for a mistake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from damper.errors import MissingExtraError
from paper.cli import PAPER, main
from paper.cli.options.report import Report
from paper.cli.report import run as run_report
from paper.figures.theory import draw_theory
from paper.runners.on_ray import _connect
from paper.runners.workers import MOST_ON_A_GPU
from tests import tiny
from tests.cli.test_help import options

ROOT = Path(__file__).parents[2]
COMMAND_LINE = re.compile(rf"python -m paper ({'|'.join(PAPER.commands)})\b([^`\n#|]*)")
WRITING = {
    "reproduce": ("eta-sweep", "--steps", "10"),
    "report": (),
    "figures": (),
    "bench": ("update",),
}


def call(*words: object) -> None:
    main([str(word) for word in words])


def failure(capsys, *words: object) -> str:
    with pytest.raises(SystemExit) as stopped:
        call(*words)
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", PAPER.commands)
def test_every_option_shows_what_happens_where_it_is_left_out(command):
    shown = options(command, main)
    assert len(shown) > 1
    for name, words in shown.items():
        if name != "--help":
            assert re.search(r"\(required\)|\(default: [^\s)]", words), words
            assert "None" not in words, words


def test_commands_on_the_pages_have_the_options_they_name():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, command, option)
        for page in pages
        for command, rest in COMMAND_LINE.findall(
            page.read_text(encoding="utf-8").replace("\\\n", " ")
        )
        for option in re.findall(r"--[a-z][\w-]*", rest)
    }
    assert len(named) > 5
    assert [use for use in sorted(named) if use[2] not in options(use[1], main)] == []


def test_help_and_page_tell_the_numbers_of_the_code():
    most = f"up to {MOST_ON_A_GPU} and half the cores"
    assert most in options("reproduce", main)["--workers"]
    assert most in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_help_and_typos_import_no_torch():
    words = [["--help"], *([name, "--help"] for name in PAPER.commands), ["reprodcue"]]
    code = f"""
import sys
from paper.cli import main

for words in {words!r}:
    try:
        main(words)
    except SystemExit as stopped:
        assert stopped.code in (None, 0, 2), words
    slow = {{"torch", "numpy", "gymnasium"}} & set(sys.modules)
    assert not slow, (words, slow)
"""
    asked = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert asked.returncode == 0, asked.stderr
    assert "'reprodcue' was given: did you mean 'reproduce'?" in asked.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("reproduce", "pegrad", "--seeds", "3", "--seed", "7", "8"),
            "seeds must be left out when --seed names them",
        ),
        (("report",), "results must be a folder of records, but results does not exist"),
        (
            ("report", "--pages", "nowhere.md"),
            "pages must be Markdown files, but nowhere.md is not a file",
        ),
    ],
)
def test_a_mistake_ends_with_code_2_and_one_sentence(
    capsys, monkeypatch, tmp_path, words, sentence
):
    monkeypatch.chdir(tmp_path)
    message = failure(capsys, *words)
    assert sentence in message and message.startswith("damper: ")
    assert "Traceback" not in message and not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", WRITING)
def test_out_must_be_a_folder_that_can_be_written(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        message = failure(capsys, command, *WRITING[command], "--out", tmp_path / place)
        assert f"out needs a folder, but {tmp_path}/file is a file" in message
    # Whoever runs the tests may have every right.
    monkeypatch.setattr("os.access", lambda *_: False)
    message = failure(capsys, command, *WRITING[command], "--out", tmp_path / "new" / "folder")
    assert f"{tmp_path} is not writable: choose another." in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("matplotlib", "plot", draw_theory),
        ("matplotlib", "report", lambda path: run_report(Report(out=path))),
        ("scipy.special", "report", lambda path: run_report(Report(out=path, formats=()))),
        ("ray", "ray", lambda _: _connect("local")),
    ],
)
def test_a_missing_extra_is_an_import_error_too(monkeypatch, tmp_path, package, extra, use):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'pip install "damper-rl\[{extra}\]"') as raised:
        use(tmp_path)
    assert type(raised.value) is MissingExtraError


def test_a_misspelt_measurement_is_answered_with_the_closest(capsys):
    assert "did you mean 'update'?" in " ".join(
        failure(capsys, "bench", "updat").replace("│", " ").split()
    )


@pytest.mark.parametrize("words", [("reproduce", "--list"), ("report",), ("figures", "--methods")])
def test_results_must_be_a_folder(capsys, tmp_path, words):
    (tmp_path / "file").touch()
    message = failure(capsys, *words, "--results", tmp_path / "file", "--out", tmp_path / "out")
    assert "results must be a folder of records, but" in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_figures(tmp_path):
    call("figures", "--out", tmp_path, "--formats", "svg")
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg"}


def test_a_report_of_other_results_leaves_the_projects_pages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = "<!-- headline: written by python -m paper report -->\n<!-- headline ends -->\n"
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text(marked)
    Path("results").mkdir()
    Path("other").mkdir()
    main(["report", "--results", "other", "--formats"])
    assert Path("README.md").read_text() == marked and not Path("docs").exists()
    assert Path("other/report/tables.md").exists()
    main(["report", "--results", "other", "--formats"])  # its own pages are no runs
    main(["report", "--formats"])
    assert "No records yet" in Path("README.md").read_text()


def test_a_report_of_runs_says_what_makes_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny.train(tmp_path / "run", steps=100).path
    with pytest.raises(SystemExit):
        main(["report", "--results", str(run), "--out", str(tmp_path / "out"), "--formats"])
    assert "holds none: python -m paper reproduce makes them" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not (tmp_path / "out").exists()


def test_a_warning_is_one_sentence(tmp_path):
    record = tmp_path / "results" / "spool" / "pave" / "Pendulum" / "td3-plain-0-0000.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")
    command = [
        sys.executable,
        "-m",
        "paper",
        "reproduce",
        "--list",
        "--results",
        str(tmp_path / "results"),
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stderr
    assert told.startswith(f"damper: {record} is not a complete record") and told.count("\n") == 1
