"""The examples run, each for a moment, and show what they say they show."""

from __future__ import annotations

import difflib
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

import damper

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))
STEPS = {
    "wandb_callback": 120,
    "mlflow_callback": 120,
    "two_losses": 150,
    "custom_rule": 100,
    "cleanrl_style": 600,
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def numbers(result: dict) -> list[float]:
    return [
        n
        for value in result.values()
        for n in (numbers(value) if isinstance(value, dict) else [value])
    ]


@pytest.fixture
def services(monkeypatch, tmp_path) -> dict[str, MagicMock]:
    """Stand-ins for services that examples send metrics to: nothing leaves the test."""
    stubs = {name: MagicMock(name=name) for name in ("wandb", "mlflow")}
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    active: list[str] = []
    mlflow = stubs["mlflow"]
    mlflow.active_run.side_effect = lambda: active[0] if active else None
    mlflow.start_run.side_effect = lambda **given: (
        active.append("run") or MagicMock(info=MagicMock(run_id="id-7"))
    )
    mlflow.end_run.side_effect = active.clear
    monkeypatch.chdir(tmp_path)
    return stubs


SMALL = {"steps": 300, "log_every": 100, "net_arch": (8,), "batch_size": 8, "progress": False}


def test_wandb_gets_every_agent_s_metrics_and_the_best_policies(services):
    log = load("wandb_callback").LogToWandb("smooth", "runs/mine", env="Pendulum-v1")
    given = services["wandb"].init.call_args.kwargs
    assert (given["project"], given["id"], given["resume"]) == ("smooth", "mine", "allow")
    run = damper.train(
        "Pendulum-v1", seeds=2, **SMALL, eval_every=150, eval_episodes=1, out="run", callbacks=log
    )
    wandb_run = services["wandb"].init.return_value
    assert [call.kwargs["step"] for call in wandb_run.log.call_args_list] == [100, 200, 300]
    lines = [call.args[0] for call in wandb_run.log.call_args_list]
    assert (
        "return/agent-1" not in lines[0]
        and lines[1]["return/agent-1"] == run.metrics()[1]["return"][1]
    )
    assert "evaluation/agent-0" not in lines[1]
    assert [lines[2][f"evaluation/agent-{i}"] for i in (0, 1)] == run.evaluations()[-1]["return"]
    log.finish(run)
    assert [Path(call.args[0]).name for call in wandb_run.save.call_args_list] == [
        f"best-000{i}.safetensors" for i in (0, 1)
    ]
    wandb_run.finish.assert_called_once()


def test_mlflow_goes_on_with_the_run_that_it_began(services):
    mlflow, module = services["mlflow"], load("mlflow_callback")
    log = module.LogToMlflow(env="Pendulum-v1")
    damper.train(
        "Pendulum-v1", **SMALL, out="run", callbacks=[log, lambda training: training.step != 100]
    )
    mlflow.end_run()  # the process ended here
    run = damper.train(
        "Pendulum-v1", **SMALL, out="run", callbacks=module.LogToMlflow(env="Pendulum-v1")
    )
    assert [call.kwargs for call in mlflow.start_run.call_args_list] == [
        {"run_name": "run"},
        {"run_id": "id-7"},
    ]
    assert [call.kwargs["step"] for call in mlflow.log_metrics.call_args_list] == [100, 200, 300]
    mlflow.log_params.assert_called_once_with({"env": "Pendulum-v1"})
    log.finish(run)
    assert mlflow.log_artifacts.call_args.args == (str(run.path / "policies"), "policies")


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.usefixtures("services")
def test_examples_run(name):
    if name.startswith("sb3_"):
        pytest.importorskip("stable_baselines3")
    printed = numbers(load(name).main(steps=STEPS.get(name, 300)))
    assert printed and all(math.isfinite(number) for number in printed)


def test_one_line_separates_the_two_loops():
    plain, ours = (
        (FOLDER / f"td3_loop_{kind}.py").read_text().splitlines() for kind in ("plain", "damper")
    )
    changed = [line for line in difflib.ndiff(plain, ours) if line[0] in "+-"]
    assert [line[0] for line in changed] == ["-", "+"]
    assert changed[0].split() == ["-", "actor_loss.backward()"] and "damper.backward(" in changed[1]


@pytest.mark.parametrize("name", ["cleanrl_style", "skrl_style", "torchrl_style"])
def test_styles_need_no_library_but_ours(name):
    text = (FOLDER / f"{name}.py").read_text()
    roots = {
        line.split()[1].split(".")[0]
        for line in text.splitlines()
        if line.startswith(("import ", "from "))
    }
    assert roots <= {
        "__future__",
        "collections",
        "copy",
        "dataclasses",
        "gymnasium",
        "numpy",
        "torch",
        "damper",
    }


def test_the_second_loss_gives_way_to_the_fit():
    rows = load("two_losses").main(steps=400)
    alone, ours, weighted = rows["fit alone"], rows["DAMPER"], rows["weighted sum"]
    assert ours["curvature"] < 0.8 * alone["curvature"]
    assert ours["fit"] < 0.2 * weighted["fit"]


def test_a_custom_rule_can_be_swept(monkeypatch, tmp_path):
    monkeypatch.setitem(damper.rules.RULES, "agreement", load("custom_rule").agreement)
    small = {**SMALL, "steps": 120, "learning_starts": 20}
    run = damper.train(
        "Pendulum-v1", rule="agreement", cap=[0.5, 1.0], seeds=3, **small, out=tmp_path / "run"
    )
    assert [agent["cap"] for agent in run.agents] == [0.5] * 3 + [1.0] * 3


def test_a_custom_rule_is_left_out_of_the_registry_again():
    from damper.rules import RULES

    load("custom_rule").main(steps=5)
    assert "agreement" not in RULES
