"""The examples run, each for a moment, and show what they say they show."""

from __future__ import annotations

import difflib
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))
STEPS = {"two_losses": 150, "custom_rule": 100, "cleanrl_style": 600}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def numbers(result: dict) -> list[float]:
    return [n for value in result.values() for n in (numbers(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name):
    if name.startswith("sb3_"):
        pytest.importorskip("stable_baselines3")
    found = numbers(load(name).main(steps=STEPS.get(name, 300)))
    assert found and all(math.isfinite(number) for number in found)


def test_one_line_separates_the_two_loops():
    plain, ours = ((FOLDER / f"td3_loop_{kind}.py").read_text().splitlines() for kind in ("plain", "damper"))
    changed = [line for line in difflib.ndiff(plain, ours) if line[0] in "+-"]
    assert [line[0] for line in changed] == ["-", "+"]
    assert changed[0].split() == ["-", "actor_loss.backward()"] and "damper.backward(" in changed[1]


@pytest.mark.parametrize("name", ["cleanrl_style", "skrl_style", "torchrl_style"])
def test_styles_need_no_library_but_ours(name):
    text = (FOLDER / f"{name}.py").read_text()
    roots = {line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert roots <= {"__future__", "collections", "copy", "dataclasses", "gymnasium", "numpy", "torch", "damper"}


def test_the_second_loss_gives_way_to_the_fit():
    rows = load("two_losses").main(steps=400)
    alone, ours, weighted = rows["fit alone"], rows["DAMPER"], rows["weighted sum"]
    assert ours["curvature"] < 0.8 * alone["curvature"]
    assert ours["fit"] < 0.2 * weighted["fit"]


def test_a_custom_rule_is_left_out_of_the_registry_again():
    from damper.rules import RULES

    load("custom_rule").main(steps=5)
    assert "agreement" not in RULES
