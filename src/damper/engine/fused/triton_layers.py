"""``layer_ops`` as GPU kernels: one launch for a layer and f', one for its gradients.

Every size is a compile-time constant, since a population's shapes never change. A block reads only
one network's numbers, so values that are not finite stay in their network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from damper.engine.fused.rows import BackwardRows, FusedHead
from damper.engine.fused.triton_kernels import backward_kernel, forward_kernel
from damper.engine.networks.layout import LayerSlice

# Activations in the kernels; PyTorch runs layers with others.
ACTIVATION_CODES = {None: 0, "silu": 1, "relu": 2}
MULTIPROCESSORS = 128  # about the number in a large GPU
NARROW_LAYER = 32  # largest number of inputs or outputs for which a layer has its own tiles


class Tile(NamedTuple):
    """An output block: its size, the depth of the sum read at a time, warps, pipeline stages.

    Two warps, because with four or more Triton would choose the tensor cores' asynchronous
    products, which take TF32 only if the summed axis is contiguous, and would therefore shuffle
    every factor.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


# The fastest of about thirty on an H200 at 1, 5 and 35 agents. The larger the tile, the fewer
# numbers are read twice, as long as there are enough blocks; what a large one saves for the
# backward pass would not fit into registers.
LARGE, WIDE, SPREAD = Tile(128, 64, 32, 2, 3), Tile(64, 64, 32, 2, 3), Tile(64, 32, 32, 2, 4)
# In full float32 one product becomes three, with twice the factors in registers: tiles as deep or
# as large would spill to memory, which made an update of 35 agents 24 times slower than in TF32.
# SMALL is for products with too few blocks.
SHALLOW, SMALL = Tile(64, 64, 16, 2, 3), Tile(32, 32, 32, 2, 4)
MIN_BLOCKS = {LARGE: 2 * MULTIPROCESSORS, WIDE: MULTIPROCESSORS, SPREAD: 0}
# For layers whose inputs or outputs would fill only part of a tile.
FEW_INPUTS, FEW_OUTPUTS = Tile(32, 32, 64, 4, 3), Tile(32, 64, 32, 2, 4)
FEW_OUTPUTS_BACK = Tile(64, 64, 16, 2, 4)


