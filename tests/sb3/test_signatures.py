"""What an editor completes: SB3's arguments with its defaults, then ours."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

pytest.importorskip("stable_baselines3")
import stable_baselines3
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

import damper.sb3
from damper.errors import DamperError, MissingExtraError
from damper.losses.temporal import temporal
from damper.methods import Method
from tests.sb3.models import NAMES, OURS, THEIRS

OWN = {"method": "damper", "eta": 1.0, "rule": None, "auxiliary": None}


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_is_named_typed_and_has_its_true_default(name: str) -> None:
    theirs = inspect.signature(THEIRS[name].__init__).parameters
    ours = dict(inspect.signature(OURS[name].__init__).parameters)
    for argument, expected in theirs.items():
        found = ours.pop(argument)
        assert (found.kind, found.default) == (expected.kind, expected.default), argument
    assert ours.pop("settings").kind is inspect.Parameter.VAR_KEYWORD
    own = OWN if name in ("ppo", "tqc") else {**OWN, "critic": None}
    own = {**own, "eta": 0.0} if name == "ppo" else own
    assert {argument: parameter.default for argument, parameter in ours.items()} == own
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in ours.values())
    names = {"VecEnv": VecEnv}  # which SB3 imports for type checkers only
    hints, expected_hints = (
        get_type_hints(kind.__init__, localns=names) for kind in (OURS[name], THEIRS[name])
    )
    assert hints["eta"] == float | str | Schedule
    different = {
        argument for argument, hint in expected_hints.items() if hints[argument] != hint
    } - {"return"}
    assert different <= {"learning_rate"}  # sb3-contrib says Callable where SB3 says Schedule


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_s_example_runs(name: str) -> None:
    doc = inspect.getdoc(OURS[name])
    assert doc is not None and {"method", "eta", "rule", "auxiliary"} <= set(
        re.findall(r"^    (\w+):", doc, re.M)
    )
    example = "\n".join(
        line.strip().removeprefix(">>> ") for line in doc.split("Example:")[1].splitlines()
    )
    found: dict[str, Any] = {}
    exec(example, found)
    assert type(found["model"]) is OURS[name] and found["model"].num_timesteps >= 60


def test_positional_arguments_are_sb3s() -> None:
    model = damper.sb3.TD3("MlpPolicy", "Pendulum-v1", 0.5, 77, eta=0.5)
    assert model.learning_rate == 0.5 and model.replay_buffer.buffer_size == 77 and model.eta == 0.5


def test_ppo_s_eta_is_0_unless_given_or_a_method_s_own(tmp_path: Path) -> None:
    def eta(**settings: Any) -> Any:
        return damper.sb3.PPO(
            "MlpPolicy", "Pendulum-v1", n_steps=64, **settings
        ).method_settings.get("eta")

    assert (eta(), eta(auxiliary="grad-caps"), eta(eta=1.0), eta(method="caps")) == (
        0.0,
        0.0,
        1.0,
        None,
    )
    assert eta(method=Method("mine", actor=temporal, rule="damper", defaults={"eta": 0.3})) == 0.3
    model = damper.sb3.PPO("MlpPolicy", "Pendulum-v1", n_steps=64, method="caps")
    model.save(tmp_path / "model")
    assert damper.sb3.PPO.load(tmp_path / "model", method="damper").eta == 0.0
    stable_baselines3.PPO("MlpPolicy", "Pendulum-v1", n_steps=64).save(tmp_path / "theirs")
    assert damper.sb3.PPO.load(tmp_path / "theirs").eta == 0.0
    assert damper.sb3.TD3("MlpPolicy", "Pendulum-v1", buffer_size=10).eta == 1.0


def test_eta_belongs_to_methods_that_have_it() -> None:
    model = damper.sb3.TD3("MlpPolicy", "Pendulum-v1", buffer_size=10, method="caps")
    assert not hasattr(model, "eta")
    for eta in (0.5, 1.0):
        with pytest.raises(DamperError, match="eta is neither"):
            damper.sb3.TD3("MlpPolicy", "Pendulum-v1", method="caps", eta=eta)


@pytest.mark.parametrize(("name", "default"), [("PPO", 0.0), ("TD3", 1.0), ("DDPG", 1.0)])
def test_an_eta_equal_to_the_classs_default_is_still_the_one_given(
    name: str, default: float
) -> None:
    def eta(**settings: Any) -> Any:
        small = {"n_steps": 64} if name == "PPO" else {"buffer_size": 10}
        return getattr(damper.sb3, name)("MlpPolicy", "Pendulum-v1", **small, **settings).eta

    def halfway(primary: Tensor, auxiliary: Tensor, *, eta: float = 0.4) -> Tensor:
        return primary + eta * auxiliary

    own = Method("mine", actor=temporal, rule="damper", defaults={"eta": 0.3})
    assert (eta(), eta(rule=halfway), eta(method=own)) == (default, 0.4, 0.3)
    assert eta(rule=halfway, eta=default) == eta(method=own, eta=default) == default
    signature = inspect.signature(getattr(damper.sb3, name)).parameters["eta"]
    assert str(signature).endswith(f"= {default}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("A2C", ""), ("DQN", "discrete"), ("Nonsense", "")],
)
def test_missing_names_answer_with_what_there_is(name: str, reason: str) -> None:
    with pytest.raises(
        ImportError,
        match=rf"has TD3, SAC, PPO, DDPG, TQC and RecurrentPPO, but no {name}.*{reason}",
    ):
        exec(f"from damper.sb3 import {name}")
    exec("from damper.sb3 import archive")  # a submodule
    assert not hasattr(damper.sb3, "__nothing__")


def test_tqc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "damper.sb3.tqc")
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(MissingExtraError, match=r'pip install "damper-rl\[sb3-contrib\]"'):
        exec("from damper.sb3 import TQC")
