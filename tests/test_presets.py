from __future__ import annotations

import runpy

import pytest

import damper.presets
from damper.engine.settings import resolve
from damper.errors import DamperError
from damper.methods import METHODS
from damper.presets import PRESETS, preset
from damper.tasks import PAPER_TASKS, Task, task_name
from paper.experiments.identity import identity

TASKS = ["LunarLander", "Pendulum", "Reacher", "Ant", "Hopper", "Walker"]
# The paper's appendix, rows as printed: method (backbone), setting, then one column per task.
PRINTED = """
caps         both lambda_T    0.1 & 1.0 & 0.1 & 0.1 & 0.1 & 0.1
caps         both lambda_S    0.5 & 5.0 & 0.5 & 0.5 & 0.5 & 0.5
caps         both sigma       0.2 & 0.2 & 0.2 & 0.2 & 0.2 & 0.2
grad-caps    both lambda_T    1.0 & 1.0 & 1.0 & 1.0 & 1.0 & 1.0
asap         both lambda_T    0.005 & 0.005 & 0.1 & 0.05 & 0.07 & 0.05
asap         both lambda_S    0.03  & 0.03  & 0.1 & 0.3  & 0.3  & 0.3
asap         both lambda_P    2.0   & 2.0   & 2.0 & 2.0  & 2.0  & 2.0
pave         td3  lambda_1    0.1  & 2.0   & 0.1  & 0.1   & 0.1   & 0.1
pave         td3  lambda_2    0.1  & 0.005 & 0.1  & 0.005 & 0.005 & 0.1
pave         td3  lambda_3    0.01 & 2.0   & 0.01 & 0.5   & 0.5   & 0.01
pave         sac  lambda_1    0.1  & 0.1   & 0.1    & 0.1    & 2.0    & 2.0
pave         sac  lambda_2    0.5  & 0.005 & 0.0005 & 0.0005 & 0.0005 & 0.005
pave         sac  lambda_3    0.05 & 0.5   & 1.0    & 1.0    & 3.0    & 2.0
pave         both sigma       0.01 & 0.01 & 0.01 & 0.01 & 0.01 & 0.01
pave         both delta       1.0 & 1.0 & 1.0 & 1.0 & 1.0 & 1.0
l2c2         both sigma       1.0 & 1.0 & 1.0 & 1.0 & 1.0 & 1.0
l2c2         both lambda_low  0.01 & 0.01 & 0.01 & 0.01 & 0.01 & 0.01
l2c2         both lambda_high 1.0 & 1.0 & 1.0 & 1.0 & 1.0 & 1.0
l2c2         both beta        0.1 & 0.1 & 0.1 & 0.1 & 0.1 & 0.1
damper       td3  eta         0.8 & 1.0 & 1.0 & 0.0 & 1.0 & 1.0
damper       sac  eta         1.0 & 1.0 & 0.8 & 0.0 & 0.0 & 1.0
"""


def printed():
    table = {}
    for line in PRINTED.strip().splitlines():
        method, backbone, setting, values = line.split(maxsplit=3)
        for chosen in ("td3", "sac") if backbone == "both" else (backbone,):
            for task, value in zip(TASKS, values.split("&"), strict=True):
                table.setdefault((method, chosen, task), {})[setting] = float(value)
    return table


@pytest.mark.parametrize(("case", "settings"), printed().items())
def test_the_papers_tables(case, settings):
    method, backbone, task = case
    assert preset(method, task, backbone) == settings


@pytest.mark.parametrize("rule", ["unconditional-sum", "unconditional-projection"])
def test_the_ablations_use_dampers_eta(rule):
    assert preset(rule, "LunarLander", "td3") == {"eta": 0.8}
    assert preset(rule, "Hopper", "sac") == {"eta": 0.0}


@pytest.mark.parametrize("name", METHODS)
def test_every_preset_holds_settings_that_the_method_takes(name):
    for backbone in ("td3", "sac"):
        for task in (*TASKS, None):
            settings = preset(name, task, backbone)
            assert set(settings) <= set(METHODS[name].settings())
            METHODS[name].route(settings)


