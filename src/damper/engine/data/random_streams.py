"""Random numbers as a pure function of (agent's seed, purpose, counter); counters are the state.

Each agent and each purpose has its own stream, so switching a term off shifts no other, an agent
draws the same numbers alone or in a population, and a resumed run draws what the killed one would
have. The counter is a device tensor, so every replay of a CUDA graph draws new numbers. The
generator is SplitMix64 (Steele, Lea and Flood 2014) at an index.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from damper.interface import Noise

# Purposes that every backbone has; noise adds its own.
REPLAY_INDICES, WARM_UP_ACTIONS = "replay", "random"


def _signed(value: int) -> int:
    """The int64 with the same bits as an unsigned 64-bit integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN, _MIX_1, _MIX_2 = map(_signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


Bits = TypeVar("Bits", Tensor, NDArray[np.int64])
Counter = Tensor | int
Shape = Sequence[int]


def _shift(x: Bits, bits: int) -> Bits:
    """Logical right shift of int64 (torch's and NumPy's are arithmetic)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Bits) -> Bits:
    """SplitMix64's output function on int64 (torch or NumPy), whose products wrap around."""
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


class Streams:
    """Per-agent random streams, one per purpose; one agent per seed."""

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.seeds = tuple(int(seed) for seed in seeds)
        self.device = torch.device(device)
        self._keys: dict[str, Tensor] = {}
        self._host_keys: dict[str, NDArray[np.int64]] = {}

    def key(self, purpose: str) -> Tensor:
        """The starting points of the streams, ``[P]``: hashes of purpose and seed."""
        if purpose not in self._keys:
            texts = [f"{purpose}:{seed}".encode() for seed in self.seeds]
            digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
            values = [int.from_bytes(digest, "little", signed=True) for digest in digests]
            self._keys[purpose] = torch.tensor(values, dtype=torch.int64, device=self.device)
        return self._keys[purpose]

    def bits(self, purpose: str, counter: Counter, shape: Shape) -> Tensor:
        """64 random bits per element of ``[P, *shape]``: block number ``counter`` of the stream."""
        key = self._keys.get(purpose)
        if key is None:
            key = self.key(purpose)
        # Counters number whole blocks, so draws of one stream never overlap.
        count = math.prod(shape)
        index = torch.arange(count, device=self.device) + counter * count
        return _mix(key[:, None] + index * _GOLDEN).reshape(len(self.seeds), *shape)

    def integers(self, purpose: str, counter: Counter, shape: Shape, below: Tensor | int) -> Tensor:
        """Integers in [0, below)."""
        return _shift(self.bits(purpose, counter, shape), 1) % below

    def host_integers(
        self, purpose: str, counter: int, count: int, below: int
    ) -> NDArray[np.int64]:
        """``integers`` ``[P, count]`` in NumPy: a third of torch's time for so few numbers."""
        if purpose not in self._host_keys:
            self._host_keys[purpose] = self.key(purpose).cpu().numpy()[:, None]
        index = np.arange(counter * count, (counter + 1) * count)
        return _shift(_mix(self._host_keys[purpose] + index * _GOLDEN), 1) % below

    def noise(
        self,
        kinds: Mapping[str, Noise],
        counter: Counter,
        rows: int,
        shapes: Mapping[str | None, tuple[int, ...]],
        dtype: torch.dtype,
    ) -> dict[str, Tensor]:
        """Draw number ``counter`` of every kind of noise, ``[P, rows, ·]``, by name.

        ``shapes`` are ``NetworkSizes.noise_shapes``.
        """
        draws = {}
        for name, noise in kinds.items():
            draw = getattr(self, noise.kind)
            draws[name] = draw(name, counter, (rows, *shapes[noise.like]), dtype)
        return draws

    def uniform(
        self, purpose: str, counter: Counter, shape: Shape, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Uniform in [-1, 1)."""
        return _shift(self.bits(purpose, counter, shape), 40).to(dtype) * 2.0**-23 - 1.0

    def normal(
        self, purpose: str, counter: Counter, shape: Shape, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Standard normal (Box and Muller, with both uniforms from the halves of one draw)."""
        bits = self.bits(purpose, counter, shape)
        # Half a step above zero, whose logarithm would be infinite.
        u: Tensor = (_shift(bits, 32).to(dtype) + 0.5) * 2.0**-32
        angle = (bits & 0xFFFFFFFF).to(dtype) * (2.0**-31 * math.pi)
        return (-2.0 * u.log()).sqrt() * angle.cos()

    def rademacher(
        self, purpose: str, counter: Counter, shape: Shape, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """-1 or 1 with equal probability."""
        return (_shift(self.bits(purpose, counter, shape), 63) * 2 - 1).to(dtype)
