"""The kernels behind ``triton_layers``; each program computes one block of one network.

Pointers: ``x`` is the layer's input, ``flat_params`` the parameters, ``h`` its output, ``act_grad``
the activation's derivative ``f'``, ``d`` the gradient of the loss with respect to the layer's
output before the activation, ``dx`` that with respect to its input. Names in capitals are
compile-time constants:

    ROWS                  rows of x in the forward kernel, of d in the backward kernel
    X_ROWS, DX_ROWS       rows of x, and of dx, in the backward kernel
    PRIMARY_ROWS          rows of d that belong to the first loss; the others belong to the second
    GROUP_ROWS            rows of d in each group with its own gradient
    EVEN_GROUPS           whether all groups have that many
    IN, OUT               the layer's inputs and outputs
    GROUP, HEAD_STRIDE    outputs of one head; distance between two heads' parameters
    WEIGHT, BIAS          where the layer's weights and biases start among a network's parameters
    HEAD, HEAD_BIAS       where those of a fused head of one output start
    W_PAD, B_PAD          numbers of padding after weights and biases; HEAD_*_PAD after the head's
    N, X_NET, X_ROW       strides: of flat_params and x by network, of x by row
    G_LOSS, G_NET         strides of the gradients by group and by network
    SHARE                 networks that share an input
    DX_TILES, DW_TILES    blocks of dx, and of one group's weight gradient
    ACTIVATION            a code of ``triton_layers.ACTIVATION_CODES``
    STORE_*               which outputs are stored
    HAS_*, FUSE_HEAD      which inputs and gradients there are, and whether a head is fused
    TF32                  one product in TF32, or three that make one of float32
    BM, BN, BK            blocks of the forward kernel: rows, outputs, and inputs read at a time
    BM, BI, BK            blocks of dx in the backward kernel: rows, inputs, outputs
    BW, BO, BR            blocks of dW: inputs, outputs, rows
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(a, b, sums, TF32: tl.constexpr):
    """``sums + a b``."""
    if TF32:
        return tl.dot(a, b, sums, input_precision="tf32")
    else:
        return tl.dot(a, b, sums, input_precision="tf32x3")


@triton.jit
def among_heads(column, OUT: tl.constexpr, GROUP: tl.constexpr, HEAD_STRIDE: tl.constexpr):
    """Offset of an output's weights."""
    if GROUP == OUT:  # with one head the column itself, so that the compiler can vectorise loads
        return column
    else:
        return column // GROUP * HEAD_STRIDE + column % GROUP


@triton.jit
def forward_kernel(
    x, flat_params, h, act_grad, parts, X_NET: tl.constexpr, X_ROW: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, IN: tl.constexpr,
    OUT: tl.constexpr, GROUP: tl.constexpr, HEAD_STRIDE: tl.constexpr, HEAD: tl.constexpr,
    SHARE: tl.constexpr, ACTIVATION: tl.constexpr, STORE_H: tl.constexpr,
    STORE_ACT_GRAD: tl.constexpr, FUSE_HEAD: tl.constexpr, TF32: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute one block of ``f(x W + b)`` and of f'."""
    net = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    across: tl.constexpr = (OUT + BN - 1) // BN
    r = tile // across * BM + tl.arange(0, BM)
    c = tile % across * BN + tl.arange(0, BN)
    x += net // SHARE * X_NET
    flat_params += net * N
    column_offset = among_heads(c, OUT, GROUP, HEAD_STRIDE)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, IN, BK):
        k = start + tl.arange(0, BK)
        inputs = tl.load(
            x + r[:, None] * X_ROW + k[None, :], (r[:, None] < ROWS) & (k[None, :] < IN), 0.0
        )
        weights = tl.load(flat_params + WEIGHT + k[:, None] * GROUP + column_offset[None, :],
                          (k[:, None] < IN) & (c[None, :] < OUT), 0.0)  # fmt: skip
        sums = product(inputs, weights, sums, TF32)
    z = sums + tl.load(flat_params + BIAS + column_offset, c < OUT, 0.0)[None, :]
    at = net * ROWS * OUT + r[:, None] * OUT + c[None, :]
    inside = (r[:, None] < ROWS) & (c[None, :] < OUT)
    if ACTIVATION == 1:
        s = tl.sigmoid(z)
        value = z * s
        gradient = s + value * (1.0 - s)
    elif ACTIVATION == 2:
        value = tl.where(z <= 0.0, 0.0, z)  # NaN stays NaN
        gradient = tl.where(z > 0.0, 1.0, 0.0)
    else:
        value = z
        gradient = z
    if STORE_H:
        tl.store(h + at, value, inside)
    if STORE_ACT_GRAD:
        tl.store(act_grad + at, gradient, inside)
    if FUSE_HEAD:
        weights_on = tl.load(flat_params + HEAD + c, c < OUT, 0.0)
        share = tl.sum(tl.where(c[None, :] < OUT, value * weights_on[None, :], 0.0), 1)
        tl.store(parts + (net * across + tile % across) * ROWS + r, share, r < ROWS)