def test_the_sources_own_settings():
    lambda_S = {
        "Ant": 30,
        "Hopper": 10,
        "LunarLander": 10,
        "Reacher": 5,
        "Pendulum": 5,
        "Walker": 5,
    }
    for task, value in lambda_S.items():
        expected = {"lambda_T": 0.5, "lambda_S": value, "lambda_P": 2.0}
        assert preset("asap", task, "sac", "asap-released") == expected
    for method in ("l2c2", "l2c2-released"):
        at_pendulum, elsewhere = (
            preset(method, task, "sac", "l2c2-released") for task in ("Pendulum", "Ant")
        )
        assert (at_pendulum["lambda_low"], at_pendulum["lambda_high"]) == (1.0, 100.0)
        assert (elsewhere["lambda_low"], elsewhere["lambda_high"]) == (0.1, 10.0)
        assert elsewhere == preset(method, None, "sac", "l2c2-released")


def test_composed_methods_take_each_part_from_its_source():
    settings = preset("damper+caps+pave", "Pendulum", "td3")
    assert settings == {
        "lambda_T": 1.0, "lambda_S": 5.0, "sigma": 0.2, "eta": 1.0,
        "lambda_1": 2.0, "lambda_2": 0.005, "lambda_3": 2.0, "critic_sigma": 0.01, "delta": 1.0,
    }  # fmt: skip
    assert preset("damper+asap", "Ant", "sac", "asap-released")["lambda_S"] == 30.0
    assert "beta" not in preset("damper+l2c2", "Ant", "sac")
    # The rule has a β of its own, which L2C2's must not overwrite.
    assert {"critic_beta": 0.1}.items() <= preset("dynamic-barrier+l2c2+l2c2", "Ant", "sac").items()
    assert "beta" not in preset("dynamic-barrier+l2c2+l2c2", "Ant", "sac")


def test_other_tasks_get_what_holds_everywhere_and_the_defaults_serve_for_the_rest():
    assert preset("caps", "Swimmer-v5", "td3") == {"sigma": 0.2}
    assert preset("damper", None, "td3") == {}
    assert METHODS["damper"].settings()["eta"] == 1.0
    assert preset("plain", "Ant", "td3") == {}


@pytest.mark.parametrize(
    ("env_id", "task"),
    [
        ("LunarLander-v3", "LunarLander"),
        ("LunarLanderContinuous-v3", "LunarLander"),
        ("Walker2d-v5", "Walker"),
        ("Pendulum-v1", "Pendulum"),
        ("Hopper-v4", None),
        ("Swimmer-v5", None),
        *((task, task) for task in TASKS),
    ],
)
def test_task_names(env_id, task):
    assert task_name(env_id) == task
    if task:
        assert preset("pave", env_id, "sac") == preset("pave", task, "sac")


def test_one_more_task_is_one_more_line(monkeypatch):
    before = resolve("Swimmer-v5", steps=5000)
    monkeypatch.setitem(damper.tasks.TASKS, "Swimmer", Task("Swimmer-v5", "Swimmer-v5", 5000))
    assert (
        runpy.run_path(damper.presets.__file__)["PRESETS"] == PRESETS and list(PAPER_TASKS) == TASKS
    )
    named = resolve("Swimmer")
    assert (
        named.steps == 5000
        and task_name(named.env) == "Swimmer"
        and named.method_settings == before.method_settings
    )
    # Records that were made by its id are still its own.
    assert identity(named.record(), {"seed": 0}, {}, 10) == identity(
        before.record(), {"seed": 0}, {}, 10
    )


def test_wrong_names_get_one_clear_sentence():
    with pytest.raises(
        DamperError, match=r"^preset must be one of paper, asap-released, l2c2-released, but 'pap'"
    ):
        preset("asap", "Ant", "sac", "pap")
    with pytest.raises(DamperError, match=r"^backbone must be 'td3' or 'sac', but 'ppo' was given"):
        preset("asap", "Ant", "ppo")
    for method, backbone in (("caps", "sac"), ("asap", "td3")):
        with pytest.raises(
            DamperError,
            match=r"^preset 'asap-released' is for method 'asap' with backbone 'sac', but",
        ):
            preset(method, "Ant", backbone, "asap-released")
    assert list(PRESETS) == ["paper", "asap-released", "l2c2-released"]


def test_a_task_that_is_no_column_of_the_paper_is_told_where_it_belongs(monkeypatch):
    monkeypatch.setattr(damper.presets, "PAPER_TASKS", (*PAPER_TASKS, "Swimmer"))
    with pytest.raises(
        DamperError, match=r"Walker, Swimmer, but 6 were given: .* belongs in tasks.TASKS only"
    ):
        damper.presets._row(0.1, 1.0, 0.1, 0.1, 0.1, 0.1)
