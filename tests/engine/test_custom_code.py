"""Runs know whose code they trained with."""

from __future__ import annotations

import functools
import importlib.util
import linecache
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest

import damper
from damper.compare import _default_folder as compare_folder
from damper.compare import compare
from damper.engine.custom_code import (
    has_source,
    has_stable_name,
    identify,
    is_shipped,
    registered_env,
)
from damper.engine.settings import resolve
from damper.engine.train import default_folder
from damper.errors import DamperError
from damper.interface import Loss
from damper.methods import METHODS, Method, find_method
from damper.rules import RULES
from damper.rules._two_vector import two_vector_rule
from paper.experiments.catalogue import Request, expand_request
from paper.experiments.population_plan import Job
from tests import tiny

QUICK = {**tiny.SETTINGS, "steps": 60, "seeds": (0,)}
LOSS = (
    "def quiet(policy, batch, noise, *, strength=0.1):\n"
    "    return strength * policy(batch.obs).square().mean((-2, -1))"
)


def pendulum() -> Any:
    return gymnasium.make("Pendulum-v1")


def short_pendulum(steps: int = 50) -> Any:
    return gymnasium.make("Pendulum-v1", max_episode_steps=steps)


class Maker:
    def __call__(self) -> Any:
        return pendulum()


def module(folder: Path, text: str) -> ModuleType:
    """A user's file, imported."""
    path = folder / f"mine_{abs(hash(text))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


# --- identity -------------------------------------------------------------------------------------


def test_a_function_is_its_module_its_name_and_its_file(tmp_path: Path) -> None:
    first, again, edited = (
        module(tmp_path, text).quiet for text in (LOSS, LOSS, LOSS.replace("0.1", "0.2"))
    )
    assert identify(first) == identify(again) and identify(first).startswith("mine:quiet ")
    assert identify(edited) != identify(first)
    assert len({identify(part) for part in (pendulum, short_pendulum, Maker)}) == 3
    assert identify(METHODS["caps"].functions["actor"]) == "damper.losses.caps:_caps", (
        "damper's own has no digest"
    )


@pytest.mark.parametrize("edit", ["GAIN = 0.1", "x / 2", "return 1.0", "'kg'"])
@pytest.mark.parametrize("name", ["make", "Mass", "made", "decorated", "maker"])
def test_whatever_stands_in_its_file_counts(tmp_path: Path, name: str, edit: str) -> None:
    text = (
        "import functools\nGAIN = 0.1\nUNITS = {'mass': 'kg'}\nclass Base:\n    def unit(self):\n"
        "        return 1.0\nclass Mass(Base):\n    def step(self):\n"
        "        return half(self.unit()) * GAIN\n"
        "def half(x):\n    return x / 2 if x < 9 else half(x)\n"
        "def make():\n    return Mass()\nmade = functools.partial(make)\n"
        "class Maker:\n    def __call__(self):\n        return Mass()\nmaker = Maker()\n"
        "@functools.wraps(make)\ndef decorated():\n    return make()\n"
    )
    first, same, edited = (
        identify(getattr(module(tmp_path, each), name))
        for each in (text, text, text.replace(edit, edit + " or 2"))
    )
    assert first == same != edited


def test_a_decorator_of_damper_does_not_hide_the_file_of_what_it_decorates(tmp_path: Path) -> None:
    text = (
        "from damper.rules._two_vector import two_vector_rule\n"
        "@two_vector_rule()\ndef mine(stats):\n    return 0.0, 0.5\n"
    )
    first, edited = (
        identify(module(tmp_path, each).mine) for each in (text, text.replace("0.5", "0.6"))
    )
    assert first != edited and first.startswith("mine:mine ")


def test_a_file_edited_while_python_runs_is_read_again(tmp_path: Path) -> None:
    loaded = module(tmp_path, LOSS)
    before = identify(loaded.quiet)
    Path(loaded.__file__ or "").write_text(LOSS + "\n# slower\n")
    assert identify(loaded.quiet) != before


def test_what_a_function_captures_counts_where_it_is_plain() -> None:
    def enclosed(steps: int) -> Any:
        return lambda: short_pendulum(steps)

    made = [lambda steps=steps: short_pendulum(steps) for steps in (50, 60)]
    made += [enclosed(steps) for steps in (70, 70, 80)]
    partials = [functools.partial(gymnasium.make, "Pendulum-v1", g=g) for g in (9.8, 9.8, 1.0)]
    assert len({identify(one) for one in made}) == 4
    assert len({identify(one) for one in partials}) == 2


