"""A layer whose batch lies by columns is the plain layer, and what it makes does lie by columns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.kernels import cpu_columns, dense, reference
from damper.engine.networks.layout import Layout
from tests.engine import layers

# Inputs and outputs: a first layer, one with awkward sides, narrow ones, one value.
SHAPES = [(3, 40), (40, 30), (16, 16), (30, 9), (30, 3), (30, 2), (30, 1)]
FIRST, SECOND = 16, 7  # rows of two losses


def made(inputs: int, outputs: int, networks: int) -> tuple[dense.Dense, Tensor, Tensor, Tensor]:
    layout = Layout((("trunk.0", inputs, outputs), ("q", outputs, 1)), 8)
    rows = layers.rows(layout, networks, torch.float32)
    x = layers.draw("x", networks, FIRST, inputs, dtype=torch.float32)
    d = layers.draw("d", networks, FIRST + SECOND, outputs, dtype=torch.float32)
    return layout.dense[0], rows, x, d


def by_columns(x: Tensor) -> bool:
    return x.mT.is_contiguous()


@pytest.mark.parametrize("networks", [1, 2, 6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_is_the_plain_one(shape: tuple[int, int], networks: int) -> None:
    layer, rows, x, _ = made(*shape, networks)
    given = (rows, layer, x, "silu", True, 1, True)
    for ours, theirs in zip(cpu_columns.forward(*given), reference.forward(*given), strict=True):
        assert ours is not None and theirs is not None
        assert by_columns(ours)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("networks", [1, 2, 6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_backward_is_the_plain_one(shape: tuple[int, int], networks: int) -> None:
    layer, rows, x, d = made(*shape, networks)
    h, slope = ACTIVATIONS["silu"].with_grad(x)
    found: list[list[Tensor]] = []
    for module in (cpu_columns, reference):
        pieces: list[dense.Pieces] = [{}, {}]
        dx = module.backward(rows, layer, h, d, FIRST, (FIRST, SECOND), slope, pieces, True, 1, True)
        assert dx is not None
        assert module is reference or by_columns(dx)
        found.append([dx, *dense.collect_grads(pieces, rows.shape[1])])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_cpu_s_layers_lie_by_columns_unless_that_is_not_wanted() -> None:
    layer, rows, x, _ = made(40, 30, 2)
    assert by_columns(dense.forward(rows, layer, x, "relu")[0])
    assert not by_columns(dense.forward(rows, layer, x, "relu", columns=False)[0])


def test_rows_put_together_lie_by_columns_too() -> None:
    parts = [layers.draw(name, 2, rows, 5) for name, rows in (("a", 3), ("b", 4))]
    whole = dense.cat_rows(parts)
    assert torch.equal(whole, torch.cat(parts, 1)) and by_columns(whole)


@pytest.mark.parametrize("networks", [1, 2])
def test_compiled_they_are_the_same(networks: int) -> None:
    """In one function, so that the compiler may choose how everything between the layers lies."""
    layer, rows, x, d = made(40, 30, networks)

    def there_and_back(rows: Tensor, x: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        h, slope = dense.forward(rows, layer, x, "silu")
        assert slope is not None
        found = dense.alloc_grads(rows, 1)
        dx = dense.backward(rows, layer, x, d * h * slope, first=FIRST, group_sizes=[FIRST], gradients=found)
        assert dx is not None
        return dense.collect_grads(found, rows.shape[1])[0], dx

    given = (rows, x, d[:, :FIRST])
    for ours, theirs in zip(torch.compile(there_and_back)(*given), there_and_back(*given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
