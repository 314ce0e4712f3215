"""A linear layer with its activation, forward and backward, for M networks of flat parameters.

The gradients are written by hand instead of left to autograd: one pass then serves several losses,
and on a GPU each layer is one kernel (``triton_layers``). Plain PyTorch here is the reference for
the kernels, and serves other devices, dtypes and activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.fused.rows import BackwardRows
from damper.engine.networks.layout import LayerSlice, Pieces
from damper.engine.networks.stacked import linear

HAS_TRITON = find_spec("triton") is not None and torch.version.hip is None
MIN_CAPABILITY = (8, 0)  # Ampere, the first with TF32
# A one-output head is fused only into a layer with more than 16 outputs; with fewer, the saved
# store is negligible.
MAX_UNFUSED_OUTPUTS = 16


def alloc_grads(flat_params: Tensor, groups: int, stride: int = 1) -> Tensor | list[Pieces]:
    """Storage for gradients: one tensor ``[groups, M, n]`` for the kernels, else pieces by layer.

    Inductor does not vectorise writes into slices of one tensor, so ``collect_grads`` concatenates
    the pieces.
    """
    if _kernels(flat_params) is None:
        return [{} for _ in range(groups)]
    return flat_params.new_empty(groups, len(flat_params) // stride, flat_params.shape[1])


def collect_grads(grads: Tensor | list[Pieces], size: int) -> list[Tensor]:
    """Each group's gradient, ``[M, size]``, zero outside the layers."""
    if isinstance(grads, Tensor):
        return list(grads.unbind())
    return [_join(pieces, size) for pieces in grads]


def _join(pieces: Pieces, size: int) -> Tensor:
    parts: list[Tensor] = []
    filled = 0
    for start in (*sorted(pieces), size):  # ``size`` ends the last gap
        if start > filled:
            some = next(iter(pieces.values()))
            parts.append(some.new_zeros(len(some), start - filled))
        if start < size:
            parts.append(pieces[start])
            filled = start + pieces[start].shape[1]
    return torch.cat(parts, 1)


def forward(
    flat_params: Tensor,
    layer: LayerSlice,
    x: Tensor,
    activation: str | None = None,
    *,
    for_backward: bool = True,
    stride: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """``h = f(x W + b)``, ``[M, R, outputs]``, and with ``for_backward`` the derivative ``f'``.

    The layer lies in parameters ``[M, n]``; its inputs are ``[M, R, inputs]``, or ``[M/2, ...]``
    where two networks share theirs. Without ``activation`` there is no derivative. ``stride=2``
    runs only the first, third, ... network.
    """
    if (kernels := _kernels(flat_params, activation)) is not None:
        options: dict[str, Any] = {"for_backward": for_backward, "stride": stride}
        return kernels.forward(flat_params, layer, x, activation, **options)[:2]
    flat_params = flat_params[::stride]
    weights, biases = layer.weights(flat_params), layer.biases(flat_params)
    z = linear(_expand_shared(x, flat_params), (weights, biases))
    if activation is None:
        return z, None
    h, activation_grad = ACTIVATIONS[activation].with_grad(z)
    return h, activation_grad if for_backward else None


def backward(
    flat_params: Tensor,
    layer: LayerSlice,
    x: Tensor,
    d: Tensor,
    rows: BackwardRows,
    *,
    activation_grad: Tensor | None = None,
    gradients: Any = None,
    stride: int = 1,
) -> Tensor | None:
    """From ``d = ∂L/∂z``: the gradients ``xᵀ d`` and ``Σ d``, and ``d Wᵀ f'`` for the layer before.

    Args:
        flat_params: as in ``forward``, with ``layer``, ``x`` and ``stride``.
        d: ``[M, D, outputs]``; ``rows`` says what to do with each of its rows.
        activation_grad: ``f'`` of the activation that gave x, or None if x is the network's input.
        gradients: from ``alloc_grads``, filled with the parameters' gradients; None for none.

    Returns:
        ``∂L/∂z`` of the layer before (``∂L/∂x`` without ``activation_grad``), ``[M, D, inputs]``;
        None without ``rows.input_gradient``.
    """
    if (kernels := _kernels(flat_params)) is not None:
        options = {"activation_grad": activation_grad, "gradients": gradients, "stride": stride}
        return kernels.backward(flat_params, layer, x, d, rows, **options)
    flat_params = flat_params[::stride]
    for pieces, (x_rows, d_rows) in zip(gradients or (), rows.slices(), strict=False):
        inputs = _expand_shared(x[:, x_rows], flat_params)
        pieces.update(layer.pieces(torch.bmm(inputs.mT, d[:, d_rows]), d[:, d_rows].sum(1)))
    if not rows.input_gradient:
        return None
    back = layer.weights(flat_params).mT
    # With a single output the product is an outer one: a multiplication, which is fused with that
    # by ``f'``.
    dx = d * back if layer.outputs == 1 else torch.bmm(d, back)
    if activation_grad is None:
        return dx
    # Both losses read ``f'`` of the same rows of x.
    primary, second = rows.primary_rows, d.shape[1] - rows.primary_rows
    first_part = activation_grad[:, :primary]
    if second == 0:
        return dx * first_part
    return dx * torch.cat((first_part, activation_grad[:, :second]), 1)


def _expand_shared(x: Tensor, flat_params: Tensor) -> Tensor:
    """Inputs ``[M/2, ...]``, one per pair of networks, as ``[M, ...]``; others as they are."""
    return x if len(x) == len(flat_params) else x.repeat_interleave(2, 0)


def fused_head(
    flat_params: Tensor, layers: Sequence[LayerSlice], activation: str
) -> ModuleType | None:
    """The kernels that run the last two layers as one, if the last has one output; else None."""
    if len(layers) == 1 or layers[-1].outputs != 1 or layers[-2].outputs <= MAX_UNFUSED_OUTPUTS:
        return None
    return _kernels(flat_params, activation)


_below_min_capability = False


def check_capability(device: torch.device) -> None:
    """Turn the Triton kernels off in this process if the device is too old for them.

    A compiled function cannot query the device.
    """
    global _below_min_capability
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
        _below_min_capability = True


def _kernels(flat_params: Tensor, activation: str | None = None) -> ModuleType | None:
    """The Triton kernels if they apply (CUDA, float32, a known activation), otherwise None."""
    able = flat_params.is_cuda and HAS_TRITON and not _below_min_capability
    if not able or flat_params.dtype != torch.float32:
        return None
    # Here, because not every machine has Triton.
    from damper.engine.fused import triton_layers

    return triton_layers if activation in triton_layers.ACTIVATION_CODES else None
