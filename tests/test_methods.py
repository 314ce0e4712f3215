"""The registry, composition, and what every method owes the others."""

from __future__ import annotations

import re

import pytest
import torch

from damper.engine.settings import resolve
from damper.errors import DamperError
from damper.interface import Loss, Noise
from damper.methods import METHODS, Method, compose, find_method, setting_hint
from damper.rules import RULES
from tests.losses.helpers import SEEDS, population, train

BACKBONES = ["td3", "sac"]
OFF = {
    "scalarization": {"weight": 0.0},
    "temporal-ramp": {"weight": 0.0},
    "caps": {"lambda_T": 0.0, "lambda_S": 0.0},
    "grad-caps": {"lambda_T": 0.0},
    "asap": {"lambda_S": 0.0, "lambda_P": 0.0, "lambda_T": 0.0},
    "l2c2": {"lambda_low": 0.0},
    "l2c2-released": {"lambda_low": 0.0},
    "pave": {"lambda_1": 0.0, "lambda_2": 0.0, "lambda_3": 0.0},
}
# Methods that differ in their rule alone: to the agents a rule is a function of rows, whose
# independence tests/rules/test_batching.py holds for each, and
# tests/engine/update/test_population.py trains those with a memory.
BY_RULE = [name for name in METHODS if name in RULES and name != "damper"]
WITH_LOSSES = [*(name for name in METHODS if name not in BY_RULE), "damper+grad-caps+pave"]
TRAINED = ("actor", "actor_target", "critic", "critic_target")


def layers(agents, name):
    """The named parameters, without a head that only this method has."""
    layout = (
        agents.networks.actor_layout if name.startswith("actor") else agents.networks.critic_layout
    )
    split = layout.unflatten(agents.state()[name].reshape(-1, layout.size))
    return {layer: tensors for layer, tensors in split.items() if layer != "prediction"}


def assert_same(ours, theirs, same):
    for name in TRAINED:
        if name in theirs.state():
            expected = layers(theirs, name)
            for layer, tensors in layers(ours, name).items():
                assert all(same(a, b) for a, b in zip(tensors, expected[layer], strict=True)), (
                    f"{name}.{layer}"
                )


@pytest.fixture(scope="module")
def plain():
    """Plain agents after 20 updates."""
    return {
        backbone: train(population("plain", backbone, dtype=torch.float32))
        for backbone in BACKBONES
    }


def test_settings_given_are_completed_by_defaults():
    method = find_method("caps+pave")
    assert method.settings()["sigma"] == 0.2 and method.settings()["critic_sigma"] == 0.01
    assert method.settings({"critic_sigma": 0.5}) == {**method.settings(), "critic_sigma": 0.5}
    # A name that two parts have sets both, so that no default of the second stands beside it.
    given = method.settings({"sigma": 0.3})
    assert given["sigma"] == 0.3 and "critic_sigma" not in given and given["lambda_T"] == 0.1
    assert method.route(given) == method.route({"sigma": 0.3})


def test_the_names_users_rely_on_are_there():
    named = {
        "plain",
        "damper",
        "caps",
        "grad-caps",
        "asap",
        "l2c2",
        "pave",
        "pegrad",
        "scalarization",
    }
    assert named | {
        "unconditional-sum",
        "unconditional-projection",
        "l2c2-released",
        "temporal-ramp",
    } <= set(METHODS)
    assert set(RULES) <= set(METHODS)
    assert all(method.name == name for name, method in METHODS.items())