def test_numbers_and_words_of_an_object_count() -> None:
    def maker(**held: Any) -> Any:
        made = Maker()
        vars(made).update(held)
        return made

    makers = [maker(), maker(g=9.8), maker(g=9.8), maker(g=1.0), maker(g=1.0, table=[1, 2])]
    assert len({identify(made) for made in makers}) == 3
    assert len({identify(made.__call__) for made in makers}) == 3


def test_code_without_a_file_needs_a_folder_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where code is typed in: two functions of one name cannot be told apart."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def quiet(policy, batch, noise):\n    return policy(batch.obs).mean((-2, -1))", space)
    assert identify(space["quiet"]).startswith("__main__:quiet ") and not has_source(space["quiet"])
    monkeypatch.setitem(METHODS, "quiet", Method("quiet", actor=Loss(space["quiet"])))
    with pytest.raises(DamperError, match=r"out must be given when actor is .* or has no file"):
        default_folder(resolve("Pendulum", method="quiet"))


def test_a_notebook_s_code_is_known_by_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython keeps the text of its cells for `inspect`, under names that are no files."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # which has no file
    text = "def f():\n    return 1\nclass C:\n    def step(self):\n        return 1\n"
    spaces = []
    for number, cell in enumerate((text, text, text.replace("1", "2"))):
        file = f"<ipython-input-{number}>"
        linecache.cache[file] = (len(cell), None, cell.splitlines(True), file)
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(cell, file, "exec"), space)
        spaces.append(space)
    for name in ("f", "C"):
        assert all(has_source(space[name]) for space in spaces)
        first, same, edited = (identify(space[name]) for space in spaces)
        assert first == same != edited


def test_whose_code_it_is() -> None:
    parts = [function for name in METHODS for function in find_method(name).functions.values()]
    assert all(is_shipped(function) for function in parts) and len(parts) > 20
    wrapping = functools.wraps(RULES["damper"])(lambda *given, **settings: None)
    assert not any(
        is_shipped(one)
        for one in (pendulum, Maker, wrapping, two_vector_rule()(lambda stats: (0.0, 0.0)))
    )
    named = [pendulum, Maker, RULES["damper"], functools.partial(gymnasium.make, "Pendulum-v1")]
    assert all(has_stable_name(one) for one in named)
    assert not any(
        has_stable_name(one)
        for one in (lambda: None, Maker(), Maker().__call__, functools.partial(pendulum, Maker))
    )


# --- runs -----------------------------------------------------------------------------------------


def test_a_lambda_needs_a_folder_and_another_one_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DamperError, match=r"out must be given when env is a lambda, a local function or an object"
    ):
        damper.train(lambda: pendulum(), **QUICK)
    with pytest.raises(DamperError, match="out must be given when env"):
        compare(lambda: pendulum(), ("plain",), **QUICK)
    assert list(tmp_path.iterdir()) == []
    assert damper.train(lambda: pendulum(), **QUICK, out="run").finished
    with pytest.raises(
        DamperError,
        match=r"other settings: code of env was 'tests.*<lambda> \w+', now 'tests",
    ):
        damper.train(lambda: short_pendulum(), **QUICK, out="run")


def test_an_edited_function_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders, out = [], tmp_path / "run"
    for text in (LOSS, LOSS.replace("square", "abs")):
        monkeypatch.setitem(
            METHODS, "quiet", Method("quiet", actor=Loss(module(tmp_path, text).quiet))
        )
        folders.append(default_folder(resolve("Pendulum", method="damper+quiet")))
        if len(folders) == 1:
            run = tiny.train(out, "damper+quiet", steps=60)
            assert set(run.manifest["custom_code"]) == {"actor", "rule damper"}
            assert tiny.train(out, "damper+quiet", steps=60) == run
    assert len(set(folders)) == 2
    with pytest.raises(
        DamperError,
        match=r"other settings: code of actor was 'mine:quiet.* The whole file that defines it",
    ):
        tiny.train(out, "damper+quiet", steps=60)


