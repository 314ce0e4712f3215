"""A linear layer and its activation, forwards and backwards, for M stacked networks whose parameters are flat rows.

Written out instead of left to autograd: one pass then serves several losses, and on a GPU each layer is one kernel
(``dense_triton``). The same sums in plain PyTorch are in ``dense_columns`` for a CPU and in ``dense_plain`` for all
else: other devices, dtypes and activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F

NARROW = 16  # outputs
HAS_TRITON = find_spec("triton") is not None and torch.version.hip is None
OLDEST = (8, 0)  # Ampere, the first with TF32


@dataclass(frozen=True)
class Dense:
    """Where a layer lies in a flat row: weights ``[inputs, outputs]`` from ``weight`` on, biases from ``bias`` on.

    Several heads of ``group`` outputs each count as one layer; each lies ``jump`` numbers after the one before.
    ``gaps`` are the unused numbers behind the weights and behind the biases of each.
    """

    inputs: int
    outputs: int
    weight: int
    bias: int
    group: int
    jump: int = 0
    gaps: tuple[int, int] = (0, 0)

    @property
    def heads(self) -> int:
        """How many layers lie side by side."""
        return self.outputs // self.group

    def weights(self, rows: Tensor) -> Tensor:
        """``[M, inputs, outputs]`` from rows ``[M, n]``."""
        parts = [rows[:, a:b].unflatten(1, (self.inputs, self.group)) for a, b in self._spans(self.weight, self.inputs)]
        return parts[0] if self.heads == 1 else torch.cat(parts, -1)

    def biases(self, rows: Tensor) -> Tensor:
        """``[M, 1, outputs]`` from rows ``[M, n]``."""
        parts = [rows[:, a:b] for a, b in self._spans(self.bias, 1)]
        return (parts[0] if self.heads == 1 else torch.cat(parts, -1)).unsqueeze(1)

    def pieces(self, weights: Tensor, biases: Tensor) -> dict[int, Tensor]:
        """Weights ``[M, inputs, outputs]`` and biases ``[M, outputs]`` as flat pieces by where they start in a row."""
        found = {}
        for start, inputs, values in ((self.weight, self.inputs, weights), (self.bias, 1, biases.unsqueeze(1))):
            for (a, _), part in zip(self._spans(start, inputs), values.split(self.group, -1), strict=True):
                found[a] = part.flatten(1)
        return found

    def _spans(self, start: int, inputs: int) -> list[tuple[int, int]]:
        starts = [start + head * self.jump for head in range(self.heads)]
        return [(a, a + inputs * self.group) for a in starts]


def silu(z: Tensor) -> tuple[Tensor, Tensor]:
    """``z σ(z)`` and its slope ``σ(z) (1 + z (1 − σ(z)))``."""
    s = torch.sigmoid(z)
    h = z * s
    return h, s + h * (1.0 - s)


def relu(z: Tensor) -> tuple[Tensor, Tensor]:
    """``max(z, 0)`` and its slope."""
    return F.relu(z), (z > 0).to(z.dtype)


def tanh(z: Tensor) -> tuple[Tensor, Tensor]:
    """``tanh z`` and its slope ``1 − tanh² z``."""
    h = torch.tanh(z)
    return h, 1.0 - h.square()


ACTIVATIONS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {"silu": silu, "relu": relu, "tanh": tanh}


def linear(x: Tensor, layer: tuple[Tensor, Tensor]) -> Tensor:
    """``x W + b`` for stacked inputs ``[M, B, in]``."""
    weight, bias = layer
    if x.is_cpu and weight.shape[-1] < NARROW:
        # A CPU's batched product with few columns is several times slower than one product after the other.
        agents = zip(x.unbind(), weight.mT.contiguous().unbind(), bias.squeeze(1).unbind(), strict=True)
        return torch.stack([F.linear(*agent) for agent in agents])
    if x.is_cpu and not torch.compiler.is_compiling():
        return torch.baddbmm(bias, x, weight)
    # On a GPU baddbmm first copies the bias over the output; an addition joins the activation's kernel.
    return torch.bmm(x, weight) + bias


Pieces = dict[int, Tensor]  # flat gradients [M, length] by where they start in a row


def blank(rows: Tensor, groups: int, every: int = 1) -> Tensor | list[Pieces]:
    """Where ``backward`` leaves gradients: rows ``[groups, M, n]`` for kernels to write to, otherwise pieces.

    A compiler cannot vectorise what is written into slices of one tensor, so pieces are joined in the end.
    """
    if _kernels(rows) is None:
        return [{} for _ in range(groups)]
    return rows.new_empty(groups, len(rows) // every, rows.shape[1])


def gather(found: Tensor | list[Pieces], size: int) -> list[Tensor]:
    """Each group's gradient as rows ``[M, size]``, zero where no layer lies."""
    if isinstance(found, Tensor):
        return list(found.unbind())
    return [_join(pieces, size) for pieces in found]


def _join(pieces: Pieces, size: int) -> Tensor:
    parts: list[Tensor] = []
    filled = 0
    for start in (*sorted(pieces), size):
        if start > filled:
            some = next(iter(pieces.values()))
            parts.append(some.new_zeros(len(some), start - filled))
        if start < size:
            parts.append(pieces[start])
            filled = start + pieces[start].shape[1]
    return torch.cat(parts, 1)


