"""What a user reads before anything runs."""

from __future__ import annotations

import importlib.util
import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from damper.cli import COMMANDS, main
from damper.cli.options import integer
from damper.cli.options.train import Train
from damper.cli.options.training import METHODS_JSON, EngineOptions
from damper.engine.settings import Settings, resolve
from damper.methods import METHODS
from damper.protocols import PROTOCOLS
from damper.settings import SETTINGS

ROOT = Path(__file__).parents[2]
COMMAND_LINE = re.compile(rf"damper ({'|'.join(COMMANDS)})\b([^`\n#|]*)")
IN_PYTHON_ONLY = {
    "method_settings": "each is an option of its own",
    "table": "what reproduce makes of its agents",
    "env_kwargs": "any values, under any names",
    "dtype": "float64 is for tests and comparisons",
}
NO_SETTINGS = {
    "auxiliary",
    "rule",
    "critic",
    "preset",
    "seed_list",
    "out",
    "tensorboard",
    "engine",
    "settings",
}


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def help_of(command: str, program: Callable[[list[str]], None] = main) -> str:
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "110")
        with redirect_stdout(shown), pytest.raises(SystemExit):
            program([command, "--help"])
    return shown.getvalue()


def options(command: str, program: Callable[[list[str]], None] = main) -> dict[str, str]:
    """Each option's help by its names."""
    found, names = {}, []
    for line in help_of(command, program).splitlines():
        if re.match(r"[|│ ] --?\w", line):
            names = re.findall(r"--[\w-]+", re.split(r"\s{2,}", line[2:])[0])
        for name in names:
            found[name] = found.get(name, "") + " " + line.strip("|│ ")
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_shows_what_happens_where_it_is_left_out(command):
    shown = options(command)
    assert len(shown) > 4
    for name, words in shown.items():
        if name != "--help":
            assert re.search(r"\(required\)|\(default: [^\s)]", words), words
            assert "None" not in words, words


def test_commands_on_the_pages_have_the_options_they_name():
    pages = [
        ROOT / "README.md",
        *(page for page in (ROOT / "docs").rglob("*.md") if page.name != "speed-notes.md"),
    ]
    named = {
        (page.name, command, option)
        for page in pages
        for command, rest in COMMAND_LINE.findall(
            page.read_text(encoding="utf-8").replace("\\\n", " ")
        )
        for option in re.findall(r"--[a-z][\w-]*", rest)
    }
    assert len(named) > 30
    assert [one for one in sorted(named) if one[2] not in options(one[1])] == []


def test_help_and_page_tell_the_numbers_of_the_code():
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert f"({Settings.checkpoint_every:,} by default)" in page


def test_what_is_positional_has_a_name():
    assert "usage: damper train [-h] [OPTIONS] ENV" in help_of("train")
    assert "usage: damper compare [-h] [OPTIONS] ENV" in help_of("compare")
    assert "usage: damper evaluate [-h] [OPTIONS] SOURCE" in help_of("evaluate")


def test_only_names_are_used_that_the_oldest_allowed_tyro_has():
    files = METHODS_JSON.parent.glob("*.py")
    used = {
        word
        for file in files
        for word in re.findall(r"tyro\.conf\.(\w+)", file.read_text(encoding="utf-8"))
    }
    assert used == {
        "arg",
        "DisallowNone",
        "OmitArgPrefixes",
        "Positional",
    }  # another: install that tyro, and see


@pytest.mark.parametrize("command", ["train", "compare"])
def test_methods_have_a_line_each_and_eta_is_explained(command):
    listed = " ".join(help_of(command).split())
    for name, method in METHODS.items():
        assert f"{name}: " in listed and method.summary.split(": ")[-1] in listed, name
    assert "η in [0, 1]" in options(command)["--eta"]
    assert "(default: 1, the paper's for its tasks)" in options(command)["--eta"]


def test_a_setting_that_means_several_things_is_explained_for_each():
    shown = {name: " ".join(text.split()) for name, text in options("train").items()}
    assert (
        "(dynamic-barrier); β of the moving averages, in [0, 1] (metabalance); β" in shown["--beta"]
    )
    assert (
        "weight of the spatial term (caps); weight of the alignment (asap)." in shown["--lambda-S"]
    )
    assert shown["--eta"].count("η in [0, 1]") == 1
    assert not any("likewise" in text for text in shown.values())


def test_what_help_says_of_methods_is_what_they_are():
    method_help = tool("method_help")
    assert json.loads(METHODS_JSON.read_text()) == method_help.help_texts(), (
        "write it anew: python tools/method_help.py"
    )


def test_defaults_of_the_engine_are_the_ones_that_hold():
    shown = options("train")
    for protocol in PROTOCOLS:
        for backbone in ("td3", "sac"):
            settings = resolve("Hopper", backbone, protocol=protocol)
            for option in fields(EngineOptions):
                value = getattr(settings, option.name)
                written = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
                help_text = " ".join(shown["--" + option.name.replace("_", "-")].split())
                known = SETTINGS[option.name].automatic or written
                if SETTINGS[option.name].backbone in (None, backbone):
                    assert known in help_text.partition("(default: ")[2], (option.name, written)


def test_every_setting_of_training_is_an_option():
    engine, train = ({f.name for f in fields(options)} for options in (EngineOptions, Train))
    assert engine.isdisjoint(train)
    assert SETTINGS.keys() - IN_PYTHON_ONLY.keys() == engine | (train - NO_SETTINGS), (
        "give it an option, or its reason in IN_PYTHON_ONLY"
    )


def test_the_page_of_settings_has_a_row_for_every_option_of_the_engine():
    pytest.importorskip("mkdocs")
    hooks = tool("docs_hooks")
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    table = hooks.on_page_markdown(page, None, None, None)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert [row[0].strip("`") for row in rows] == [option.name for option in fields(EngineOptions)]
    tau = next(row for row in rows if row[0] == "`tau`")
    assert tau[1:] == ["Polyak rate of the targets.", "0.005", "0 to 1", "yes", "results"]


@pytest.mark.parametrize(
    ("word", "number"), [("1e6", 10**6), ("1_000", 1000), ("7", 7), ("2.5e3", 2500), ("-1", -1)]
)
def test_integers_are_read_as_people_write_them(word, number):
    assert integer(word) == number


@pytest.mark.parametrize("word", ["1.5", "many", "inf", "nan", "1e-3"])
def test_what_is_no_integer_is_told(word):
    with pytest.raises(ValueError, match="must be a whole number such as 1000 or 1e6, but"):
        integer(word)


@pytest.mark.parametrize("command", ["train", "compare"])
def test_errors_point_to_the_help_of_their_command(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    for mistake in (["Pendulum-v1", "--eta", "2"], ["Pendulum-v1", "--stpes", "2"], []):
        with pytest.raises(SystemExit):
            main([command, *mistake])
        assert f"damper {command} --help" in capsys.readouterr().err