def test_every_method_with_a_loss_of_its_own_can_be_turned_off():
    # The rules' methods share the temporal loss, which has no weight; of any gradient of zero each
    # rule makes plain.
    with_a_loss = {name for name, method in METHODS.items() if method.losses and not method.rule}
    assert set(OFF) == with_a_loss | {"scalarization"}


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", OFF)
def test_all_weights_at_zero_is_plain_bit_for_bit(name, backbone, plain):
    off = train(population(name, backbone, dtype=torch.float32, **OFF[name]))
    assert_same(off, plain[backbone], torch.equal)
    on = train(population(name, backbone, dtype=torch.float32))
    assert not torch.equal(on.state()["critic"], plain[backbone].state()["critic"])


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("rule", RULES)
def test_an_auxiliary_gradient_of_zero_is_plain_bit_for_bit(rule, backbone, plain):
    silent = Method(
        "silent",
        actor=Loss(lambda policy, batch, noise: 0.0 * policy(batch.obs).sum((-2, -1))),
        rule=rule,
    )
    assert_same(
        train(population(silent, backbone, dtype=torch.float32)), plain[backbone], torch.equal
    )


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize(
    "name", [*WITH_LOSSES, *(pytest.param(name, marks=pytest.mark.slow) for name in BY_RULE)]
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_a_member_equals_itself_alone(name, backbone, dtype, tolerance):
    together = train(population(name, backbone, dtype=dtype), updates=30)
    alone = train(population(name, backbone, SEEDS[1:2], dtype), SEEDS[1:2], updates=30)
    for key in (*TRAINED, "actor_average"):
        if key in alone.state():
            layout = (
                alone.networks.actor_layout
                if key.startswith("actor")
                else alone.networks.critic_layout
            )
            pair = (
                agents.state()[key].reshape(agents.n_agents, -1, layout.size)
                for agents in (together, alone)
            )
            ours, theirs = (
                layout.unflatten(rows[member]) for rows, member in zip(pair, (1, 0), strict=True)
            )
            for layer, tensors in theirs.items():
                for a, b in zip(ours[layer], tensors, strict=True):
                    assert (a - b).norm() <= tolerance * b.norm(), f"{key}.{layer}"


def _pull(policy, batch, noise, *, strength: float = 0.1):
    """Pull a noisy action to zero: a method from outside the package."""
    return strength * (policy(batch.obs) + 0.1 * noise["pull"]).square().mean((-2, -1))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_method_needs_one_loss_and_one_registry_line(backbone, plain, monkeypatch):
    pull = Loss(_pull, noise={"pull": Noise("normal", "action")})
    monkeypatch.setitem(METHODS, "pull", Method("pull", actor=pull))
    assert find_method("pull").settings() == {"strength": 0.1}
    pulled = train(population("pull", backbone, dtype=torch.float32, strength=10.0))
    assert pulled.state()["active"].all()
    assert not torch.equal(pulled.state()["actor"], plain[backbone].state()["actor"])
    off = train(population("pull", backbone, dtype=torch.float32, strength=0.0))
    assert_same(off, plain[backbone], torch.equal)
    # It composes like the package's own.
    assert find_method("damper+pull+pave") == compose("pull", "damper", "pave")
    assert train(population("damper+pull+pave", backbone), updates=2).state()["active"].all()


def test_composed_methods_have_the_parts_named():
    method = compose(auxiliary="grad-caps", rule="damper", critic="pave")
    assert method.name == "damper+grad-caps+pave"
    assert (method.actor, method.rule, method.critic) == (
        METHODS["grad-caps"].actor,
        "damper",
        METHODS["pave"].critic,
    )
    assert method.previous_obs
    assert set(method.noise) == {"pave_state", "pave_direction"}
    assert compose(critic="pave").name == "damper+pave"
    assert compose(critic="l2c2").name == "damper+temporal+l2c2"
    assert compose("caps", rule=None, critic="pave").name == "caps+pave"
    assert compose().name == "damper"


@pytest.mark.parametrize("auxiliary", ["temporal", "caps", "l2c2"])
@pytest.mark.parametrize("rule", [None, "damper", "bloop"])
@pytest.mark.parametrize("critic", [None, "pave", "l2c2"])
def test_a_composed_methods_name_leads_back_to_it(auxiliary, rule, critic):
    if (auxiliary, rule, critic) == (
        "l2c2",
        None,
        None,
    ):  # "l2c2" is the method with its critic loss
        with pytest.raises(
            DamperError, match=r"^rule must be given .*'l2c2'.* rule='scalarization' adds the actor"
        ):
            compose(auxiliary, rule, critic)
        return
    method = compose(auxiliary, rule, critic)
    named = find_method(method.name)
    assert (named.actor, named.rule, named.critic) == (method.actor, method.rule, method.critic)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cap", "method must be one of damper.METHODS, but 'cap' was given: did you mean 'caps'?"),
        ("damper+gradcaps+pave", "method must be one of damper.METHODS, but 'gradcaps' was given: "
                                 "did you"),
        ("pave+damper", "method must read rule+auxiliary+critic, as in 'damper+grad-caps+pave', "
                        "but is 'pave+damper'."),
        ("caps+pave+damper", "method must read rule+auxiliary+critic"),
        ("plain+pave", "method must read rule+auxiliary+critic"),
        (None, "method must be a name in damper.METHODS or a damper.Method, but None was given: "
               "'plain'"),
    ],
)  # fmt: skip
def test_unknown_names_get_one_clear_sentence(name, message):
    with pytest.raises(DamperError) as refused:
        find_method(name)
    assert str(refused.value).startswith(message)


def test_unknown_parts_get_one_clear_sentence():
    for part, choices in (("auxiliary", "asap, caps"), ("critic", "l2c2, l2c2-released, pave")):
        with pytest.raises(
            DamperError,
            match=rf"^{part} must name a method with an? \w+ loss, but 'xyz' .*{choices}",
        ):
            compose(**{part: "xyz"})
    with pytest.raises(
        DamperError, match=r"^rule must be one of damper.rules.RULES, but 'dampr' .* 'damper'\?$"
    ):
        compose(rule="dampr")


