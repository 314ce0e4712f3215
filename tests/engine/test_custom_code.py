"""Runs know whose code they trained with."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest

import damper
from damper.engine.custom_code import has_stable_name, identify, is_shipped, registered_env
from damper.engine.settings import resolve
from damper.engine.train import default_folder
from damper.errors import DamperError
from damper.experiments.compare import _default_folder as compare_folder
from damper.experiments.compare import compare
from damper.experiments.paper_experiments import Request, expand_request
from damper.experiments.population_plan import Job
from damper.interface import Loss
from damper.methods import METHODS, Method, find_method
from damper.rules import RULES
from damper.rules._two_vector import two_vector_rule
from tests import tiny

QUICK = {**tiny.SETTINGS, "steps": 60, "seeds": (0,)}
LOSS = "def quiet(policy, batch, noise, *, strength=0.1):\n    return strength * policy(batch.obs).square().mean((-2, -1))"


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


def test_a_function_is_its_module_its_name_and_its_source(tmp_path: Path) -> None:
    first, again, edited = (
        module(tmp_path, text).quiet for text in (LOSS, LOSS, LOSS.replace("0.1", "0.2"))
    )
    assert identify(first) == identify(again) and identify(first).startswith("mine:quiet ")
    assert identify(edited) != identify(first)
    assert len({identify(one) for one in (pendulum, short_pendulum, Maker, Maker())}) == 3
    assert identify(METHODS["caps"].functions["actor"]) == "damper.losses.caps:_caps", (
        "damper's own has no digest"
    )


def test_what_a_function_uses_of_its_module_counts(tmp_path: Path) -> None:
    text = (
        "import functools\nGAIN = 0.1\nUNUSED = 1\nclass Base:\n    def unit(self):\n        return 1.0\n"
        "class Mass(Base):\n    def step(self):\n        return half(self.unit()) * GAIN\n"
        "def half(x):\n    return x / 2 if x < 9 else half(x)\n"
        "def make():\n    return (lambda: Mass())()\nmade = functools.partial(make)\n"
    )
    edits = [
        ("GAIN = 0.1", "GAIN = 0.2"),
        ("x / 2", "x / 3"),
        ("return 1.0", "return 2.0"),
        ("self.unit()", "1.0"),
    ]
    edited = [module(tmp_path, text.replace(*edit)) for edit in edits]
    first, same = module(tmp_path, text), module(tmp_path, text.replace("UNUSED = 1", "UNUSED = 2"))
    for name in ("make", "Mass", "made"):
        assert identify(getattr(same, name)) == identify(getattr(first, name))
        assert len({identify(getattr(one, name)) for one in (first, *edited)}) == 1 + len(edits)


def test_data_of_its_module_count_wherever_they_are_named(tmp_path: Path) -> None:
    text = (
        "import functools\nimport numpy as np\nfrom dataclasses import dataclass\nfrom torch import Tensor\n"
        "@dataclass(slots=True)\nclass Config:\n    gain: float\nCONFIG = Config(0.1)\nARRAY = np.array([0.2])\n"
        "NESTED = {'weights': (0.3, {'names'})}\nDEFAULT, ATTRIBUTE, WRAPPED = 0.4, 0.5, 0.6\n"
        "def wraps(f):\n    return functools.wraps(f)(lambda *given: WRAPPED * f(*given))\n"
        "class Mass:\n    limit = ATTRIBUTE\n    def step(self):\n        return self.limit\n"
        "@wraps\ndef make(mass: Tensor, *, g=DEFAULT):\n    return Mass, CONFIG.gain, ARRAY, NESTED, g\n"
    )
    edits = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "'names'"]
    edited = [module(tmp_path, text.replace(edit, "'other'")) for edit in edits]
    assert len({identify(one.make) for one in (module(tmp_path, text), *edited)}) == 1 + len(edits)
    assert identify(module(tmp_path, LOSS).quiet) == "mine:quiet a27004a2d6bf9ac0", (
        "as before data counted"
    )


def test_data_without_a_text_of_their_own_are_left_out_not_fatal(tmp_path: Path) -> None:
    text = "import numpy as np\nTREE = {'g': 9.8}\nTREE['self'] = [TREE]\nOBJECTS = np.array([object()])\n"
    text += "def make():\n    return TREE, OBJECTS\n"
    first, again, edited = (
        module(tmp_path, one).make for one in (text, text, text.replace("9.8", "1.6"))
    )
    assert identify(first) == identify(again) != identify(edited)


def test_large_arrays_do_not_become_text(tmp_path: Path) -> None:
    text = "import numpy as np\nclass Large(np.ndarray):\n    tolist = None\nMOTION = np.full(3, 0.1).view(Large)\n"
    text += "def make():\n    return MOTION\n"
    first, edited = (module(tmp_path, one).make for one in (text, text.replace("0.1", "0.2")))
    assert identify(first) != identify(edited)


CACHING = (
    "from gymnasium.envs.classic_control.pendulum import PendulumEnv\nfrom gymnasium.wrappers import TimeLimit\n"
    "CACHE = {}\ndef make():\n    CACHE[len(CACHE)] = 'table'\n    return TimeLimit(PendulumEnv(), 20)\n"
)


def test_an_environment_may_fill_a_cache_of_its_module(tmp_path: Path) -> None:
    trained, again = (module(tmp_path, CACHING) for _ in range(2))
    run = damper.train(trained.make, out=tmp_path / "run", **QUICK)
    assert trained.CACHE and damper.train(again.make, out=tmp_path / "run", **QUICK) == run, (
        "the same command again"
    )
    trained, again = (module(tmp_path, CACHING) for _ in range(2))
    both = {**QUICK, "methods": ("plain", "damper"), "episodes": 1, "out": tmp_path / "both"}
    assert compare(trained.make, **both).runs == compare(again.make, **both).runs, (
        "nor does one run change the next"
    )


def test_what_a_script_changes_between_two_runs_counts(tmp_path: Path) -> None:
    made = module(tmp_path, ENV + "CONFIG = {'g': 9.8}\ndef make():\n    return Mine(**CONFIG)\n")
    damper.train(made.make, out=tmp_path / "run", **QUICK)
    made.CONFIG["g"] = 1.6
    with pytest.raises(DamperError, match="code of env was"):
        damper.train(made.make, out=tmp_path / "run", **QUICK)


def test_types_and_slots_that_it_names_are_no_obstacle(tmp_path: Path) -> None:
    text = (
        "import dataclasses\nimport numpy as np\nfrom numpy.typing import NDArray\nObs = NDArray[np.float32]\n"
        "@dataclasses.dataclass(slots=True)\nclass Sizes:\n    limit: int = 5\n"
        "sizes = Sizes()\n\ndef step(obs: NDArray[np.float64]) -> Obs:\n    return obs[: sizes.limit]\n"
    )
    first, same, other = (
        identify(module(tmp_path, t).step) for t in (text, text, text.replace("= 5", "= 6"))
    )
    assert first == same != other


def test_variables_of_a_script_that_it_only_shares_names_with_do_not_count(tmp_path: Path) -> None:
    script = module(
        tmp_path,
        "class Mass:\n    limit = 1\n    def step(self, a):\n        r = [i for i in a.results]\n"
        "        return r, self.k\n"
        "def make(g=1.0):\n    'A mass of k.'\n    return Mass()\n",
    )
    before = [identify(one) for one in (script.make, script.Mass)]
    for name in ("a", "r", "i", "k", "g", "results", "limit"):
        setattr(script, name, [1, 2])
    assert [identify(one) for one in (script.make, script.Mass)] == before


def test_what_a_function_captures_counts_where_it_is_plain() -> None:
    def enclosed(steps: int) -> Any:
        return lambda: short_pendulum(steps)

    made = [lambda steps=steps: short_pendulum(steps) for steps in (50, 60)]
    made += [enclosed(steps) for steps in (70, 70, 80)]
    partials = [functools.partial(gymnasium.make, "Pendulum-v1", g=g) for g in (9.8, 9.8, 1.0)]
    assert len({identify(one) for one in made}) == 4
    assert len({identify(one) for one in partials}) == 2


def test_code_without_a_file_is_told_apart_too() -> None:
    spaces: list[dict[str, Any]] = [{}, {}, {}]
    for space, text in zip(spaces, ("1", "1", "2"), strict=True):
        exec(f"def f():\n    return [x + {text} for x in ()]\nclass C:\n    limit = {text}", space)
    for name in ("f", "C"):
        assert identify(spaces[0][name]) == identify(spaces[1][name]) != identify(spaces[2][name])


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
        DamperError, match=r"other settings: code of env was 'tests.*<lambda> \w+', now 'tests"
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
        match=r"other settings: code of actor was 'mine:quiet.* uses from its module counts too",
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
            manifest = run.manifest
            assert manifest["custom_code"]["env"].startswith("mine:Mine ")
            del manifest["custom_code"]["env"]  # as earlier versions left it
            (out / "manifest.json").write_text(json.dumps(manifest))
            assert damper.train("Mine-v0", out=out, **QUICK) == run
            run.update_manifest(custom_code=resolve("Mine-v0", steps=60).custom_code())
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


def test_environments_of_a_notebook_are_known_by_their_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their module, ``__main__``, has no file."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    space = vars(sys.modules["__main__"])
    exec(
        "from gymnasium.envs.classic_control.pendulum import PendulumEnv\nclass Mine(PendulumEnv): pass",
        space,
    )
    monkeypatch.setitem(
        gymnasium.registry, "Mine-v0", gymnasium.envs.registration.EnvSpec("Mine-v0", space["Mine"])
    )
    assert registered_env("Mine-v0") is space["Mine"]
    assert identify(space["Mine"]).startswith("__main__:Mine ")


def test_a_missing_dependency_is_left_to_where_the_environment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "walker_of_mine.py").write_text(
        "from gymnasium.error import DependencyNotInstalled\nraise DependencyNotInstalled('Box2D is not installed')"
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


def test_a_folder_s_name_has_no_colon_unless_it_is_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arm = replace(resolve("Pendulum"), env="armenv:Arm-v0")
    for choose in (
        lambda: default_folder(arm),
        lambda: compare_folder([arm], ()),
        lambda: Job(arm, ()).folder(Path("runs")),
    ):
        folder = choose()
        assert ":" not in str(folder) and "armenv_Arm-v0-td3-" in folder.name
        old = folder.with_name(folder.name.replace("armenv_", "armenv:"))
        old.mkdir(parents=True)
        assert choose() == old


def test_old_runs_keep_their_folder_and_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Names that runs had before any setting was added.
    assert default_folder(resolve("Pendulum")).name == "Pendulum-td3-damper-7347e2a4"
    other = resolve("Hopper", "sac", "caps", seeds=5, protocol="pave", log_every=7)
    assert default_folder(other).name == "Hopper-sac-caps-80791a0e"
    run = tiny.train(tmp_path / "run", steps=60)
    manifest = run.manifest
    for name in ("tf32", "gamma"):  # as if these had been added after the run
        del manifest["settings"][name]
    manifest["settings"]["method_settings"].pop("eta", None)
    del manifest["custom_code"]
    (run.path / "manifest.json").write_text(json.dumps(manifest))
    assert tiny.train(run.path, steps=60) == run
    with pytest.raises(DamperError, match=r"other settings: gamma was 0\.99, now 0\.5"):
        tiny.train(run.path, steps=60, gamma=0.5)
