"""Activations and their written-out derivatives are what autograd computes."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap

from damper.activations import ACTIVATIONS

GRID = torch.linspace(-30.0, 30.0, 601, dtype=torch.float64)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_module_is_the_function(name: str) -> None:
    activation = ACTIVATIONS[name]
    assert torch.equal(activation.module()(GRID), activation.function(GRID))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_hold_where_activations_are_flat_or_kinked(name: str) -> None:
    z = torch.tensor(
        [-800.0, -40.0, -1e-9, 0.0, 1e-9, 40.0, 800.0], dtype=torch.float64, requires_grad=True
    )
    expected = ACTIVATIONS[name].function(z)
    h, slope = ACTIVATIONS[name].with_grad(z.detach())
    torch.testing.assert_close(h, expected.detach(), rtol=1e-12, atol=1e-300)
    torch.testing.assert_close(
        slope, torch.autograd.grad(expected.sum(), z)[0], rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_second_derivatives(name: str) -> None:
    activation = ACTIVATIONS[name]
    second = vmap(grad(grad(activation.function)))(GRID)
    torch.testing.assert_close(activation.second_derivative(GRID), second, rtol=1e-9, atol=1e-15)