@triton.jit
def backward_kernel(
    x, act_grad, d, flat_params, gradients, dx, h, head_act_grad, X_NET: tl.constexpr,
    X_ROW: tl.constexpr, N: tl.constexpr, G_LOSS: tl.constexpr, G_NET: tl.constexpr,
    W_PAD: tl.constexpr, B_PAD: tl.constexpr, X_ROWS: tl.constexpr, DX_TILES: tl.constexpr,
    DW_TILES: tl.constexpr, ROWS: tl.constexpr, PRIMARY_ROWS: tl.constexpr, WEIGHT: tl.constexpr,
    BIAS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, GROUP: tl.constexpr,
    HEAD_STRIDE: tl.constexpr, HEAD: tl.constexpr, HEAD_BIAS: tl.constexpr,
    HEAD_W_PAD: tl.constexpr, HEAD_B_PAD: tl.constexpr, SHARE: tl.constexpr,
    HAS_ACT_GRAD: tl.constexpr, GROUP_ROWS: tl.constexpr, EVEN_GROUPS: tl.constexpr,
    HAS_GRADS: tl.constexpr, DX_ROWS: tl.constexpr, FUSE_HEAD: tl.constexpr, TF32: tl.constexpr,
    BM: tl.constexpr, BI: tl.constexpr, BW: tl.constexpr, BO: tl.constexpr, BK: tl.constexpr,
    BR: tl.constexpr,
):  # fmt: skip
    """Compute one block of the gradient by the inputs, or by one group's weights and biases."""
    net = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    d += net * ROWS * (1 if FUSE_HEAD else OUT)
    flat_params += net * N
    h += net * X_ROWS * OUT
    head_act_grad += net * X_ROWS * OUT
    if tile < DX_TILES:
        if DX_ROWS > 0:
            _grad_input(act_grad + net * X_ROWS * IN, d, head_act_grad, flat_params,
                        dx + net * DX_ROWS * IN, tile, DX_ROWS, PRIMARY_ROWS, WEIGHT, IN, OUT,
                        GROUP, HEAD_STRIDE, HEAD, HAS_ACT_GRAD, FUSE_HEAD, TF32,
                        BM, BI, BK)  # fmt: skip
    else:
        x += net // SHARE * X_NET
        gradients += net * G_NET
        tile -= DX_TILES
        if HAS_GRADS:
            group = tile // DW_TILES
            gradients += group.to(tl.int64) * G_LOSS
            if tile % DW_TILES == 0:
                _zero_padding(
                    gradients,
                    WEIGHT + IN * GROUP,
                    BIAS + GROUP,
                    W_PAD,
                    B_PAD,
                    OUT // GROUP,
                    HEAD_STRIDE,
                )
                if FUSE_HEAD:
                    _zero_padding(
                        gradients, HEAD + OUT, HEAD_BIAS + 1, HEAD_W_PAD, HEAD_B_PAD, 1, 0
                    )
            begin = group * GROUP_ROWS
            x_row = tl.where(begin < PRIMARY_ROWS, begin, begin - PRIMARY_ROWS)
            x += x_row * X_ROW
            h += x_row * OUT
            head_act_grad += x_row * OUT
            d += begin * (1 if FUSE_HEAD else OUT)
            tile = tile % DW_TILES
            count = GROUP_ROWS
            if not EVEN_GROUPS:  # one group per loss
                count = tl.where(group == 0, PRIMARY_ROWS, ROWS - PRIMARY_ROWS)
            _grad_weight(x, X_ROW, d, h, head_act_grad, flat_params, gradients, tile, count, WEIGHT,
                         BIAS, IN, OUT, GROUP, HEAD_STRIDE, HEAD, HEAD_BIAS, FUSE_HEAD, TF32,
                         BW, BO, BR)  # fmt: skip


@triton.jit
def _zero_padding(
    gradients, WEIGHTS_END: tl.constexpr, BIASES_END: tl.constexpr, W_PAD: tl.constexpr,
    B_PAD: tl.constexpr, HEADS: tl.constexpr, HEAD_STRIDE: tl.constexpr,
):  # fmt: skip
    unused = tl.arange(0, 32)  # padding is shorter than 32: layers start at multiples of 32
    for head in tl.static_range(HEADS):
        tl.store(
            gradients + head * HEAD_STRIDE + WEIGHTS_END + unused,
            tl.zeros((32,), tl.float32),
            unused < W_PAD,
        )
        tl.store(
            gradients + head * HEAD_STRIDE + BIASES_END + unused,
            tl.zeros((32,), tl.float32),
            unused < B_PAD,
        )


