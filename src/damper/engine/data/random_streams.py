"""Random numbers as a pure function of (agent's seed, purpose, counter): no state but the counters.

Each agent and each purpose has its own stream, so switching a term off shifts no other, an agent draws the same numbers
alone or in a population, and a resumed run draws what the killed one would have. The counter is a device tensor, so
every replay of a CUDA graph draws anew. The generator is SplitMix64 (Steele, Lea and Flood 2014) read at an index.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """An unsigned 64-bit integer as the int64 with the same bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN, _MIX_1, _MIX_2 = map(_signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift (torch's is arithmetic)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's output function on int64, whose products wrap."""
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


class Streams:
    """Per-agent random streams, one per purpose."""

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        """One agent per seed."""
        self.seeds = tuple(int(seed) for seed in seeds)
        self.device = torch.device(device)
        self._keys: dict[str, Tensor] = {}

    def key(self, purpose: str) -> Tensor:
        """The streams' starting points, ``[P]``: a hash of purpose and seed."""
        if purpose not in self._keys:
            digests = [hashlib.blake2b(f"{purpose}:{seed}".encode(), digest_size=8).digest() for seed in self.seeds]
            values = [int.from_bytes(digest, "little", signed=True) for digest in digests]
            self._keys[purpose] = torch.tensor(values, dtype=torch.int64, device=self.device)
        return self._keys[purpose]

    def bits(self, purpose: str, counter: Tensor | int, shape: Sequence[int]) -> Tensor:
        """64 random bits for each element of ``[P, *shape]``, the counter-th such block of the stream."""
        count = math.prod(shape)
        index = torch.arange(count, device=self.device) + counter * count
        return _mix(self.key(purpose)[:, None] + index * _GOLDEN).reshape(len(self.seeds), *shape)

    def integers(self, purpose: str, counter: Tensor | int, shape: Sequence[int], below: Tensor | int) -> Tensor:
        """Integers in [0, below)."""
        return _shift(self.bits(purpose, counter, shape), 1) % below

    def uniform(
        self, purpose: str, counter: Tensor | int, shape: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Uniform in [-1, 1)."""
        return _shift(self.bits(purpose, counter, shape), 40).to(dtype) * 2.0**-23 - 1.0

    def normal(
        self, purpose: str, counter: Tensor | int, shape: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Standard normal (Box and Muller, both uniforms from one draw's halves)."""
        bits = self.bits(purpose, counter, shape)
        radius = (_shift(bits, 32).to(dtype) + 0.5) * 2.0**-32
        angle = (bits & 0xFFFFFFFF).to(dtype) * (2.0**-31 * math.pi)
        return (-2.0 * radius.log()).sqrt() * angle.cos()

    def rademacher(
        self, purpose: str, counter: Tensor | int, shape: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """-1 or 1 with equal probability."""
        return (_shift(self.bits(purpose, counter, shape), 63) * 2 - 1).to(dtype)