def forward(
    flat_params: Tensor,
    layer: LayerSlice,
    x: Tensor,
    activation: str | None,
    *,
    for_backward: bool,
    stride: int,
    head: LayerSlice | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """See ``layer_ops.forward``; the same kernel computes a ``head``'s output, the third result."""
    x = _rows_in_one_piece(x)
    nets, batch = len(flat_params) // stride, x.shape[1]
    h = x.new_empty(nets, batch, layer.outputs) if head is None or for_backward else None
    saves_grad = for_backward and activation is not None
    activation_grad = x.new_empty(nets, batch, layer.outputs) if saves_grad else None
    if layer.outputs <= NARROW_LAYER:
        tile = FEW_OUTPUTS
    elif layer.inputs <= NARROW_LAYER:
        tile = FEW_INPUTS
    else:
        tiles = (WIDE, SPREAD) if for_backward else (LARGE, WIDE, SPREAD)
        tile = _largest(tiles, nets, [(batch, layer.outputs)])
    columns = narrow(tile.columns, layer.outputs)
    across = triton.cdiv(layer.outputs, columns)
    parts = x.new_empty(nets, across, batch) if head else None
    forward_kernel[(triton.cdiv(batch, tile.rows) * across, nets)](
        x, flat_params, *(_written(part, x) for part in (h, activation_grad, parts)),
        X_NET=x.stride(0), X_ROW=x.stride(1), N=flat_params.stride(0) * stride, ROWS=batch,
        **_place(layer), HEAD=head.weight_offset if head else 0, SHARE=nets // len(x),
        ACTIVATION=ACTIVATION_CODES[activation], STORE_H=h is not None,
        STORE_ACT_GRAD=activation_grad is not None, FUSE_HEAD=head is not None, TF32=tf32(),
        BM=tile.rows, BN=columns, BK=narrow(tile.depth, layer.inputs), num_warps=tile.warps,
        num_stages=tile.stages,
    )  # fmt: skip
    if head is None or parts is None:
        return h, activation_grad, None
    return h, activation_grad, parts.sum(1).unsqueeze(-1) + head.biases(flat_params[::stride])


def backward(
    flat_params: Tensor,
    layer: LayerSlice,
    x: Tensor,
    d: Tensor,
    rows: BackwardRows,
    *,
    activation_grad: Tensor | None,
    gradients: Tensor | None,
    stride: int,
    fused_head: FusedHead | None = None,
) -> Tensor | None:
    """See ``layer_ops.backward``; both products run in one launch, since neither needs the other.

    With a ``fused_head``, d is the derivative with respect to its single output.
    """
    x, d = _rows_in_one_piece(x), d.contiguous()
    nets, batch = len(flat_params) // stride, d.shape[1]
    primary, lengths = rows.primary_rows, rows.gradient_groups
    dx_rows = batch if rows.input_gradient else 0
    dx = d.new_empty(nets, dx_rows, layer.inputs) if dx_rows else None
    groups = 0 if gradients is None else len(gradients)
    even = all(length == lengths[0] for length in lengths)
    assert even or lengths == (primary, batch - primary), "groups of one length, or one per loss"
    head, h, head_activation_grad = fused_head or (None, None, None)
    tile = FEW_OUTPUTS_BACK
    if layer.outputs > NARROW_LAYER:
        products = groups * [(layer.inputs, layer.outputs)] + [(dx_rows, layer.inputs)]
        tile = _largest((LARGE, WIDE), nets, products)
    across, out = narrow(tile.columns, layer.inputs), narrow(tile.columns, layer.outputs)
    down = narrow(tile.rows, layer.inputs)
    dx_tiles = triton.cdiv(dx_rows, tile.rows) * triton.cdiv(layer.inputs, across)
    dw_tiles = triton.cdiv(layer.inputs, down) * triton.cdiv(layer.outputs, out)
    backward_kernel[(dx_tiles + groups * dw_tiles, nets)](
        _read(x if groups else None, flat_params), _read(activation_grad, flat_params), d,
        flat_params, _written(gradients, d), _written(dx, d), _read(h, flat_params),
        _read(head_activation_grad, flat_params), X_NET=x.stride(0), X_ROW=x.stride(1),
        N=flat_params.stride(0) * stride, G_LOSS=0 if gradients is None else gradients.stride(0),
        G_NET=flat_params.shape[1], W_PAD=layer.padding[0], B_PAD=layer.padding[1],
        X_ROWS=x.shape[1], DX_TILES=dx_tiles, DW_TILES=dw_tiles, ROWS=batch, PRIMARY_ROWS=primary,
        **_place(layer), HEAD=head.weight_offset if head else 0,
        HEAD_BIAS=head.bias_offset if head else 0, HEAD_W_PAD=head.padding[0] if head else 0,
        HEAD_B_PAD=head.padding[1] if head else 0, SHARE=nets // len(x),
        HAS_ACT_GRAD=activation_grad is not None, GROUP_ROWS=lengths[0], EVEN_GROUPS=even,
        HAS_GRADS=groups > 0, DX_ROWS=dx_rows, FUSE_HEAD=head is not None, TF32=tf32(),
        BM=tile.rows, BI=across, BW=down, BO=out, BK=narrow(tile.depth, layer.outputs),
        BR=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return dx


def _read(tensor: Tensor | None, other: Tensor) -> Tensor:
    """The tensor, or any other in place of None, which a kernel cannot take and does not read."""
    return other if tensor is None else tensor


def _written(tensor: Tensor | None, like: Tensor) -> Tensor:
    """The same for an output that is not written."""
    # A new tensor, since Inductor copies any that a kernel may change.
    return like.new_empty(1) if tensor is None else tensor


def _largest(tiles: Sequence[Tile], nets: int, products: Sequence[tuple[int, int]]) -> Tile:
    """The first tile with enough blocks, else the last; without TF32, one that fits registers."""

    def blocks(tile: Tile) -> int:
        down, across = tile.rows, tile.columns
        return sum(triton.cdiv(m, down) * triton.cdiv(n, across) for m, n in products)

    largest = next((tile for tile in tiles if nets * blocks(tile) >= MIN_BLOCKS[tile]), None)
    if tf32():
        return largest or tiles[-1]
    return SHALLOW if largest in (LARGE, WIDE) else SMALL


def narrow(size: int, needed: int) -> int:
    """``size``, or less if fewer are needed: a power of 2, at least the 16 of a tensor core."""
    return min(size, max(16, 1 << (needed - 1).bit_length()))


def tf32() -> bool:
    """Whether products may round factors to ten bits; otherwise three make one of float32."""
    return bool(torch.backends.cuda.matmul.allow_tf32)


def _place(layer: LayerSlice) -> dict[str, int]:
    return {
        "WEIGHT": layer.weight_offset,
        "BIAS": layer.bias_offset,
        "IN": layer.inputs,
        "OUT": layer.outputs,
        "GROUP": layer.outputs_per_head,
        "HEAD_STRIDE": layer.head_stride,
    }


def _rows_in_one_piece(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