ENV = """
from gymnasium.envs.classic_control.pendulum import PendulumEnv


class Mine(PendulumEnv):
    def step(self, action):
        obs, reward, *others = super().step(action)
        return obs, 2.0 * reward, *others
"""


def test_an_edited_environment_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known to Gymnasium by an id, which stays the same."""
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    folders, identities, out = [], [], tmp_path / "run"
    for text in (ENV, ENV.replace("2.0", "3.0")):
        gymnasium.registry.pop("Mine-v0", None)
        gymnasium.register("Mine-v0", entry_point=module(tmp_path, text).Mine, max_episode_steps=50)
        folders.append(default_folder(resolve("Mine-v0", steps=60)))
        (agent,) = expand_request(
            Request(("td3-table",), ("Mine-v0",), ("plain",), seeds=1, steps=60)
        )
        identities.append(agent.digest)
        if len(folders) == 1:
            run = damper.train("Mine-v0", out=out, **QUICK)
            assert run.manifest["custom_code"]["env"].startswith("mine:Mine ")
            assert damper.train("Mine-v0", out=out, **QUICK) == run
    assert len(set(folders)) == len(set(identities)) == 2
    with pytest.raises(DamperError, match=r"other settings: code of env was 'mine:Mine"):
        damper.train("Mine-v0", out=out, **QUICK)


def test_environments_of_packages_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "Pendulum-v1",
        "gymnasium.envs.classic_control:Pendulum-v1",
        "Unheard-v0",
        "nowhere:Of-v0",
    ):
        assert registered_env(name) is None
    installed = gymnasium.envs.registration.EnvSpec(
        "Packed-v0", entry_point="stable_baselines3.common.envs:BitFlippingEnv"
    )
    monkeypatch.setitem(gymnasium.registry, "Packed-v0", installed)
    assert registered_env("Packed-v0") is None


def test_environments_without_a_file_need_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    space = vars(sys.modules["__main__"])
    exec(
        "from gymnasium.envs.classic_control.pendulum import PendulumEnv\n"
        "class Mine(PendulumEnv): pass",
        space,
    )
    monkeypatch.setitem(
        gymnasium.registry, "Mine-v0", gymnasium.envs.registration.EnvSpec("Mine-v0", space["Mine"])
    )
    assert registered_env("Mine-v0") is space["Mine"]
    with pytest.raises(DamperError, match=r"out must be given when env is .* or has no file"):
        default_folder(resolve("Mine-v0", steps=60))


def test_a_registered_lambda_is_known_by_its_id_and_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = gymnasium.envs.registration.EnvSpec("Mine-v0", lambda **_: pendulum())
    monkeypatch.setitem(gymnasium.registry, "Mine-v0", made)
    assert default_folder(resolve("Mine-v0", steps=60)).name.startswith("Mine-v0-td3-damper-")


def test_a_missing_dependency_is_left_to_where_the_environment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "walker_of_mine.py").write_text(
        "from gymnasium.error import DependencyNotInstalled\n"
        "raise DependencyNotInstalled('Box2D is not installed')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = gymnasium.envs.registration.EnvSpec("Walks-v0", entry_point="walker_of_mine:Walker")
    monkeypatch.setitem(gymnasium.registry, "Walks-v0", spec)
    assert registered_env("Walks-v0") is None
    with pytest.raises(
        DamperError, match="env='Walks-v0' must be importable, but Box2D is not installed"
    ):
        damper.train("Walks-v0", **QUICK)


def test_a_name_registered_anew_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = default_folder(resolve("Pendulum", method="damper"))
    monkeypatch.setitem(RULES, "damper", RULES["unconditional-sum"])
    assert default_folder(resolve("Pendulum", method="damper")) != before
    monkeypatch.setitem(METHODS, "mine", Method("mine", actor=METHODS["caps"].actor))
    first = default_folder(resolve("Pendulum", method="mine"))
    monkeypatch.setitem(METHODS, "mine", Method("mine", actor=METHODS["grad-caps"].actor))
    assert default_folder(resolve("Pendulum", method="mine")) != first


def test_a_folder_s_name_has_no_colon() -> None:
    arm = replace(resolve("Pendulum"), env="armenv:Arm-v0")
    folders = default_folder(arm), compare_folder([arm], ()), Job(arm, ()).folder(Path("runs"))
    for folder in folders:
        assert ":" not in str(folder) and "armenv_Arm-v0-td3-" in folder.name