@triton.jit
def _grad_input(
    act_grad, d, head_act_grad, flat_params, dx, tile, ROWS: tl.constexpr,
    PRIMARY_ROWS: tl.constexpr, WEIGHT: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
    GROUP: tl.constexpr, HEAD_STRIDE: tl.constexpr, HEAD: tl.constexpr, HAS_ACT_GRAD: tl.constexpr,
    FUSE_HEAD: tl.constexpr, TF32: tl.constexpr, BM: tl.constexpr, BI: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    across: tl.constexpr = (IN + BI - 1) // BI
    r = tile // across * BM + tl.arange(0, BM)
    i = tile % across * BI + tl.arange(0, BI)
    x_row = tl.where(r < PRIMARY_ROWS, r, r - PRIMARY_ROWS)
    sums = tl.zeros((BM, BI), tl.float32)
    for start in range(0, OUT, BK):
        o = start + tl.arange(0, BK)
        column_offset = among_heads(o, OUT, GROUP, HEAD_STRIDE)
        there = (r[:, None] < ROWS) & (o[None, :] < OUT)
        if FUSE_HEAD:  # this layer's d: the head's d times its weight times the derivative f'
            back = tl.load(head_act_grad + x_row[:, None] * OUT + o[None, :], there, 0.0)
            back *= tl.load(flat_params + HEAD + o, o < OUT, 0.0)[None, :]
        else:
            back = tl.load(d + r[:, None] * OUT + o[None, :], there, 0.0)
        weights = tl.load(flat_params + WEIGHT + i[None, :] * GROUP + column_offset[:, None],
                          (i[None, :] < IN) & (o[:, None] < OUT), 0.0)  # fmt: skip
        sums = product(back, weights, sums, TF32)
    if FUSE_HEAD:  # one factor per row, so applied once at the end
        sums *= tl.load(d + r, r < ROWS, 0.0)[:, None]
    inside = (r[:, None] < ROWS) & (i[None, :] < IN)
    if HAS_ACT_GRAD:
        sums *= tl.load(act_grad + x_row[:, None] * IN + i[None, :], inside, 0.0)
    tl.store(dx + r[:, None] * IN + i[None, :], sums, inside)


@triton.jit
def _grad_weight(
    x, X_ROW: tl.constexpr, d, h, head_act_grad, flat_params, gradients, tile, count,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
    GROUP: tl.constexpr, HEAD_STRIDE: tl.constexpr, HEAD: tl.constexpr, HEAD_BIAS: tl.constexpr,
    FUSE_HEAD: tl.constexpr, TF32: tl.constexpr, BW: tl.constexpr, BO: tl.constexpr,
    BR: tl.constexpr,
):  # fmt: skip
    across: tl.constexpr = (OUT + BO - 1) // BO
    i = tile // across * BW + tl.arange(0, BW)
    o = tile % across * BO + tl.arange(0, BO)
    sums = tl.zeros((BW, BO), tl.float32)
    total = tl.zeros((BO,), tl.float32)
    for start in range(0, count, BR):
        r = start + tl.arange(0, BR)
        there = (r[:, None] < count) & (o[None, :] < OUT)
        inputs = tl.load(
            x + r[None, :] * X_ROW + i[:, None], (i[:, None] < IN) & (r[None, :] < count), 0.0
        )
        if FUSE_HEAD:
            back = tl.load(head_act_grad + r[:, None] * OUT + o[None, :], there, 0.0)
            back *= tl.load(d + r, r < count, 0.0)[:, None]
        else:
            back = tl.load(d + r[:, None] * OUT + o[None, :], there, 0.0)
        sums = product(inputs, back, sums, TF32)
        total += tl.sum(back, 0)
    if FUSE_HEAD:  # one factor per column, so applied once at the end
        weights_on = tl.load(flat_params + HEAD + o, o < OUT, 0.0)
        sums *= weights_on[None, :]
        total *= weights_on
    column_offset = among_heads(o, OUT, GROUP, HEAD_STRIDE)
    tl.store(gradients + WEIGHT + i[:, None] * GROUP + column_offset[None, :], sums,
             (i[:, None] < IN) & (o[None, :] < OUT))  # fmt: skip
    if tile // across == 0:
        tl.store(gradients + BIAS + column_offset, total, o < OUT)
        if FUSE_HEAD:
            _grad_head(d, h, gradients, o, tile, count, OUT, HEAD, HEAD_BIAS, BO, BR)


@triton.jit
def _grad_head(
    d, h, gradients, o, tile, count, OUT: tl.constexpr, HEAD: tl.constexpr, HEAD_BIAS: tl.constexpr,
    BO: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    sums = tl.zeros((BO,), tl.float32)
    total = tl.zeros((BR,), tl.float32)
    for start in range(0, count, BR):
        r = start + tl.arange(0, BR)
        back = tl.load(d + r, r < count, 0.0)
        values = tl.load(
            h + r[:, None] * OUT + o[None, :], (r[:, None] < count) & (o[None, :] < OUT), 0.0
        )
        sums += tl.sum(values * back[:, None], 0)
        total += back
    tl.store(gradients + HEAD + o, sums, o < OUT)
    if tile == 0:
        tl.store(gradients + HEAD_BIAS, tl.sum(total, 0))
