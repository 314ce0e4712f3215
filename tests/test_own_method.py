"""A method defined outside the package: one loss, one registry line, and everything takes it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import damper
from damper.errors import DamperError
from damper.interface import Batch, Loss, NoiseDraws, Policy
from tests import tiny
from tests.engine import small

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from damper.interface import Setting


def quiet(
    policy: Policy, batch: Batch, noise: NoiseDraws, *, strength: float | Tensor = 0.1
) -> Tensor:
    """``strength · mean ‖μ(s)‖²``: a policy that should do little."""
    return strength * policy(batch.obs).square().sum(-1).mean(-1)


@pytest.fixture
def toy():
    damper.METHODS["quiet"] = damper.Method("quiet", actor=Loss(quiet))
    yield damper.METHODS["quiet"]
    del damper.METHODS["quiet"]


def test_annotations_may_name_what_only_a_type_checker_imports():
    def own(
        policy: Sequence,
        batch: Sequence,
        noise: Sequence,
        *,
        strength: Setting = 0.1,
        form: Literal["a", "b"] = "a",
        even: bool = True,
        other: Sequence | None = None,
    ) -> Sequence: ...

    class Callable:
        def __call__(
            self, policy: Sequence, batch: Sequence, noise: Sequence, *, strength: Setting = 0.1
        ): ...

    Loss(own).check({"strength": 0.2, "form": "b", "even": False, "other": object()})
    wrapped = functools.wraps(own)(lambda *inputs, **settings: own(*inputs, **settings))
    for loss in (
        own,
        wrapped,
        Callable(),
        Callable().__call__,
        functools.partial(own, strength=1.0),
    ):
        with pytest.raises(DamperError, match="strength must be finite and at least 0"):
            Loss(loss).check({"strength": -1.0})
    with pytest.raises(DamperError, match="form must be 'a' or 'b'"):
        Loss(own).check({"form": "c"})
    with pytest.raises(DamperError, match="even must be True or False"):
        Loss(functools.partial(functools.partial(own, form="b"), strength=1.0)).check({"even": 1})


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_it_trains_as_a_population_and_does_what_it_says(toy, backbone, tmp_path):
    run = tiny.train(
        tmp_path / "run", "quiet", backbone, steps=500, seeds=(0,), strength=[0.0, 100.0]
    )
    assert [agent["strength"] for agent in run.agents] == [0.0, 100.0]
    obs = torch.randn(64, 3, generator=torch.Generator().manual_seed(0)).numpy()
    loud, silent = (abs(run.policy(agent)(obs)).mean() for agent in (0, 1))
    assert silent < 0.5 * loud


def test_any_rule_steers_it(toy, tmp_path):
    run = tiny.train(tmp_path / "run", "damper+quiet", seeds=(0,), steps=200, eta=0.5)
    assert run.manifest["settings"]["method"] == "damper+quiet"
    assert run.manifest["frozen"] == {}


def _no_agents_left(policy, batch, noise):
    return policy(batch.obs).square().mean()


def _per_sample(policy, batch, noise):
    return policy(batch.obs).square()


def _no_tensor(policy, batch, noise):
    return 0.0


def _unasked(policy, batch, noise):
    return (policy(batch.obs) - noise["nudge"]).square().mean((-2, -1))


def _critic_without_agents(critic, policy, batch, noise):
    return critic(batch.obs, batch.action).square().mean()


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("rule", [None, "damper"])
@pytest.mark.parametrize(
    ("losses", "told"),
    [
        (
            {"actor": _no_agents_left},
            r"actor's loss .* one value per agent, .*, but returned shape \(\): end it in mean",
        ),
        ({"actor": _per_sample}, r"one value per agent, .*, but returned shape \(\d, \d+, 1\)"),
        ({"actor": _no_tensor}, "one value per agent, .*, but returned a float"),
        ({"actor": _unasked}, r"but 'nudge' is not among .*: declare it in Loss\(function, noise="),
        (
            {"actor": Loss(quiet), "critic": _critic_without_agents},
            r"critic's loss .*, but returned shape \(\)",
        ),
    ],
)
def test_a_loss_that_is_none_is_told_in_a_sentence(
    monkeypatch, tmp_path, losses, told, rule, compile
):
    losses = {part: loss if isinstance(loss, Loss) else Loss(loss) for part, loss in losses.items()}
    monkeypatch.setitem(damper.METHODS, "wrong", damper.Method("wrong", rule=rule, **losses))
    with pytest.raises(DamperError, match=told):
        tiny.train(tmp_path / "run", "wrong", steps=60, seeds=(0, 1), compile=compile)


def test_a_loss_with_numbers_of_its_own_is_checked_as_it_will_be_called(monkeypatch):
    weight, offset = (
        torch.ones(3, 1),
        torch.zeros(2),
    )  # float32, and one value for each of two agents

    def own(policy, batch, noise):
        return (policy(batch.obs) - batch.obs @ weight).square().mean((-2, -1)) + offset

    monkeypatch.setitem(damper.METHODS, "own", damper.Method("own", actor=Loss(own)))
    small.learner(small.settings("td3", "own", seeds=(0, 1), compile=True))
