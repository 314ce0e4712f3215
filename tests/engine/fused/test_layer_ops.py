"""A layer's written-out passes are what autograd computes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.fused import layer_ops
from damper.engine.fused.rows import BackwardRows
from damper.engine.networks.layout import LayerSlice
from tests.engine import layers

M, R, INPUTS, TOLERANCE = 4, 9, 5, 1e-12
HEADS = layers.layout(INPUTS, (7,), ("mu", "log_std", "prediction"), 3)
VALUE = layers.layout(INPUTS, (20,), ("q",), 1)
# Few outputs (a product per network on a CPU), several heads, many outputs (one product for all), a
# single one.
LAYERS = dict(
    zip(("few", "heads", "many", "one"), (*HEADS.layer_slices, *VALUE.layer_slices), strict=True)
)
SIZES = {"few": HEADS.size, "heads": HEADS.size, "many": VALUE.size, "one": VALUE.size}


# --- where a layer lies ---------------------------------------------------------------------------


def test_a_layer_s_numbers_are_found_where_they_lie() -> None:
    row = torch.arange(40.0)[None]
    layer = LayerSlice(
        inputs=3, outputs=4, weight_offset=2, bias_offset=9, outputs_per_head=2, head_stride=20
    )
    assert layer.heads == 2
    assert layer.weights(row).tolist() == [[[2, 3, 22, 23], [4, 5, 24, 25], [6, 7, 26, 27]]]
    assert layer.biases(row).tolist() == [[[9, 10, 29, 30]]]


def test_views_are_the_layout_s_layers_side_by_side() -> None:
    rows = layers.rows(HEADS, M)
    split = list(HEADS.unflatten(rows).values())
    hidden, heads = HEADS.layer_slices
    assert torch.equal(hidden.weights(rows), split[0][0]) and torch.equal(
        hidden.biases(rows), split[0][1]
    )
    assert torch.equal(heads.weights(rows), torch.cat([weight for weight, _ in split[1:]], -1))
    assert torch.equal(heads.biases(rows), torch.cat([bias for _, bias in split[1:]], -1))
    assert hidden.weights(rows).data_ptr() == rows.data_ptr(), "one layer is not copied"


def test_gaps_say_what_lies_unused_behind_weights_and_biases() -> None:
    starts = [start for start, _ in HEADS.spans] + [HEADS.size]
    unused = [starts[i + 1] - start - length for i, (start, length) in enumerate(HEADS.spans)]
    hidden, heads = HEADS.layer_slices
    assert hidden.padding == tuple(unused[:2]) and hidden.padding[0] > 0 and hidden.padding[1] > 0
    assert (
        all(heads.padding == tuple(unused[i : i + 2]) for i in (2, 4, 6))
        and heads.padding[0] > 0
        and heads.padding[1] > 0
    )


@pytest.mark.parametrize("name", LAYERS)
def test_pieces_joined_are_the_layer_and_zeros_around_it(name: str) -> None:
    layer, rows = LAYERS[name], layers.draw("rows", M, SIZES[name])
    pieces = layer.pieces(layer.weights(rows), layer.biases(rows).squeeze(1))
    (joined,) = layer_ops.collect_grads([pieces], SIZES[name])
    assert joined.shape == rows.shape
    assert torch.equal(layer.weights(joined), layer.weights(rows))
    assert torch.equal(layer.biases(joined), layer.biases(rows))
    assert int((joined != 0).sum()) == M * (layer.inputs + 1) * layer.outputs


# --- forwards -------------------------------------------------------------------------------------


@dataclass
class Case:
    """A layer with inputs that an activation made, and autograd's way through both."""

    name: str
    activation: str = "silu"
    shared: bool = False
    stride: int = 1

    def __post_init__(self) -> None:
        self.layer = LAYERS[self.name]
        self.rows = layers.draw("rows", M, SIZES[self.name])
        self.networks = M // self.stride
        # Shared inputs come from outside: no activation_grads stand behind them.
        self.before = layers.draw(
            "before", M // 2 if self.shared else self.networks, R, self.layer.inputs
        )
        self.x, self.activation_grad = (
            (self.before, None)
            if self.shared
            else ACTIVATIONS[self.activation].with_grad(self.before)
        )

    def z(self, rows: Tensor, before: Tensor) -> Tensor:
        x = before if self.shared else ACTIVATIONS[self.activation].function(before)
        used = rows[:: self.stride]
        return x @ self.layer.weights(used) + self.layer.biases(used)

    def reference(self, part: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """Gradients of ``Σ part · z`` by parameters ``[M', n]`` and inputs ``[M', R', inputs]``."""
        rows = self.rows.clone().requires_grad_()
        before = self.before.repeat_interleave(
            self.networks // len(self.before), 0
        ).requires_grad_()
        span = slice(start, start + part.shape[1])
        by_rows, by_x = torch.autograd.grad(
            (self.z(rows, before)[:, span] * part).sum(), (rows, before)
        )
        return by_rows[:: self.stride], by_x[:, span]

    def forward(
        self, activation: str | None = None, **options: int
    ) -> tuple[Tensor, Tensor | None]:
        given = {"stride": self.stride, **options}
        return layer_ops.forward(self.rows, self.layer, self.x, activation, **given)

    def backward(
        self, d: Tensor, primary: int, groups: list[int], input_gradient: bool = True
    ) -> tuple[list[Tensor], Tensor | None]:
        """The gradients of every group and, if asked for, that of what stands before the layer."""
        found = layer_ops.alloc_grads(self.rows, len(groups), self.stride)
        rows = BackwardRows(primary, tuple(groups), input_gradient)
        given = {"activation_grad": self.activation_grad, "gradients": found, "stride": self.stride}
        dx = layer_ops.backward(self.rows, self.layer, self.x, d, rows, **given)
        return layer_ops.collect_grads(found, SIZES[self.name]), dx

    def check_gradients(self, ours: Tensor, theirs: Tensor) -> None:
        for part in (self.layer.weights, self.layer.biases):
            assert layers.apart(part(ours), part(theirs)) <= TOLERANCE
        assert torch.equal(ours != 0, theirs != 0), "nothing outside the layer is written"


# One test per case: what else differs goes round inside, so that a failure names the case and its
# place.
KINDS = [Case(name) for name in LAYERS] + [
    *(Case("few", activation) for activation in ("relu", "tanh")),
    *(Case(name, shared=True) for name in LAYERS),
    *(Case(name, stride=2) for name in LAYERS),
]
each_case = pytest.mark.parametrize("case", KINDS, ids=str)
each_forward_case = pytest.mark.parametrize(
    "case", [case for case in KINDS if case.activation == "silu"], ids=str
)


@each_forward_case
def test_forward(case: Case) -> None:
    inputs = case.x.repeat_interleave(case.networks // len(case.x), 0)
    used = case.rows[:: case.stride]
    for activation in (*ACTIVATIONS, None):
        h, activation_grad = case.forward(activation)
        z = (inputs @ case.layer.weights(used) + case.layer.biases(used)).requires_grad_()
        expected = ACTIVATIONS[activation].function(z) if activation else z
        assert layers.apart(h, expected.detach()) <= TOLERANCE, activation
        if activation is None:
            assert activation_grad is None
        else:
            assert activation_grad is not None
            exact = torch.autograd.grad(expected.sum(), z)[0]
            assert layers.apart(activation_grad, exact) <= TOLERANCE, activation
        again, none = case.forward(activation, for_backward=False)
        assert torch.equal(again, h) and none is None, activation


# --- backwards ------------------------------------------------------------------------------------


@each_case
def test_backward_of_one_loss(case: Case) -> None:
    d = layers.draw("d", case.networks, R, case.layer.outputs)
    found, dx = case.backward(d, R, [R])
    by_rows, by_x = case.reference(d)
    case.check_gradients(found[0], by_rows)
    assert dx is not None and layers.apart(dx, by_x) <= TOLERANCE


@each_case
def test_backward_of_two_losses_on_the_first_rows(case: Case) -> None:
    for sizes in ((R, R), (R, 4), (3, 8)):
        d = layers.draw("d", case.networks, sum(sizes), case.layer.outputs)
        found, dx = case.backward(d, sizes[0], list(sizes))
        assert dx is not None and dx.shape[1] == sum(sizes)
        for part, gradient, back in zip(d.split(sizes, 1), found, dx.split(sizes, 1), strict=True):
            by_rows, by_x = case.reference(part)
            case.check_gradients(gradient, by_rows)
            assert layers.apart(back, by_x) <= TOLERANCE, sizes


@each_case
def test_each_group_of_rows_has_its_own_gradient(case: Case) -> None:
    length = 3
    for sizes in ((9,), (9, 6), (3, 9)):
        d = layers.draw("d", case.networks, sum(sizes), case.layer.outputs)
        found, _ = case.backward(
            d, sizes[0], [length] * (sum(sizes) // length), input_gradient=False
        )
        starts = [start for size in sizes for start in range(0, size, length)]
        for part, start, gradient in zip(d.split(length, 1), starts, found, strict=True):
            case.check_gradients(gradient, case.reference(part, start)[0])


@each_case
def test_either_gradient_can_be_left_out(case: Case) -> None:
    d = layers.draw("d", case.networks, R, case.layer.outputs)
    found, dx = case.backward(d, R, [R])
    alone, none = case.backward(d, R, [R], input_gradient=False)
    assert none is None and torch.equal(alone[0], found[0])
    given = {"activation_grad": case.activation_grad, "stride": case.stride}
    back = layer_ops.backward(case.rows, case.layer, case.x, d, BackwardRows(R, (R,)), **given)
    assert back is not None and dx is not None and torch.equal(back, dx)


def test_gradient_rows_are_zero_where_no_layer_lies() -> None:
    rows, x = layers.rows(HEADS, M), layers.draw("x", M, R, INPUTS)
    hidden, heads = HEADS.layer_slices
    h, activation_grad = layer_ops.forward(rows, hidden, x, "silu")
    found = layer_ops.alloc_grads(rows, 1)
    whole, d = BackwardRows(R, (R,)), layers.draw("d", M, R, 9)
    back = layer_ops.backward(
        rows, heads, h, d, whole, activation_grad=activation_grad, gradients=found
    )
    assert back is not None
    layer_ops.backward(rows, hidden, x, back, whole._replace(input_gradient=False), gradients=found)
    (gradient,) = layer_ops.collect_grads(found, HEADS.size)
    assert layers.gaps(HEADS, gradient).numel() > 0 and (layers.gaps(HEADS, gradient) == 0).all()
    assert int((gradient != 0).sum()) == M * sum(length for _, length in HEADS.spans)


def test_backward_is_the_limit_of_differences() -> None:
    case, h = Case("heads"), 1e-5
    c = layers.draw("d", M, R, case.layer.outputs)
    found, dx = case.backward(c, R, [R])
    way, way_x = (
        layers.draw("way", M, SIZES["heads"]),
        layers.draw("way x", M, R, case.layer.inputs),
    )

    def loss(step: float) -> Tensor:
        return (case.z(case.rows + step * way, case.before + step * way_x) * c).sum((1, 2))

    assert dx is not None
    activation_grads = (found[0] * way).sum(1) + (dx * way_x).sum((1, 2))
    torch.testing.assert_close(
        activation_grads, (loss(h) - loss(-h)) / (2 * h), rtol=1e-8, atol=0.0
    )


# --- which devices have kernels -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "too_old"), [((7, 5), True), ((8, 0), False), ((9, 0), False)]
)
def test_a_gpu_without_tf32_keeps_to_pytorchs_products(
    capability: tuple[int, int], too_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_ops, "_below_min_capability", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    layer_ops.check_capability(torch.device("cpu"))
    assert not layer_ops._below_min_capability
    layer_ops.check_capability(torch.device("cuda", 0))
    assert layer_ops._below_min_capability is too_old


@pytest.mark.skipif(not layer_ops.HAS_TRITON, reason="needs Triton")
def test_layers_with_an_activation_that_the_kernels_do_not_know_are_pytorch_s() -> None:
    class OnGpu:
        is_cuda, dtype = True, torch.float32

    chosen = {name: layer_ops._kernels(OnGpu(), name) for name in (None, *ACTIVATIONS, "softsign")}  # type: ignore[arg-type]
    assert chosen[None] is not None and chosen["silu"] is chosen["relu"] is chosen[None]
    assert chosen["tanh"] is None and chosen["softsign"] is None
