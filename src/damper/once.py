"""Numbers per agent that are computed once, before they meet every parameter."""

from __future__ import annotations

import torch
from torch import Tensor


def once(*numbers: Tensor) -> list[Tensor]:
    """The same two or more numbers, of one shape, written down where a compiler would otherwise repeat their making.

    For a CPU it takes roots and quotients of single numbers anew for every sixteen parameters, which costs more than
    the rest of the pass; what is joined, it writes to memory first. float64 holds a float32 or a bool exactly.
    """
    if not (numbers[0].is_cpu and torch.compiler.is_compiling()):
        return list(numbers)
    written = torch.stack([number.to(torch.float64) for number in numbers])
    return [one.to(number.dtype) for one, number in zip(written, numbers, strict=True)]