def test_settings_reach_the_parts_that_have_them():
    method = compose("caps", "damper", "pave")
    assert method.settings()["sigma"] == 0.2
    assert method.settings()["critic_sigma"] == 0.01
    assert set(method.settings()) >= {
        "eta",
        "lambda_T",
        "lambda_S",
        "lambda_1",
        "lambda_2",
        "lambda_3",
        "delta",
    }
    routed = method.route({"critic_sigma": 0.5, "eta": 0.3})
    assert (routed["actor"]["sigma"], routed["critic"]["sigma"], routed["rule"]["eta"]) == (
        0.2,
        0.5,
        0.3,
    )
    shared = METHODS["l2c2"].route({"sigma": 0.5})
    assert shared["actor"]["sigma"] == shared["critic"]["sigma"] == 0.5
    assert not any(name.startswith("critic_") for name in METHODS["l2c2"].settings())
    assert METHODS["l2c2-released"].route({})["critic"]["released_d"] is True


@pytest.mark.parametrize(
    ("name", "setting", "value", "message"),
    [
        ("caps", "lambda_T", -0.1, "lambda_T must be finite and at least 0, but -0.1 was given"),
        ("caps", "sigma", float("nan"), "sigma must be finite and at least 0"),
        (
            "pave",
            "lambda_1",
            torch.tensor([0.1, -1.0]),
            "lambda_1 must be finite and at least 0, but -1 was given",
        ),
        (
            "grad-caps",
            "form",
            "papper",
            "form must be 'released' or 'paper', but 'papper' was given",
        ),
        (
            "asap",
            "squash",
            1,
            "squash must be True or False, the same for all agents, but 1 was given",
        ),
    ],
)
def test_bad_settings_are_refused_where_they_enter(name, setting, value, message):
    with pytest.raises(DamperError) as refused:
        METHODS[name].route({setting: value})
    assert str(refused.value).startswith(message)


def test_a_setting_without_a_default_is_refused_in_one_sentence(monkeypatch):
    def loss(policy, batch, noise, *, strength):
        return strength * policy(batch.obs).square().mean((-2, -1))

    monkeypatch.setitem(
        RULES, "mine", lambda primary, auxiliary, share: primary + share * auxiliary
    )
    for mine, setting, where in (
        (Method("mine", actor=Loss(loss)), "strength", "loss on the actor"),
        (Method("mine", critic=Loss(loss)), "strength", "loss on the critic"),
        (Method("mine", actor=METHODS["damper"].actor, rule="mine"), "share", "rule"),
    ):
        monkeypatch.setitem(METHODS, "mine", mine)
        sentence = (
            f"{setting} must be given, because the {where} of method 'mine' has no default for it: "
        )
        with pytest.raises(DamperError, match=sentence):
            resolve("Pendulum-v1", method="mine", steps=10)
        if mine.critic is None:
            assert (
                resolve("Pendulum-v1", method="mine", steps=10, **{setting: 0.5}).method_settings[
                    setting
                ]
                == 0.5
            )
        with pytest.raises(DamperError, match="it belongs to the methods"):
            resolve("Pendulum-v1", method="damper", steps=10, sigma=3)
    monkeypatch.setitem(
        METHODS, "mine", Method("mine", actor=Loss(loss), defaults={"strength": 0.3})
    )
    assert find_method("mine").settings() == {"strength": 0.3}


@pytest.mark.parametrize(
    ("method", "setting", "sentence"),
    [
        (
            "caps",
            "eta",
            "it belongs to the rules (damper, .*), while method 'caps' takes lambda_T, lambda_S, "
            "sigma.",
        ),
        (
            "plain",
            "eta",
            "it belongs to the rules (damper, .*), while method 'plain' takes no settings.",
        ),
        (
            "damper",
            "lambda_S",
            "it belongs to the methods (caps, .*), while method 'damper' takes .*eta.",
        ),
        ("damper", "tou", "did you mean 'tau'?"),
        ("caps", "sigm", "did you mean 'sigma'?"),
        ("caps", "xyz", "method 'caps' takes lambda_T, lambda_S, sigma."),
    ],
)
def test_a_setting_of_another_method_is_no_misspelling(method, setting, sentence):
    pattern = re.escape(sentence).replace(r"\.\*", ".*")
    assert re.fullmatch(pattern, setting_hint(setting, METHODS[method], ["tau", "gamma"]))
    with pytest.raises(
        DamperError,
        match=f"{setting} is not a setting of the run or of method '{method}': {pattern}",
    ):
        resolve("Pendulum-v1", method=method, steps=10, **{setting: 1.0})
