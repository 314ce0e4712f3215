"""``damper.backward`` in a training loop: what gets a gradient, which one, and what is said about it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import damper
from damper import DamperError
from damper.rules import RULES, has_memory
from tests.rules.references import REFERENCES

GENERATOR = torch.Generator().manual_seed(0)
OBS, NEXT_OBS = torch.randn(32, 3, generator=GENERATOR), torch.randn(32, 3, generator=GENERATOR)


class CountingActor(nn.Sequential):
    """A small actor that counts its forward passes."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2), nn.Tanh())
        self.calls = 0

    def forward(self, obs: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(obs)


@pytest.fixture
def actor() -> CountingActor:
    torch.manual_seed(1)
    return CountingActor()


@pytest.fixture
def critic() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))


def losses(actor: nn.Module, critic: nn.Module) -> tuple[Tensor, Tensor]:
    """The actor's native loss and the temporal one, from one forward pass over both states."""
    mu, mu_next = actor(torch.cat([OBS, NEXT_OBS])).chunk(2)
    return -critic(torch.cat([OBS, mu], 1)).mean(), (mu_next - mu).square().sum(-1).mean()


def separate_gradients(actor: nn.Module, critic: nn.Module) -> list[np.ndarray[Any, Any]]:
    """Both gradients, flattened, each from its own graph and ``.backward()``."""
    flat = []
    for i in (0, 1):
        twin = copy.deepcopy(actor)
        losses(twin, critic)[i].backward()
        flat.append(torch.cat([p.grad.flatten() for p in twin.parameters() if p.grad is not None]).double().numpy())
    return flat


def gradient_of(module: nn.Module) -> np.ndarray[Any, Any]:
    grads = [p.grad for p in module.parameters()]
    return torch.cat([g.flatten() for g in grads if g is not None]).double().numpy()


@pytest.mark.parametrize("name", RULES)
def test_every_rule_against_two_separate_backward_passes(name: str, actor: CountingActor, critic: nn.Module) -> None:
    g_R, g_T = separate_gradients(actor, critic)
    damper.backward(*losses(actor, critic), actor.parameters(), rule=name)
    expected = REFERENCES[name](g_R, g_T)
    np.testing.assert_allclose(gradient_of(actor), expected, rtol=0, atol=2e-6 * np.linalg.norm(expected))


@pytest.mark.parametrize("eta", [0.0, 0.6, torch.tensor(0.6)])
def test_eta_and_the_report(eta: Any, actor: CountingActor, critic: nn.Module) -> None:
    g_R, g_T = separate_gradients(actor, critic)
    report = damper.backward(*losses(actor, critic), actor.parameters(), eta=eta)
    expected = REFERENCES["damper"](g_R, g_T, eta=float(eta))
    np.testing.assert_allclose(gradient_of(actor), expected, rtol=0, atol=1e-6 * np.linalg.norm(expected))
    n_R, n_T = np.linalg.norm(g_R), np.linalg.norm(g_T)
    assert report.cosine.item() == pytest.approx(g_R @ g_T / (n_R * n_T), rel=1e-4)
    assert report.norm_ratio.item() == pytest.approx(n_T / n_R, rel=1e-5)
    assert report.conflict.item() is bool(g_R @ g_T < 0)
    assert report.weight.item() == pytest.approx(min(n_T / n_R, 1) ** (1 - float(eta)), rel=1e-5)
    assert report.guard.item() is False
    assert report.state is None


def test_one_forward_pass_is_enough_and_the_critic_stays_untouched(actor: CountingActor, critic: nn.Module) -> None:
    damper.backward(*losses(actor, critic), actor.parameters())
    assert actor.calls == 1
    assert all(parameter.grad is None for parameter in critic.parameters())
    for parameter in critic.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    damper.backward(*losses(actor, critic), actor.parameters())
    assert all(bool((parameter.grad == 7.0).all()) for parameter in critic.parameters())


def test_gradients_are_set_not_added(actor: CountingActor, critic: nn.Module) -> None:
    damper.backward(*losses(actor, critic), actor.parameters())
    once = gradient_of(actor)
    damper.backward(*losses(actor, critic), actor.parameters())
    np.testing.assert_array_equal(gradient_of(actor), once)


OPTIMISERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1),
    lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3),
]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=["sgd", "adam", "adamw", "rmsprop"])
def test_a_zero_auxiliary_trains_bit_for_bit_as_without(
    name: str, optimiser: Callable[[Any], torch.optim.Optimizer], actor: CountingActor, critic: nn.Module
) -> None:
    plain = copy.deepcopy(actor)
    ours, theirs = optimiser(actor.parameters()), optimiser(plain.parameters())
    state = None
    for _ in range(5):
        primary, auxiliary = losses(actor, critic)
        state = damper.backward(primary, 0.0 * auxiliary, actor.parameters(), rule=name, state=state).state
        ours.step()
        theirs.zero_grad()
        losses(plain, critic)[0].backward()
        theirs.step()
    for mine, other in zip(actor.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_parameters_unused_by_one_loss_or_by_both() -> None:
    first, second, both, neither, frozen = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(5))
    neither.grad = torch.ones(2)
    frozen.requires_grad_(False)
    primary = (first + both).square().sum()
    auxiliary = (second - both).square().sum() + second.sum()
    damper.backward(primary, auxiliary, [first, second, both, neither, frozen], rule="scalarization", weight=1.0)
    # d/dx of (x + b)² and of (x − b)² + x at x = b = (1, 2).
    assert first.grad is not None and second.grad is not None and both.grad is not None
    assert first.grad.tolist() == [4.0, 8.0]
    assert second.grad.tolist() == [1.0, 1.0]
    assert both.grad.tolist() == [4.0, 8.0]
    assert neither.grad is None
    assert frozen.grad is None


def test_a_loss_that_is_a_constant_has_a_zero_gradient(actor: CountingActor, critic: nn.Module) -> None:
    plain = copy.deepcopy(actor)
    losses(plain, critic)[0].backward()
    report = damper.backward(losses(actor, critic)[0], torch.tensor(0.0), actor.parameters())
    np.testing.assert_array_equal(gradient_of(actor), gradient_of(plain))
    assert report.guard.item() is True


