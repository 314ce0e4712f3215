"""The command starts at once, and the package imports what it is asked for."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import damper
from damper.cli import COMMANDS
from damper.cli.options.export import Export
from damper.export import export

ASK = """
import sys
from damper.cli import main

for words in {words!r}:
    try:
        main(words)
    except SystemExit as stopped:
        assert stopped.code in (None, 0, 2), words
    slow = {{"torch", "numpy", "gymnasium"}} & set(sys.modules)
    assert not slow, (words, slow)
"""


def python(code: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **options
    )


def test_help_version_and_typos_import_no_torch():
    light = [[name, word] for name in COMMANDS for word in ("--help", "--hepl")]
    asked = python(ASK.format(words=[["--help"], ["--version"], ["trian"], [], *light]))
    assert asked.returncode == 0, asked.stderr
    for name, summary in COMMANDS.items():
        assert f"{name:<10} {summary}" in asked.stdout
    assert f"damper {damper.__version__}\n" in asked.stdout
    unknown = python(ASK.format(words=[["train", "Hoper-v5"]]).replace('"numpy", "gymnasium"', ""))
    assert unknown.returncode == 0, unknown.stderr
    assert "did you mean 'Hopper-v5'?" in unknown.stderr
    assert "'trian' was given: did you mean 'train'?" in asked.stderr


def test_the_package_imports_no_torch_before_it_is_used():
    used = python(
        "import sys, damper; assert 'torch' not in sys.modules\n"
        "damper.rules; assert 'torch' in sys.modules\n"
        "from damper._backward import backward; assert damper.backward is backward"
    )
    assert used.returncode == 0, used.stderr


def test_every_public_name_is_where_editors_are_told():
    tree = ast.parse(Path(damper.__file__).read_text(encoding="utf-8"))
    told = next(node for node in tree.body if isinstance(node, ast.If))
    names = {(part.module, alias.name) for part in told.body for alias in part.names}
    assert (
        {name for _, name in names} | {"DamperError", "__version__"}
        == set(damper.__all__)
        <= set(dir(damper))
    )
    for module, name in names:
        home = importlib.import_module(f"damper.{name}" if module == "damper" else module)
        assert getattr(damper, name) is (home if module == "damper" else getattr(home, name)), name
    with pytest.raises(AttributeError, match="'damper' has no attribute 'trian'"):
        damper.trian  # noqa: B018


def test_every_command_has_options_and_does_something():
    files = {path.stem for path in Path(inspect.getfile(Export)).parent.glob("*.py")} - {
        "__init__",
        "training",
    }
    assert files == set(COMMANDS)
    for name in COMMANDS:
        options = getattr(importlib.import_module(f"damper.cli.options.{name}"), name.capitalize())
        (taken,) = inspect.signature(
            importlib.import_module(f"damper.cli.{name}").run
        ).parameters.values()
        assert taken.annotation == options.__name__
    assert Export.episodes == inspect.signature(export).parameters["episodes"].default


def test_stopping_it_while_it_imports_is_no_traceback(tmp_path):
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "sys.argv = ['damper', 'train', 'Pendulum-v1']\n"
    stopped = python(code + "from damper.cli import main; main()", cwd=tmp_path)
    assert stopped.returncode == 130
    assert stopped.stderr.startswith("damper: stopped") and "Traceback" not in stopped.stderr
