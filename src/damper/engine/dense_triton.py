"""``dense`` as GPU kernels: product, bias, activation and slopes in one; both gradients of a layer in another.

Every size is a constant of its kernel: a population's shapes never change. Each network's numbers are read by its own
blocks alone, so what is not finite in one stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from damper.engine.dense import Dense

CODES = {None: 0, "silu": 1, "relu": 2}
BLOCKS_WANTED = 128  # about the multiprocessors of a large GPU
FEW = 32  # inputs or outputs


class Tile(NamedTuple):
    """A block of the output, the stretch of the sum it reads at a time, and how many threads work on it.

    Two warps, because four or more would choose the tensor cores' asynchronous products, which take TF32 only with the
    summed axis in one piece and so would shuffle every factor.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


# The fastest of about twenty on an H200 at 1, 5 and 35 agents.
WIDE, SPREAD = Tile(64, 64, 32, 2, 3), Tile(64, 32, 32, 2, 4)
FEW_INPUTS, FEW_OUTPUTS, FEW_OUTPUTS_BACK = Tile(32, 32, 64, 4, 3), Tile(32, 64, 32, 2, 4), Tile(64, 64, 16, 2, 4)


def forward(
    rows: Tensor, layer: Dense, x: Tensor, activation: str | None, keep: bool, every: int, head: Dense | None = None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """See ``dense.forward``; a ``head`` of one output is summed up on the way, and is the third result."""
    x = _rows_in_one_piece(x)
    nets, batch = len(rows) // every, x.shape[1]
    h = x.new_empty(nets, batch, layer.outputs) if head is None or keep else None
    slope = x.new_empty(nets, batch, layer.outputs) if keep and activation else None
    tile = FEW_OUTPUTS if layer.outputs <= FEW else FEW_INPUTS if layer.inputs <= FEW else WIDE
    if tile is WIDE and nets * _blocks(batch, layer.outputs, tile) < BLOCKS_WANTED:
        tile = SPREAD
    columns = narrow(tile.columns, layer.outputs)
    across = triton.cdiv(layer.outputs, columns)
    parts = x.new_empty(nets, across, batch) if head else None
    forward_kernel[(triton.cdiv(batch, tile.rows) * across, nets)](
        x, rows, _or(h, x), _or(slope, x), _or(parts, x),
        X_NET=x.stride(0), X_ROW=x.stride(1), N=rows.stride(0) * every, ROWS=batch, **_place(layer),
        HEAD=head.weight if head else 0, SHARE=nets // len(x), ACTIVATION=CODES[activation], STORE=h is not None,
        KEEP=slope is not None, JOIN=head is not None, TF32=tf32(),
        BM=tile.rows, BN=columns, BK=narrow(tile.depth, layer.inputs), num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    if head is None or parts is None:
        return h, slope, None
    return h, slope, parts.sum(1).unsqueeze(-1) + head.biases(rows[::every])


def backward(
    rows: Tensor,
    layer: Dense,
    x: Tensor,
    d: Tensor,
    first: int,
    lengths: Sequence[int],
    slope: Tensor | None,
    gradients: Tensor | None,
    wanted: bool,
    every: int,
    head: Dense | None = None,
    h: Tensor | None = None,
    steep: Tensor | None = None,
) -> Tensor | None:
    """See ``dense.backward``; both products in one launch, since neither needs the other.

    With a ``head``, d is of its single output, and ``h`` and ``steep`` are what went into it and the slopes there.
    """
    x, d = _rows_in_one_piece(x), d.contiguous()
    nets, batch = len(rows) // every, d.shape[1]
    dx = d.new_empty(nets, batch, layer.inputs) if wanted else None
    groups = 0 if gradients is None else len(gradients)
    even = all(length == lengths[0] for length in lengths)
    assert even or tuple(lengths) == (first, batch - first), "groups of one length, or one per loss"
    tile = FEW_OUTPUTS_BACK if layer.outputs <= FEW else WIDE
    across, out = narrow(tile.columns, layer.inputs), narrow(tile.columns, layer.outputs)
    down = narrow(tile.rows, layer.inputs)
    dx_tiles = triton.cdiv(batch, tile.rows) * triton.cdiv(layer.inputs, across) if wanted else 0
    dw_tiles = triton.cdiv(layer.inputs, down) * triton.cdiv(layer.outputs, out)
    backward_kernel[(dx_tiles + groups * dw_tiles, nets)](
        x, _or(slope, d), d, rows, _or(gradients, d), _or(dx, d), _or(h, d), _or(steep, d),
        X_NET=x.stride(0), X_ROW=x.stride(1), N=rows.stride(0) * every,
        G_LOSS=0 if gradients is None else gradients.stride(0), G_NET=rows.shape[1],
        W_GAP=layer.gaps[0], B_GAP=layer.gaps[1], SEEN=x.shape[1], DX_TILES=dx_tiles, DW_TILES=dw_tiles,
        ROWS=batch, FIRST=first, **_place(layer),
        HEAD=head.weight if head else 0, HEAD_BIAS=head.bias if head else 0,
        HEAD_W_GAP=head.gaps[0] if head else 0, HEAD_B_GAP=head.gaps[1] if head else 0,
        SHARE=nets // len(x), SLOPE=slope is not None, LENGTH=lengths[0], EVEN=even,
        GRADIENTS=groups > 0, WANTED=wanted, JOIN=head is not None, TF32=tf32(),
        BM=tile.rows, BI=across, BW=down, BO=out, BK=narrow(tile.depth, layer.outputs), BR=tile.depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return dx


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A kernel takes no None: what it never touches may be any tensor."""
    return other if tensor is None else tensor


def _blocks(rows: int, columns: int, tile: Tile) -> int:
    return int(triton.cdiv(rows, tile.rows) * triton.cdiv(columns, tile.columns))


def narrow(size: int, needed: int) -> int:
    """No wider than what is there, but at least the 16 that a tensor core's product takes."""
    return min(size, max(16, 1 << (needed - 1).bit_length()))


def tf32() -> bool:
    """Whether products may round their factors to ten bits; otherwise three such products make a float32's."""
    return bool(torch.backends.cuda.matmul.allow_tf32)


def _place(layer: Dense) -> dict[str, int]:
    return {"WEIGHT": layer.weight, "BIAS": layer.bias, "IN": layer.inputs, "OUT": layer.outputs,
            "GROUP": layer.group, "JUMP": layer.jump}  # fmt: skip


def _rows_in_one_piece(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


@triton.jit
def product(a, b, sums, TF32: tl.constexpr):
    """``sums + a b``."""
    if TF32:
        return tl.dot(a, b, sums, input_precision="tf32")
    else:
        return tl.dot(a, b, sums, input_precision="tf32x3")


@triton.jit
def among_heads(column, OUT: tl.constexpr, GROUP: tl.constexpr, JUMP: tl.constexpr):
    """Where an output's weights lie. One head's lie in a row, which the compiler must see to load several at once."""
    if GROUP == OUT:
        return column
    else:
        return column // GROUP * JUMP + column % GROUP


@triton.jit
def forward_kernel(
    x, rows, h, slope, parts, X_NET: tl.constexpr, X_ROW: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, GROUP: tl.constexpr,
    JUMP: tl.constexpr, HEAD: tl.constexpr, SHARE: tl.constexpr, ACTIVATION: tl.constexpr, STORE: tl.constexpr,
    KEEP: tl.constexpr, JOIN: tl.constexpr, TF32: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One block of ``f(x W + b)`` and of f'."""
    net = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    across: tl.constexpr = (OUT + BN - 1) // BN
    r = tile // across * BM + tl.arange(0, BM)
    c = tile % across * BN + tl.arange(0, BN)
    x += net // SHARE * X_NET
    rows += net * N
    place = among_heads(c, OUT, GROUP, JUMP)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, IN, BK):
        k = start + tl.arange(0, BK)
        inputs = tl.load(x + r[:, None] * X_ROW + k[None, :], (r[:, None] < ROWS) & (k[None, :] < IN), 0.0)
        weights = tl.load(rows + WEIGHT + k[:, None] * GROUP + place[None, :],
                          (k[:, None] < IN) & (c[None, :] < OUT), 0.0)  # fmt: skip
        sums = product(inputs, weights, sums, TF32)
    z = sums + tl.load(rows + BIAS + place, c < OUT, 0.0)[None, :]
    at = net * ROWS * OUT + r[:, None] * OUT + c[None, :]
    inside = (r[:, None] < ROWS) & (c[None, :] < OUT)
    if ACTIVATION == 1:
        s = tl.sigmoid(z)
        value = z * s
        steep = s + value * (1.0 - s)
    elif ACTIVATION == 2:
        value = tl.where(z <= 0.0, 0.0, z)  # keeps what is not a number
        steep = tl.where(z > 0.0, 1.0, 0.0)
    else:
        value = z
        steep = z
    if STORE:
        tl.store(h + at, value, inside)
    if KEEP:
        tl.store(slope + at, steep, inside)
    if JOIN:
        weights_on = tl.load(rows + HEAD + c, c < OUT, 0.0)
        share = tl.sum(tl.where(c[None, :] < OUT, value * weights_on[None, :], 0.0), 1)
        tl.store(parts + (net * across + tile % across) * ROWS + r, share, r < ROWS)


@triton.jit
def backward_kernel(
    x, slope, d, rows, gradients, dx, h, steep, X_NET: tl.constexpr, X_ROW: tl.constexpr, N: tl.constexpr,
    G_LOSS: tl.constexpr, G_NET: tl.constexpr, W_GAP: tl.constexpr, B_GAP: tl.constexpr,
    SEEN: tl.constexpr, DX_TILES: tl.constexpr, DW_TILES: tl.constexpr,
    ROWS: tl.constexpr, FIRST: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, IN: tl.constexpr,
    OUT: tl.constexpr, GROUP: tl.constexpr, JUMP: tl.constexpr, HEAD: tl.constexpr, HEAD_BIAS: tl.constexpr,
    HEAD_W_GAP: tl.constexpr, HEAD_B_GAP: tl.constexpr, SHARE: tl.constexpr, SLOPE: tl.constexpr,
    LENGTH: tl.constexpr, EVEN: tl.constexpr, GRADIENTS: tl.constexpr, WANTED: tl.constexpr, JOIN: tl.constexpr,
    TF32: tl.constexpr,
    BM: tl.constexpr, BI: tl.constexpr, BW: tl.constexpr, BO: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """One block of the inputs' gradient, or of a loss's gradient by the weights and biases."""
    net = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    d += net * ROWS * (1 if JOIN else OUT)
    rows += net * N
    h += net * SEEN * OUT
    steep += net * SEEN * OUT
    if tile < DX_TILES:
        if WANTED:
            _inputs(slope + net * SEEN * IN, d, steep, rows, dx + net * ROWS * IN, tile, ROWS, FIRST,
                    WEIGHT, IN, OUT, GROUP, JUMP, HEAD, SLOPE, JOIN, TF32, BM, BI, BK)  # fmt: skip
    else:
        x += net // SHARE * X_NET
        gradients += net * G_NET
        tile -= DX_TILES
        if GRADIENTS:
            group = tile // DW_TILES
            gradients += group * G_LOSS
            if tile % DW_TILES == 0:
                _zeros(gradients, WEIGHT + IN * GROUP, BIAS + GROUP, W_GAP, B_GAP, OUT // GROUP, JUMP)
                if JOIN:
                    _zeros(gradients, HEAD + OUT, HEAD_BIAS + 1, HEAD_W_GAP, HEAD_B_GAP, 1, 0)
            begin = group * LENGTH
            seen = tl.where(begin < FIRST, begin, begin - FIRST)
            x += seen * X_ROW
            h += seen * OUT
            steep += seen * OUT
            d += begin * (1 if JOIN else OUT)
            tile = tile % DW_TILES
            if EVEN or ROWS == FIRST:
                _weights(x, X_ROW, d, h, steep, rows, gradients, tile, LENGTH, WEIGHT, BIAS, IN, OUT, GROUP, JUMP,
                         HEAD, HEAD_BIAS, JOIN, TF32, BW, BO, BR)  # fmt: skip
            else:
                if group == 0:
                    _weights(x, X_ROW, d, h, steep, rows, gradients, tile, FIRST, WEIGHT, BIAS, IN, OUT, GROUP, JUMP,
                             HEAD, HEAD_BIAS, JOIN, TF32, BW, BO, BR)  # fmt: skip
                else:
                    _weights(x, X_ROW, d, h, steep, rows, gradients, tile, ROWS - FIRST, WEIGHT, BIAS, IN, OUT, GROUP,
                             JUMP, HEAD, HEAD_BIAS, JOIN, TF32, BW, BO, BR)  # fmt: skip


@triton.jit
def _zeros(
    gradients, WEIGHTS_END: tl.constexpr, BIASES_END: tl.constexpr, W_GAP: tl.constexpr, B_GAP: tl.constexpr,
    HEADS: tl.constexpr, JUMP: tl.constexpr,
):  # fmt: skip
    unused = tl.arange(0, 32)
    for head in tl.static_range(HEADS):
        tl.store(gradients + head * JUMP + WEIGHTS_END + unused, tl.zeros((32,), tl.float32), unused < W_GAP)
        tl.store(gradients + head * JUMP + BIASES_END + unused, tl.zeros((32,), tl.float32), unused < B_GAP)


@triton.jit
def _inputs(
    slope, d, steep, rows, dx, tile, ROWS: tl.constexpr, FIRST: tl.constexpr,
    WEIGHT: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, GROUP: tl.constexpr, JUMP: tl.constexpr,
    HEAD: tl.constexpr, SLOPE: tl.constexpr, JOIN: tl.constexpr, TF32: tl.constexpr,
    BM: tl.constexpr, BI: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    across: tl.constexpr = (IN + BI - 1) // BI
    r = tile // across * BM + tl.arange(0, BM)
    i = tile % across * BI + tl.arange(0, BI)
    seen = tl.where(r < FIRST, r, r - FIRST)
    sums = tl.zeros((BM, BI), tl.float32)
    for start in range(0, OUT, BK):
        o = start + tl.arange(0, BK)
        place = among_heads(o, OUT, GROUP, JUMP)
        there = (r[:, None] < ROWS) & (o[None, :] < OUT)
        if JOIN:  # d of this layer is d of the head's output times its weight times the slope
            back = tl.load(steep + seen[:, None] * OUT + o[None, :], there, 0.0)
            back *= tl.load(rows + HEAD + o, o < OUT, 0.0)[None, :]
        else:
            back = tl.load(d + r[:, None] * OUT + o[None, :], there, 0.0)
        weights = tl.load(rows + WEIGHT + i[None, :] * GROUP + place[:, None],
                          (i[None, :] < IN) & (o[:, None] < OUT), 0.0)  # fmt: skip
        sums = product(back, weights, sums, TF32)
    if JOIN:  # the same for the whole row, so once at the end
        sums *= tl.load(d + r, r < ROWS, 0.0)[:, None]
    inside = (r[:, None] < ROWS) & (i[None, :] < IN)
    if SLOPE:
        sums *= tl.load(slope + seen[:, None] * IN + i[None, :], inside, 0.0)
    tl.store(dx + r[:, None] * IN + i[None, :], sums, inside)


@triton.jit
def _weights(
    x, X_ROW: tl.constexpr, d, h, steep, rows, gradients, tile, count: tl.constexpr,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, GROUP: tl.constexpr,
    JUMP: tl.constexpr, HEAD: tl.constexpr, HEAD_BIAS: tl.constexpr, JOIN: tl.constexpr, TF32: tl.constexpr,
    BW: tl.constexpr, BO: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    across: tl.constexpr = (OUT + BO - 1) // BO
    i = tile // across * BW + tl.arange(0, BW)
    o = tile % across * BO + tl.arange(0, BO)
    sums = tl.zeros((BW, BO), tl.float32)
    total = tl.zeros((BO,), tl.float32)
    for start in range(0, count, BR):
        r = start + tl.arange(0, BR)
        there = (r[:, None] < count) & (o[None, :] < OUT)
        inputs = tl.load(x + r[None, :] * X_ROW + i[:, None], (i[:, None] < IN) & (r[None, :] < count), 0.0)
        if JOIN:
            back = tl.load(steep + r[:, None] * OUT + o[None, :], there, 0.0)
            back *= tl.load(d + r, r < count, 0.0)[:, None]
        else:
            back = tl.load(d + r[:, None] * OUT + o[None, :], there, 0.0)
        sums = product(inputs, back, sums, TF32)
        total += tl.sum(back, 0)
    if JOIN:  # the same for the whole column, so once at the end
        weights_on = tl.load(rows + HEAD + o, o < OUT, 0.0)
        sums *= weights_on[None, :]
        total *= weights_on
    place = among_heads(o, OUT, GROUP, JUMP)
    tl.store(gradients + WEIGHT + i[:, None] * GROUP + place[None, :], sums,
             (i[:, None] < IN) & (o[None, :] < OUT))  # fmt: skip
    if tile // across == 0:
        tl.store(gradients + BIAS + place, total, o < OUT)
        if JOIN:
            _head(d, h, gradients, o, tile, count, OUT, HEAD, HEAD_BIAS, BO, BR)


@triton.jit
def _head(
    d, h, gradients, o, tile, count: tl.constexpr, OUT: tl.constexpr, HEAD: tl.constexpr, HEAD_BIAS: tl.constexpr,
    BO: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    sums = tl.zeros((BO,), tl.float32)
    total = tl.zeros((BR,), tl.float32)
    for start in range(0, count, BR):
        r = start + tl.arange(0, BR)
        back = tl.load(d + r, r < count, 0.0)
        values = tl.load(h + r[:, None] * OUT + o[None, :], (r[:, None] < count) & (o[None, :] < OUT), 0.0)
        sums += tl.sum(values * back[:, None], 0)
        total += back
    tl.store(gradients + HEAD + o, sums, o < OUT)
    if tile == 0:
        tl.store(gradients + HEAD_BIAS, tl.sum(total, 0))