def forward(
    rows: Tensor,
    layer: Dense,
    x: Tensor,
    activation: str | None = None,
    keep: bool = True,
    every: int = 1,
    biased: bool | int = True,
    columns: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """``h = f(x W + b)``, ``[M, R, outputs]``, and where ``keep`` the slopes ``f'``.

    Args:
        rows: parameters ``[M, n]``.
        layer: where the layer lies in them.
        x: inputs ``[M, R, inputs]``, or ``[M/2, R, inputs]`` where two networks share theirs.
        activation: f; None for none, and then there are no slopes.
        keep: whether the slopes are wanted.
        every: 2 takes the first, third, ... network only.
        biased: whether b is added, or to how many of the first rows.
        columns: whether a CPU may run ``dense_columns``: not where the result meets much that lies by rows.
    """
    if (kernels := _kernels(rows, activation)) is not None:
        return kernels.forward(rows, layer, x, activation, keep, every, biased)[:2]  # type: ignore[no-any-return]
    return _sums(rows, columns).forward(rows, layer, x, activation, keep, every, biased)  # type: ignore[no-any-return]


def backward(
    rows: Tensor,
    layer: Dense,
    x: Tensor,
    d: Tensor,
    *,
    first: int,
    lengths: Sequence[int],
    slope: Tensor | None = None,
    gradients: Tensor | list[Pieces] | None = None,
    wanted: bool | int = True,
    every: int = 1,
    biased: bool | int = True,
    columns: bool = True,
) -> Tensor | None:
    """From ``d = ∂L/∂z``: the parameters' gradients ``xᵀ d`` and ``Σ d``, and ``d Wᵀ`` times the slopes behind x.

    Args:
        rows: parameters ``[M, n]``.
        layer: where the layer lies in them.
        x: what went in, ``[M, R, inputs]`` or ``[M/2, R, inputs]``.
        d: ``[M, D, outputs]``; its first rows are of one loss, the others of a second, and each loss's rows belong to
            x's rows from its first on.
        first: how many rows of d are of the first loss.
        lengths: into which groups of rows d falls, each with a gradient of its own: all of one length, or one per loss.
        slope: slopes of the activation that made x, or None where x comes from outside.
        gradients: from ``blank``, one per group, where to leave the parameters' gradients; None for nowhere.
        wanted: whether the inputs' are wanted, or of how many of d's first rows.
        every: as in ``forward``.
        biased: whether rows had b, or how many of d's first.
        columns: as in ``forward``.

    Returns:
        ``∂L/∂z`` of the layer before (``∂L/∂x`` without slopes), ``[M, D or wanted, inputs]``, if wanted.
    """
    given = (rows, layer, x, d, first, lengths, slope, gradients, wanted, every, biased)
    return (_kernels(rows) or _sums(rows, columns)).backward(*given)  # type: ignore[no-any-return]


def together(parts: Sequence[Tensor]) -> Tensor:
    """``[M, R, F]`` of parts with some of the rows each, as the layers best take it."""
    if parts[0].is_cpu and _kernels(parts[0]) is None:
        return torch.cat([part.mT for part in parts], 2).mT
    return torch.cat(tuple(parts), 1)


def joined(rows: Tensor, layers: Sequence[Dense], activation: str) -> ModuleType | None:
    """The kernels that run a network's last two layers as one, where the last has a single output."""
    last = layers[-1]
    return _kernels(rows, activation) if len(layers) > 1 and last.outputs == 1 and layers[-2].outputs > NARROW else None


def how_many(rows: bool | int, x: Tensor) -> int:
    """All rows of x, none of them, or so many of the first."""
    return rows * x.shape[1] if isinstance(rows, bool) else rows


def shares(lengths: Sequence[int], first: int, biased: int) -> list[tuple[slice, slice, slice]]:
    """Of each group in ``backward``: its rows of x, its rows of d, and those of them that had a bias."""
    found, begin = [], 0
    for length in lengths:
        seen, end = begin if begin < first else begin - first, begin + length
        found.append((slice(seen, seen + length), slice(begin, end), slice(begin, min(end, max(begin, biased)))))
        begin = end
    return found


def each(x: Tensor, rows: Tensor) -> Tensor:
    """Inputs for every network, where two share theirs."""
    return x if len(x) == len(rows) else x.repeat_interleave(2, 0)


_too_old = False


def look_at(device: torch.device) -> None:
    """Leave the kernels alone from here on if a device is too old for them: a compiled function cannot ask it."""
    global _too_old
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST:
        _too_old = True


def _kernels(rows: Tensor, activation: str | None = None) -> ModuleType | None:
    """The GPU's kernels, where they can do it: in float32, and whatever the activation except for tanh forwards."""
    if not rows.is_cuda or rows.dtype != torch.float32 or activation == "tanh" or not HAS_TRITON or _too_old:
        return None
    from damper.engine import dense_triton

    return dense_triton


def _sums(rows: Tensor, columns: bool) -> ModuleType:
    """The layers in plain PyTorch, as the device is best asked for them."""
    from damper.engine import dense_columns, dense_plain

    return dense_columns if columns and rows.is_cpu else dense_plain