def test_parameters_of_several_dtypes() -> None:
    parameters = [nn.Parameter(torch.tensor([1.0, 2.0], dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    parameters.append(nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.bfloat16)))
    primary = sum((p.double() ** 2).sum() for p in parameters)
    auxiliary = sum((p.double().flip(0) * torch.tensor([1.0, -3.0])).sum() for p in parameters)
    damper.backward(primary, auxiliary, parameters, eta=0.5)
    g_R, g_T = np.array([2.0, 4.0] * 3), np.array([-3.0, 1.0] * 3)
    expected = REFERENCES["damper"](g_R, g_T, eta=0.5).reshape(3, 2)
    for parameter, wanted, tolerance in zip(parameters, expected, (1e-6, 1e-14, 1e-2), strict=True):
        assert parameter.grad is not None
        assert parameter.grad.dtype == parameter.dtype
        assert parameter.grad.tolist() == pytest.approx(wanted.tolist(), rel=tolerance)


@pytest.mark.parametrize("wrap", [lambda p: p, list, tuple, iter, lambda p: (x for x in p)])
def test_parameters_in_any_container(wrap: Callable[[Any], Any], actor: CountingActor, critic: nn.Module) -> None:
    twin = copy.deepcopy(actor)
    damper.backward(*losses(twin, critic), list(twin.parameters()))
    damper.backward(*losses(actor, critic), wrap(actor.parameters()))
    np.testing.assert_array_equal(gradient_of(actor), gradient_of(twin))


@pytest.mark.parametrize("times", [None, 1, 2])
def test_a_single_tensor_and_a_parameter_given_twice(times: int | None) -> None:
    x = torch.tensor([3.0, 0.0], requires_grad=True)
    losses = x.square().sum() / 2, (x * torch.tensor([0.0, 5.0])).sum()
    # Nash-MTL's answer has a length of its own, (1, 1) here, which counting a parameter twice would change.
    damper.backward(*losses, x if times is None else [x] * times, rule="nash-mtl")
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([1.0, 1.0])


def test_each_gradient_owns_its_memory(actor: CountingActor, critic: nn.Module) -> None:
    damper.backward(*losses(actor, critic), actor.parameters())
    for parameter in actor.parameters():
        assert parameter.grad is not None
        assert parameter.grad.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()


@pytest.mark.parametrize("name", [name for name in RULES if has_memory(name)])
def test_memory_is_handed_on_through_the_report(name: str, actor: CountingActor, critic: nn.Module) -> None:
    sizes = {"sizes": [p.numel() for p in actor.parameters()]} if name == "metabalance" else {}
    state, expected_state = None, None
    for _ in range(3):
        flat = [torch.from_numpy(g).float() for g in separate_gradients(actor, critic)]
        expected, expected_state = RULES[name](*flat, expected_state, **sizes)
        state = damper.backward(*losses(actor, critic), actor.parameters(), rule=name, state=state, **sizes).state
        np.testing.assert_allclose(gradient_of(actor), expected.double().numpy(), rtol=0, atol=1e-7)
        with torch.no_grad():
            for parameter in actor.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[operator]
    torch.testing.assert_close(state, expected_state, rtol=1e-5, atol=1e-7)


def average(primary: Tensor, auxiliary: Tensor, share: float = 0.5) -> Tensor:
    return share * primary + (1 - share) * auxiliary


def test_a_rule_of_ones_own(actor: CountingActor, critic: nn.Module) -> None:
    g_R, g_T = separate_gradients(actor, critic)
    report = damper.backward(*losses(actor, critic), actor.parameters(), rule=average, share=0.25)
    np.testing.assert_allclose(gradient_of(actor), 0.25 * g_R + 0.75 * g_T, rtol=0, atol=1e-7)
    assert report.weight.item() == pytest.approx(0.75 * np.linalg.norm(g_T - g_R) / np.linalg.norm(g_R), rel=1e-5)


def mistake(message: str) -> Any:
    return pytest.raises(DamperError, match=rf"^{message}")


def test_mistakes_are_told_and_leave_gradients_alone(actor: CountingActor, critic: nn.Module) -> None:
    primary, auxiliary = losses(actor, critic)
    parameters = list(actor.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    with mistake(r"primary_loss must be a scalar tensor, but shape \(2,\) was given: reduce it"):
        damper.backward(primary.expand(2), auxiliary, parameters)
    with mistake(r"auxiliary_loss must be a scalar tensor, but float was given"):
        damper.backward(primary, 0.0, parameters)  # type: ignore[arg-type]
    primary, auxiliary = losses(actor, critic)
    with mistake(r"parameters must hold a tensor with requires_grad, but none was given"):
        damper.backward(primary, auxiliary, [])
    with mistake(r"parameters must be tensors, but a tuple was given: pass module.parameters\(\)"):
        damper.backward(primary, auxiliary, actor.named_parameters())  # type: ignore[arg-type]
    for given, kind in ((actor[0], "Linear"), (None, "NoneType")):
        with mistake(rf"parameters must be tensors, but a {kind} was given: pass module.parameters\(\)"):
            damper.backward(primary, auxiliary, given)  # type: ignore[arg-type]
    with mistake(r"parameters must take part in a loss, but neither loss depends on any"):
        damper.backward(primary, auxiliary, [nn.Parameter(torch.ones(2))])
    with mistake(r"rule must name one of .*, but 'dampr' was given: did you mean 'damper'"):
        damper.backward(primary, auxiliary, parameters, rule="dampr")
    with mistake(r"eta must be in \[0, 1\], but 2 was given"):
        damper.backward(*losses(actor, critic), parameters, eta=2.0)
    with mistake(r"settings of damper must be its own, but 'weight' was given: it has eta"):
        damper.backward(*losses(actor, critic), parameters, weight=2.0)
    assert all(bool((p.grad == 1).all()) for p in parameters if p.grad is not None)
    assert all(p.grad is not None for p in parameters)


def test_a_primary_loss_without_a_graph_is_a_mistake(actor: CountingActor, critic: nn.Module) -> None:
    primary, auxiliary = losses(actor, critic)[:2]
    with pytest.raises(DamperError, match="primary_loss must depend on the parameters, but has no graph"):
        damper.backward(primary.detach(), auxiliary, actor.parameters())
