"""``max_grad_norm``: every agent's gradient has at most its own bound."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from damper.engine.settings import resolve
from damper.errors import DamperError
from tests.engine import small


def state_after(updates: int, backbone: str, **given: object) -> dict[str, Tensor]:
    """The state of agents of one seed after some updates, an actor's at each."""
    made = small.settings(backbone, "damper", seeds=(3,), policy_delay=1, dtype="float64", **given)
    learner = small.learner(made)
    for _ in range(updates):
        learner.update()
    return learner.state()


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_gradients_are_scaled_as_by_pytorch_for_each_agent_alone(backbone: str) -> None:
    bounds = (0.001, 0.01, 1e6)
    bounded = state_after(1, backbone, max_grad_norm=bounds)
    free = state_after(1, backbone)
    for name in ("critic", "actor"):
        (gradient,) = free[f"{name}.m"] / 0.1  # Adam's first moments are a tenth of it
        assert gradient.norm() > 0.01, "or nothing would be bounded"
        for bound, ours in zip(bounds, bounded[f"{name}.m"] / 0.1, strict=True):
            expected = gradient.clone().requires_grad_()
            expected.grad = gradient.clone()
            torch.nn.utils.clip_grad_norm_([expected], bound)
            # The actor's gradient is of critics whose first steps differ by Adam's epsilon.
            torch.testing.assert_close(ours, expected.grad, rtol=1e-3, atol=1e-9)
    if backbone == "sac":
        assert (bounded["log_ent_coef.m"] == free["log_ent_coef.m"]).all(), (
            "the temperature's is free"
        )


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_a_bound_that_no_gradient_reaches_changes_no_bit(backbone: str) -> None:
    free, bounded = state_after(5, backbone), state_after(5, backbone, max_grad_norm=1e6)
    assert free.keys() == bounded.keys()
    for name, value in free.items():
        assert torch.equal(value, bounded[name]), name


def test_an_agent_whose_gradient_is_not_finite_is_frozen_all_the_same() -> None:
    learner = small.learner(small.settings("td3", "plain", seeds=(3, 4), max_grad_norm=0.5))
    learner.state()["actor"][0, 0] = torch.nan
    for _ in range(2):
        learner.update()
    assert learner.state()["active"].tolist() == [False, True]
    assert learner.state()["critic"].isfinite().all()


def test_mistakes_are_told() -> None:
    for given in (-1.0, (0.5, None)):
        with pytest.raises(
            DamperError, match=r"max_grad_norm must be a number in \[0, 1e\+06\], but"
        ):
            resolve("Pendulum", max_grad_norm=given)
