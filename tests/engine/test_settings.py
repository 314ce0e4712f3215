"""Settings of a run: protocols, presets, products of lists, and sentences for mistakes."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.settings import PER_AGENT, Settings, checks, devices, resolve, resolving
from damper.engine.train import default_folder
from damper.errors import DamperError
from damper.losses.caps import caps
from damper.losses.temporal import temporal
from damper.methods import METHODS, Method, compose
from damper.protocols import protocol_settings
from damper.rules import RULES, settings_of
from damper.settings import SETTINGS, deciding

TASKS = {
    "LunarLander": 500_000,
    "Pendulum": 100_000,
    "Reacher": 500_000,
    "Ant": 1_000_000,
    "Hopper": 1_000_000,
    "Walker": 1_000_000,
}
FIRST_FIVE = (178132, 410580, 922852, 787576, 660993)
NEXT_FIVE = (857751, 968229, 423337, 499844, 985365)

# The two published settings, row by row as the papers and their code print them.
TD3 = {
    "net_arch": (400, 300),
    "policy_delay": 2,
    "target_policy_noise": 0.2,
    "target_noise_clip": 0.5,
}
TD3 |= {
    "action_noise": 0.1,
    "activation": "silu",
    "tau": 0.005,
    "train_freq": 1,
    "gradient_steps": 1,
}
SAC = {"net_arch": (256, 256), "activation": "silu", "tau": 0.005}
PAVE_TD3 = {**TD3, "learning_rate": 1e-3, "batch_size": 256, "learning_starts": 10_000}
SHORT = {**PAVE_TD3, "gamma": 0.98, "buffer_size": 200_000}
LONG = {**PAVE_TD3, "gamma": 0.99, "buffer_size": 1_000_000}
PAVE_SAC = {
    **SAC,
    "learning_rate": 1e-3,
    "batch_size": 100,
    "learning_starts": 10_000,
    "gamma": 0.99,
}
PAVE_SAC |= {"buffer_size": 1_000_000, "train_freq": 50, "gradient_steps": 50, "ent_coef": 0.2}
AUTHORS = {
    "learning_rate": 3e-4,
    "batch_size": 256,
    "learning_starts": 100,
    "gamma": 0.99,
    "buffer_size": 1_000_000,
}
AUTHORS_SAC = {**SAC, **AUTHORS, "train_freq": 1, "gradient_steps": 1, "ent_coef": "auto"}
PROTOCOLS: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("pave", "td3"): {
        task: SHORT if task in ("LunarLander", "Pendulum") else LONG for task in TASKS
    },
    ("pave", "sac"): dict.fromkeys(TASKS, PAVE_SAC),
    ("authors", "td3"): {task: {**TD3, **AUTHORS} for task in TASKS},
    ("authors", "sac"): dict.fromkeys(TASKS, AUTHORS_SAC),
}
ETA = {"td3": (0.8, 1.0, 1.0, 0.0, 1.0, 1.0), "sac": (1.0, 1.0, 0.8, 0.0, 0.0, 1.0)}


def test_every_number_declares_its_range() -> None:
    numbers = {field.name for field in fields(Settings) if float in SETTINGS[field.name].types}
    ranged = {field.name for field in fields(Settings) if "range" in field.metadata}
    assert numbers <= ranged, "a number would have the range of whole numbers"
    assert set(PER_AGENT) == numbers


def test_every_activation_can_be_chosen() -> None:
    assert SETTINGS["activation"].choices == tuple(ACTIVATIONS)


def test_the_authors_settings_are_the_defaults() -> None:
    for backbone in ("td3", "sac"):
        made = resolve("Hopper", backbone, "plain").record()
        for name, value in protocol_settings("authors", backbone, None).items():
            assert made[name] == value
            if name != "net_arch":
                assert value == SETTINGS[name].default, name


# --- what makes another run -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_makes_another_run_unless_it_says_how_to_compute(name: str) -> None:
    usual = resolve("Pendulum", "td3", "damper", eval_every=10)
    other = dict.fromkeys(SETTINGS, 3) | {
        "env": "Hopper",
        "backbone": "sac",
        "method": "caps",
        "method_settings": {"eta": 0.5},
        "seeds": (3,),
        "protocol": "pave",
        "table": ({"seed": 3},),
        "env_kwargs": {"g": 1.0},
        "device": "cuda",
        "backend": "envpool",
        "dtype": "float64",
        "activation": "relu",
        "net_arch": (3,),
    }
    switches = {name for name, declared in SETTINGS.items() if bool in declared.types}
    changed = replace(usual, **{name: True if name in switches else other[name]})
    assert getattr(changed, name) != getattr(usual, name)
    same_folder = SETTINGS[name].kind == "execution" or SETTINGS[name].backbone == "sac"
    assert (default_folder(changed) == default_folder(usual)) == same_folder


def test_what_is_off_does_not_enter_a_name_so_that_new_settings_move_no_run() -> None:
    values = {**resolve("Pendulum").record(), "protocol": None, "norm_obs": False, "tf32": True}
    names = deciding(values, "td3", "task", "training", "numerics")
    assert names.keys().isdisjoint({"protocol", "norm_obs", "ent_coef", "log_every"})
    assert {"tf32", "steps", "policy_delay"} <= names.keys()
    assert deciding({**values, "learning_starts": 0}, "td3", "training")["learning_starts"] == 0
    assert default_folder(resolve("Pendulum")).name == "Pendulum-td3-damper-cf5f2122"
    caps = resolve("Hopper", "sac", "caps", seeds=5, protocol="pave", log_every=7)
    assert default_folder(caps).name == "Hopper-sac-caps-2904ad42"


# --- protocols, presets and what is given ---------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("protocol", "backbone"), PROTOCOLS)
def test_protocols(protocol: str, backbone: str, task: str) -> None:
    made = resolve(task, backbone, "damper", seeds=10, protocol=protocol)
    assert made.steps == TASKS[task] and made.seeds == FIRST_FIVE + NEXT_FIVE
    expected = PROTOCOLS[protocol, backbone][task]
    assert {name: getattr(made, name) for name in expected} == expected
    assert made.method_settings["eta"] == dict(zip(TASKS, ETA[backbone], strict=True))[task]


def test_the_task_counts_and_not_how_it_is_spelled() -> None:
    ids = {"LunarLander": "LunarLander-v3", "Pendulum": "Pendulum-v1", "Walker": "Walker2d-v5"}
    for task, gymnasium_id in ids.items():
        short, long = (
            resolve(env, "td3", "pave", protocol="pave").record() for env in (task, gymnasium_id)
        )
        assert {**short, "env": ""} == {**long, "env": ""}


def test_what_is_given_wins() -> None:
    made = resolve(
        "Pendulum", "td3", "damper", steps=7, protocol="pave", gamma=0.5, eta=0.25, net_arch=[32]
    )
    assert (made.steps, made.gamma, made.method_settings["eta"], made.net_arch) == (
        7,
        0.5,
        0.25,
        (32,),
    )
    assert made.learning_rate == 1e-3, "the rest stays the protocol's"


@pytest.mark.parametrize(
    ("seeds", "protocol", "expected"),
    [
        (3, None, (0, 1, 2)),
        (np.int64(3), None, (0, 1, 2)),
        (5, "authors", FIRST_FIVE),
        (2, "pave", FIRST_FIVE[:2]),
        ([7, 3], "pave", (7, 3)),
    ],
)
def test_seeds(seeds: Any, protocol: str | None, expected: tuple[int, ...]) -> None:
    assert resolve("Pendulum", seeds=seeds, protocol=protocol).seeds == expected


def test_usual_names_are_read() -> None:
    ours = resolve("Swimmer-v5", seeds=(7,), steps=50)
    assert resolve("Swimmer-v5", seed=7, total_timesteps=50) == ours
    assert resolve("Pendulum", train_freq=(4, "step")) == resolve("Pendulum", train_freq=4)


def test_whole_numbers_may_be_written_as_floats() -> None:
    ours = resolve("Pendulum", steps=1_000_000, buffer_size=10_000)
    assert resolve("Pendulum", steps=1e6, buffer_size=1e4) == ours
    assert resolve("Pendulum", total_timesteps=1e6, buffer_size=1e4).record() == ours.record()
    assert isinstance(resolve("Pendulum", steps=1e6).steps, int)


def test_a_part_of_the_method_is_exchanged_by_its_name_as_everywhere() -> None:
    assert resolve("Pendulum", rule="pcgrad").method == "pcgrad"
    assert resolve("Pendulum", method="pave", rule="pcgrad").method == "pcgrad+pave"
    assert (
        resolve("Pendulum", auxiliary="grad-caps", critic="pave", eta=0.5).method
        == "damper+grad-caps+pave"
    )


# --- what differs between agents ------------------------------------------------------------------


def test_lists_make_their_product_and_seeds_lie_side_by_side() -> None:
    made = resolve(
        "Pendulum", "td3", "damper", seeds=(4, 2), eta=[0.0, 1.0], learning_rate=[1e-3, 1e-4]
    )
    rows = [(a["learning_rate"], a["eta"], a["seed"]) for a in made.agents()]
    assert rows == [
        (rate, eta, seed) for rate in (1e-3, 1e-4) for eta in (0.0, 1.0) for seed in (4, 2)
    ]
    hparams, rule = (
        made.per_agent_hparams(),
        made.method_kwargs(torch.device("cpu"), torch.float32)["rule"],
    )
    assert (
        hparams["learning_rate"].tolist() == [row[0] for row in rows]
        and hparams["gamma"].tolist() == [0.99] * 8
    )
    assert rule["eta"].tolist() == [row[1] for row in rows] and rule["eta"].dtype == torch.float32


def test_a_list_of_one_is_its_value_and_one_value_is_no_column() -> None:
    made = resolve("Pendulum", "td3", "damper", seeds=(4, 2), eta=[0.5])
    assert made.method_settings["eta"] == 0.5
    assert (
        resolve("Acrobot-v1", steps=10).record()["method_settings"]["eta"] == 1.0
    )  # where no preset helps
    assert made.agents() == [{"seed": 4}, {"seed": 2}]
    assert made.method_kwargs(torch.device("cpu"), torch.float32)["rule"] == {"eta": 0.5}


def test_arrays_and_tensors_are_lists_too() -> None:
    made = resolve(
        "Pendulum", eta=np.linspace(0, 1, 3), gamma=torch.tensor([0.5, 0.25]), steps=np.int64(70)
    )
    assert (
        made.method_settings["eta"] == (0.0, 0.5, 1.0)
        and made.gamma == (0.5, 0.25)
        and made.steps == 70
    )
    assert resolve("Pendulum", eta=np.float32(0.5), batch_size=np.int64(8)) == resolve(
        "Pendulum", eta=0.5, batch_size=8
    )


def test_temperatures_may_differ_and_automatic_starts_at_one() -> None:
    fixed = resolve("Pendulum", "sac", "plain", seeds=1, ent_coef=[0.1, 0.2])
    torch.testing.assert_close(
        fixed.per_agent_hparams()["ent_coef"], torch.tensor([0.1, 0.2], dtype=torch.float64)
    )
    assert resolve("Pendulum", "sac", "plain", seeds=2).per_agent_hparams()[
        "ent_coef"
    ].tolist() == [1.0, 1.0]


# --- methods as objects ---------------------------------------------------------------------------


def test_a_composed_method_is_known_by_its_name() -> None:
    assert (
        resolve("Pendulum", "td3", compose("caps", "pcgrad", "pave")).method == "pcgrad+caps+pave"
    )


def test_a_method_object_must_be_the_one_its_name_stands_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = Method("mine", actor=temporal)
    with pytest.raises(DamperError, match=r"set damper\.METHODS\['mine'\] first"):
        resolve("Pendulum", "td3", mine)
    monkeypatch.setitem(METHODS, "mine", mine)
    assert resolve("Pendulum", "td3", mine).method == "mine"
    with pytest.raises(DamperError, match=r"'damper' is another method in damper\.METHODS"):
        resolve("Pendulum", "td3", Method("damper", actor=caps, rule="damper"))


# --- mistakes -------------------------------------------------------------------------------------

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"backbone": "ppo"}, "backbone must be 'td3' or 'sac', but 'ppo' was given"),
    ({"method": "dampr"}, "did you mean 'damper'"),
    ({"protocol": "paper"}, "protocol must be one of pave, authors, but 'paper' was given"),
    ({"env": "CartPole-v1"}, "steps must be given for 'CartPole-v1'"),
    ({"learning_rates": 1e-3}, "learning_rates is not a setting .* did you mean 'learning_rate'"),
    ({"etta": 1.0}, "did you mean 'eta'"),
    ({"method": "plain", "eta": 1.0}, "eta is not a setting of the run or of method 'plain'"),
    ({"lambda_S": 1.0}, "lambda_S is not a setting of the run or of method 'damper'"),
    ({"env_steps": 3}, "env_steps is not a setting"),
    ({"eta": 1.5}, r"eta must be in \[0, 1\], but 1.5 was given"),
    ({"eta": (0.5, -0.1)}, r"eta must be in \[0, 1\], but -0.1 was given"),
    (
        {"eta": "high"},
        "eta must be a number, or a schedule such as linear:0:1, but 'high' was given",
    ),
    ({"eta": "linear:0:1.5"}, r"eta must be in \[0, 1\], but 1.0005 was given"),
    ({"eta": (0.5, "cosine:0.5:-1")}, r"eta must be in \[0, 1\], but -"),
    ({"eta": lambda remaining: 2 * remaining}, r"eta must be in \[0, 1\], but 2 was given"),
    (
        {"eta": lambda: 1.0},
        "eta as a function must take progress_remaining, from 1 to 0, and return a number",
    ),
    (
        {"eta": lambda remaining: None},
        "eta as a function must take progress_remaining, .*, and return a number",
    ),
    (
        {"eta": "linear:1"},
        "eta as a schedule must read linear:START:END, or linear:START:END:SHARE",
    ),
    (
        {"eta": "cosine:1:0:1.5"},
        "eta as a schedule must read cosine:START:END, or .*, but 'cosine:1:0:1.5' was given",
    ),
    (
        {"learning_rate": "linear:1:2"},
        r"learning_rate must be a number in \[0, 1\], .*, but 1.001 was given",
    ),
    (
        {"gamma": "linear:0.9:1"},
        r"gamma must be a number in \[0, 1\], but 'linear:0.9:1' was given",
    ),
    ({"mask_terminal": "linear:0:1"}, "mask_terminal must be"),
    ({"mask_terminal": "no"}, "mask_terminal must be True or False, .*, but 'no' was given"),
    ({"eta": float("nan")}, r"eta must be in \[0, 1\], but nan was given"),
    ({"eta": ()}, "must have at least one value"),
    (
        {"method": "scalarization", "weight": (1.0, -1.0)},
        "weight must be finite and at least 0, but -1 was given",
    ),
    ({"method": "caps", "lambda_T": -1.0}, "lambda_T must be"),
    ({"mask_terminal": (True, False)}, "mask_terminal must be one value for the whole population"),
    ({"gamma": 1.2}, r"gamma must be a number in \[0, 1\], but 1.2 was given"),
    ({"gamma": (0.9, 1.2)}, r"gamma must be a number in \[0, 1\], but 1.2 was given"),
    ({"learning_rate": float("nan")}, "learning_rate must be a number"),
    ({"learning_rate": "fast"}, "learning_rate must be a number in .*, but 'fast' was given"),
    (
        {"ent_coef": "automatic"},
        "ent_coef must be a number in .*, or 'auto' for all agents, but 'automatic' was given",
    ),
    ({"ent_coef": ("auto", 0.1), "backbone": "sac"}, "ent_coef must be a number"),
    ({"batch_size": 0}, "batch_size must be a whole number of at least 1, but 0 was given"),
    ({"batch_size": 2.5}, "batch_size must be a whole number of at least 1, but 2.5 was given"),
    (
        {"batch_size": (1, 2)},
        "batch_size must be one value for the whole population, but 2 were given",
    ),
    (
        {"gradient_steps": -1},
        "gradient_steps must be .*, but -1 was given: for SB3's -1 give the number that train_",
    ),
    (
        {"train_freq": (1, "episode")},
        r"train_freq must be a number of steps, but \(1, 'episode'\) was given: damper.s",
    ),
    (
        {"train_freq": (1, 2)},
        "train_freq must be one value for the whole population, but 2 were given",
    ),
    (
        {"action_noise": None},
        r"action_noise must be a number in \[0, 10\], but None was given: it is the standard "
        "deviation of normal noise, 0 for SB3's None",
    ),
    (
        {"n_steps": 3},
        "n_steps is not a setting .*: only the classes of damper.sb3 take it, not the engine",
    ),
    (
        {"target_entropy": -1.0},
        "target_entropy is not a setting .*: only the classes of damper.sb3 take it",
    ),
    ({"steps": 0}, "steps must be a whole number of at least 1"),
    ({"steps": True}, "steps must be a whole number of at least 1, but True was given"),
    ({"learning_rate": True}, "learning_rate must be a number in .*, but True was given"),
    ({"learning_starts": -1}, "learning_starts must be a whole number of at least 0"),
    ({"net_arch": ()}, "net_arch must be a list of layer sizes"),
    ({"net_arch": 256}, "net_arch must be a list of layer sizes, but 256 was given"),
    (
        {"net_arch": {"pi": [8], "qf": [8]}},
        "net_arch must be a list of layer sizes, .* damper.sb3's classes take custom layers",
    ),
    (
        {"net_arch": (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LSTM(4, 4)),)},
        "net_arch must be a list of",
    ),
    (
        {"policy_kwargs": {}},
        "policy_kwargs is not a setting .*: .* damper.sb3's classes take custom layers in policy_",
    ),
    (
        {"activation_fn": torch.nn.ELU},
        "activation_fn is not a setting .* damper.sb3's classes take custom layers",
    ),
    ({"net_arch": (256, 0)}, "net_arch must be a whole number of at least 1"),
    (
        {"activation": "softsign"},
        f"activation must be one of {', '.join(ACTIVATIONS)}, but 'softsign' was given",
    ),
    ({"dtype": "float16"}, "dtype must be one of float32, float64"),
    ({"backend": "brax"}, "backend must be one of gymnasium, envpool, but 'brax' was given"),
    (
        {"envs": "gymnasium"},
        "envs is not a setting of the run or of method 'damper': method 'damper' takes",
    ),
    (
        {"steps": 10, "total_timesteps": 10},
        "steps and total_timesteps are the same setting, but both were given",
    ),
    ({"seeds": 2, "seed": 1}, "seed is for one agent and seeds for several, but both were given"),
    ({"protocol": "papers"}, "protocol must be one of pave, authors, but 'papers' was given"),
    ({"env_threads": 0}, "env_threads must be a whole number of at least 1, but 0 was given"),
    ({"device": "gpu"}, "device must be 'cpu' or 'cuda', but 'gpu' was given"),
    ({"graph": True}, "graph needs device='cuda', but device='cpu' was given"),
    ({"device": "cuda:99"}, "device must be one that this machine has"),
    ({"rule": "pcgra"}, "rule must .* did you mean 'pcgrad'"),
    (
        {"rule": max},
        r"rule must be a name in damper.rules.RULES, .*: set damper.rules.RULES\['max'\] = max",
    ),
    (
        {"method": Method("own", temporal, max)},
        r"rule must be a name in .*: set damper.rules.RULES\['max'\] = max",
    ),  # type: ignore[arg-type]
    (
        {"method": max},
        "method must be a name .*: add your rule to damper.rules.RULES, or make a damper.Method "
        "from",
    ),
    (
        {"backbone": "ppo"},
        "backbone must be 'td3' or 'sac', but 'ppo' was given: damper.sb3 has PPO",
    ),
    ({"seeds": ()}, "seeds must be one or more different integers"),
    ({"seeds": (1, 1)}, "seeds must be one or more different integers"),
    ({"seeds": (1.5,)}, "seeds must be a list of whole numbers, or a number of seeds"),
    (
        {"eta": [0.1, 0.1]},
        r"eta must have different values, one for each agent, but \(0.1, 0.1\) was given: a repea",
    ),
    ({"gamma": [0.9, 0.99, 0.9]}, "gamma must have different values, one for each agent"),
    ({"eta": [[0.1], [0.2]]}, "eta must be a number, or a schedule"),
    ({"seeds": 0}, "seeds must be at least 1, or different integers, but 0 was given"),
    ({"seeds": True}, "seeds must be at least 1, or different integers, but True was given"),
    ({"seeds": 11, "protocol": "pave"}, "seeds must be at most 10 with a protocol"),
]


@pytest.mark.parametrize(
    ("given", "told"),
    MISTAKES,
    ids=[re.sub(" at 0x[0-9a-f]+", "", str(given)) for given, _ in MISTAKES],
)
def test_mistakes_are_told_in_one_sentence(given: dict[str, Any], told: str) -> None:
    with pytest.raises(DamperError, match=told) as error:
        resolve(**{"env": "Pendulum", **given})
    assert "\n" not in str(error.value)


def test_every_field_is_a_setting() -> None:
    fields = {
        name
        for name in Settings.__dataclass_fields__
        if name not in ("env", "method", "method_settings")
    }
    made = resolve("Pendulum")
    for name in fields - {"backbone", "seeds", "steps", "protocol"}:
        assert getattr(resolve("Pendulum", **{name: getattr(made, name)}), name) == getattr(
            made, name
        )


# --- rules of one's own ---------------------------------------------------------------------------


def _by_norm(primary: Tensor, auxiliary: Tensor, *, share: Any = 1.0) -> Tensor:
    share = share.unsqueeze(-1) if isinstance(share, Tensor) else share
    return primary + share * auxiliary * (
        primary.norm(dim=-1, keepdim=True) / auxiliary.norm(dim=-1, keepdim=True)
    )


def _noisy(primary: Tensor, auxiliary: Tensor) -> Tensor:
    return primary + torch.rand_like(auxiliary) * auxiliary


def _noisy_by_itself(primary: Tensor, auxiliary: Tensor) -> Tensor:
    return primary + torch.as_tensor(np.random.default_rng().random(auxiliary.shape)) * auxiliary


def _remembers(
    primary: Tensor, auxiliary: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    state = 0.9 * (torch.zeros_like(primary) if state is None else state) + 0.1 * auxiliary
    return primary + state, state


def _mixes(primary: Tensor, auxiliary: Tensor) -> Tensor:
    return primary + auxiliary * primary.norm() / auxiliary.norm()


def _mixes_the_losses(primary: Tensor, auxiliary: Tensor, *, auxiliary_loss: Tensor) -> Tensor:
    return primary + auxiliary * auxiliary_loss.mean().sqrt()


def _reads_its_loss(primary: Tensor, auxiliary: Tensor, *, auxiliary_loss: Tensor) -> Tensor:
    return primary + auxiliary * auxiliary_loss.sqrt().unsqueeze(-1)


def _mixes_with_noise(primary: Tensor, auxiliary: Tensor) -> Tensor:
    return primary + torch.rand_like(auxiliary) * auxiliary.mean()


def _mixes_its_memory(
    primary: Tensor, auxiliary: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    state = torch.zeros_like(primary) if state is None else state
    return primary + state, 0.9 * state + 0.1 * auxiliary.mean(0, keepdim=True)


def _branches(primary: Tensor, auxiliary: Tensor) -> Tensor:
    return primary + auxiliary if (primary * auxiliary).sum(-1) > 0 else primary


def _forgets_the_agents(primary: Tensor, auxiliary: Tensor, *, cap: Any = 1.0) -> Tensor:
    return primary + cap * auxiliary


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        (_by_norm, {}),
        (_by_norm, {"share": [0.5, 1.0]}),
        (_noisy, {}),
        (_noisy_by_itself, {}),
        (_remembers, {}),
        (_reads_its_loss, {}),
    ],
)
def test_a_batched_rule_of_one_s_own_is_taken(
    monkeypatch: pytest.MonkeyPatch, rule: Any, given: Any
) -> None:
    monkeypatch.setitem(RULES, "mine", rule)
    assert resolve("Pendulum", rule="mine", seeds=3, **given).method == "mine"


def test_a_registered_rule_may_be_given_as_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "mine", _by_norm)
    assert resolve("Pendulum", rule=_by_norm) == resolve("Pendulum", rule="mine")
    with pytest.raises(DamperError, match="the rule of method 'own' must be its name"):
        resolve("Pendulum", method=Method("own", temporal, _by_norm))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "given", "told"),
    [
        (
            _mixes,
            {},
            "must be batched over leading axes, .*, but one agent's result depends on .*: reduce "
            "with dim=-1",
        ),
        (_mixes_the_losses, {}, "one agent's result depends on another's"),
        (_mixes_with_noise, {}, "one agent's result depends on another's"),
        (_mixes_its_memory, {}, "one agent's result depends on another's"),
        (_branches, {}, r"fails for two agents \(Boolean value of Tensor"),
        (
            _forgets_the_agents,
            {"cap": [0.5, 1.0]},
            r"fails for two agents .* unsqueeze\(-1\) a setting .* is \[P\]",
        ),
    ],
)
def test_a_rule_that_mixes_agents_is_refused(
    monkeypatch: pytest.MonkeyPatch, rule: Any, given: Any, told: str
) -> None:
    monkeypatch.setitem(RULES, "mine", rule)
    with pytest.raises(DamperError, match=told) as error:
        resolve("Pendulum", rule="mine", seeds=2, **given)
    assert "\n" not in str(error.value)
    assert given or resolve("Pendulum", rule="mine", seeds=1).method == "mine", (
        "one agent has none to be mixed with"
    )
    if rule is _mixes:
        resolve(
            "Pendulum", rule="mine", seeds=1, learning_rate="linear:0.001:0"
        )  # nor do the points of its schedule


@pytest.mark.parametrize("rule", RULES)
def test_no_shipped_rule_mixes_agents(rule: str) -> None:
    checks._check_batched(rule, settings_of(rule))


# --- how to run -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "given", "expected"),
    [
        (False, {"steps": 1_000_000}, ("cpu", False)),
        (True, {"steps": 1_000_000}, ("cuda", True)),
        (True, {"steps": 100_100}, ("cuda", True)),
        (True, {"steps": 100_099}, ("cuda", False)),
        (True, {"steps": 100_099, "gradient_steps": 2}, ("cuda", True)),
        (True, {"steps": 1_000_000, "device": "auto", "compile": False}, ("cuda", False)),
        (True, {"steps": 1_000_000, "device": "cpu"}, ("cpu", False)),
        (True, {"steps": 100, "compile": True}, ("cuda", True)),
        (False, {"steps": 100, "compile": True, "device": "auto"}, ("cpu", True)),
    ],
)
def test_a_gpu_is_used_where_there_is_one_and_long_runs_are_compiled_there(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, given: dict[str, Any], expected: tuple[str, bool]
) -> None:
    monkeypatch.setattr(devices, "_fastest_device", lambda: "cuda" if gpu else "cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(gpu))
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/cc")
    made = resolve("Hopper", "td3", "damper", (0,), **given)
    assert (made.device, made.compile) == expected


def test_without_a_c_compiler_nothing_is_compiled_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "_fastest_device", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not resolve("Hopper", "td3", "damper", (0,), 1_000_000).compile


@pytest.mark.parametrize(
    ("gpu", "env", "given", "expected"),
    [
        (True, "Hopper", {}, "envpool"),
        (True, "Hopper-v5", {"backend": "auto"}, "envpool"),
        (True, "Hopper", {"backend": "gymnasium"}, "gymnasium"),
        (True, "Hopper", {"device": "cpu"}, "gymnasium"),
        (True, "Hopper", {"env_kwargs": {"frame_skip": 2}}, "gymnasium"),
        (True, "Swimmer-v5", {"steps": 10}, "gymnasium"),
        (True, lambda: None, {"steps": 10}, "gymnasium"),
        (True, "Pendulum", {}, "gymnasium"),
        (False, "Hopper", {}, "gymnasium"),
        (False, "Hopper", {"backend": "envpool"}, "envpool"),
    ],
)
def test_envpool_steps_the_paper_s_tasks_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, env: Any, given: dict[str, Any], expected: str
) -> None:
    monkeypatch.setattr(devices, "_fastest_device", lambda: "cuda" if gpu else "cpu")
    monkeypatch.setattr(resolving, "_envpool_has", lambda task: task != "Pendulum")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(gpu))
    made = resolve(env, **given)
    assert made.backend == made.record()["backend"] == expected


def test_envpool_is_asked_which_tasks_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = resolving._envpool_has.__wrapped__
    monkeypatch.setitem(
        sys.modules, "envpool", SimpleNamespace(list_all_envs=lambda: ["Hopper-v5"])
    )
    assert ask("Hopper") and not ask("Walker")
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert not ask("Hopper")
