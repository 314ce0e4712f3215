"""Random streams: SplitMix64 bit for bit, a pure function, and as random as users need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Tensor

from damper.engine.data import random_streams as module
from damper.engine.data.random_streams import Streams

MASK = (1 << 64) - 1
N = 100_000
SMALLEST_P = 1e-4  # the draws are fixed, so a pass is a pass for ever


def splitmix64(state: int, index: int) -> int:
    """Steele, Lea and Flood's generator in plain integers, ``index`` steps from ``state``."""
    z = (state + index * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def unsigned(bits: Tensor) -> list[int]:
    return [value & MASK for value in bits.flatten().tolist()]


# --- which numbers --------------------------------------------------------------------------------


def test_bits_are_the_published_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams([0])
    monkeypatch.setitem(streams._keys, "published", torch.tensor([1234567]))
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    # The reference moves its state before the first output; our element 0 is the state itself.
    assert unsigned(streams.bits("published", 0, (6,)))[1:] == expected


@pytest.mark.parametrize("counter", [0, 1, 7, 10**9, 2**40])
def test_bits_equal_an_independent_implementation(counter: int) -> None:
    seeds, shape = [0, 1, 178132, 2**63 - 1], (3, 2)
    bits = Streams(seeds).bits("target", counter, shape)
    assert bits.shape == (4, 3, 2)
    for row, seed in zip(bits, seeds, strict=True):
        key = int.from_bytes(
            hashlib.blake2b(f"target:{seed}".encode(), digest_size=8).digest(), "little"
        )
        assert unsigned(row) == [splitmix64(key, counter * 6 + i) for i in range(6)]


def test_an_agent_draws_alone_what_it_draws_in_a_population() -> None:
    together = Streams([3, 1, 4])
    for kind in ("uniform", "normal", "rademacher"):
        drawn = getattr(together, kind)("a", 5, (2, 3))
        for j, seed in enumerate(together.seeds):
            assert torch.equal(getattr(Streams([seed]), kind)("a", 5, (2, 3))[0], drawn[j])


def test_order_of_use_changes_nothing() -> None:
    first, second = Streams([0, 1]), Streams([0, 1])
    a, b = first.normal("a", 3, (4,)), first.uniform("b", 3, (4,))
    assert torch.equal(second.uniform("b", 3, (4,)), b)
    assert torch.equal(second.normal("a", 3, (4,)), a)
    assert torch.equal(first.normal("a", 3, (4,)), a)


def test_a_counter_on_the_device_counts_as_its_number() -> None:
    streams, counter = Streams([0, 1]), torch.zeros((), dtype=torch.int64)
    for number in range(3):
        assert torch.equal(streams.bits("a", counter, (5,)), streams.bits("a", number, (5,)))
        counter += 1


def test_blocks_follow_each_other_without_overlap() -> None:
    streams = Streams([0, 1])
    blocks = torch.cat([streams.bits("a", counter, (7,)) for counter in range(5)], 1)
    assert torch.equal(blocks, streams.bits("a", 0, (35,)))


def test_no_two_draws_are_the_same() -> None:
    streams = Streams(range(20))
    drawn = [
        streams.bits(purpose, counter, (50,))
        for purpose in ("a", "b", "c")
        for counter in range(30)
    ]
    assert torch.cat(drawn, 1).unique().numel() == 20 * 3 * 30 * 50


# --- how they are distributed ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform(dtype: torch.dtype) -> None:
    x = Streams([0]).uniform("a", 0, (N,), dtype)
    assert x.dtype == dtype and x.min() >= -1 and x.max() < 1
    assert stats.kstest(x[0].double().numpy(), "uniform", (-1, 2)).pvalue > SMALLEST_P


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal(dtype: torch.dtype) -> None:
    x = Streams([0]).normal("a", 0, (N,), dtype)
    assert x.dtype == dtype
    values = x[0].double().numpy()
    assert stats.kstest(values, "norm").pvalue > SMALLEST_P
    assert stats.normaltest(values).pvalue > SMALLEST_P, "skewness and kurtosis"
    beyond = int((abs(values) > 3).sum())
    assert stats.binomtest(beyond, N, 2 * stats.norm.sf(3)).pvalue > SMALLEST_P, "tails"


def test_normal_is_finite_at_the_extremes(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams([0])
    extremes = torch.tensor([[0, -1, 2**63 - 1, -(2**63), 2**32 - 1, -(2**32)]])
    monkeypatch.setattr(streams, "bits", lambda *_: extremes)
    for dtype in (torch.float32, torch.float64):
        assert streams.normal("a", 0, (6,), dtype).isfinite().all()
        assert (streams.uniform("a", 0, (6,), dtype).abs() <= 1).all()


@pytest.mark.parametrize("below", [2, 7, 1000])
def test_integers(below: int) -> None:
    streams = Streams([0, 1])
    x = streams.integers("replay", 0, (N,), torch.tensor(below))
    assert torch.equal(x, streams.integers("replay", 0, (N,), below))
    for row in x:
        counts = torch.bincount(row, minlength=below)
        assert counts.numel() == below and stats.chisquare(counts.numpy()).pvalue > SMALLEST_P


@pytest.mark.parametrize("counter", [0, 7, 10**6])
def test_the_host_draws_the_same_integers_with_numpy(counter: int) -> None:
    streams = Streams([3, 5, 2**63])
    drawn = torch.from_numpy(streams.host_integers("replay", counter, 64, 12_345))
    assert torch.equal(drawn, streams.integers("replay", counter, (64,), 12_345))


def test_rademacher() -> None:
    x = Streams([0]).rademacher("a", 0, (N,))
    assert set(x.unique().tolist()) == {-1.0, 1.0}
    assert stats.binomtest(int((x > 0).sum()), N, 0.5).pvalue > SMALLEST_P


# --- how they relate ------------------------------------------------------------------------------


def check_independence(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """No linear correlation between draws, nor between their sizes."""
    for a, b in pairs:
        for x, y in ((a, b), (a.abs(), b.abs())):
            assert stats.pearsonr(x.double().numpy(), y.double().numpy()).pvalue > SMALLEST_P


def agents(streams: Streams) -> list[tuple[Tensor, Tensor]]:
    x = streams.normal("a", 0, (N,))
    return [(x[i], x[i + 1]) for i in range(3)]  # seeds 0, 1, 2, 3: neighbours are the hard case


def purposes(streams: Streams) -> list[tuple[Tensor, Tensor]]:
    names = ["exploration", "target", "policy", "replay"]
    draws = [streams.normal(name, 0, (N,))[0] for name in names]
    return [(draws[i], draws[j]) for i in range(4) for j in range(i)]


def counters(streams: Streams) -> list[tuple[Tensor, Tensor]]:
    draws = [streams.normal("a", counter, (N,))[0] for counter in range(4)]
    return [(draws[i], draws[j]) for i in range(4) for j in range(i)]


def neighbours(streams: Streams) -> list[tuple[Tensor, Tensor]]:
    x = torch.cat([streams.uniform("a", counter, (8,))[0] for counter in range(N // 8)])
    return [(x[:-lag], x[lag:]) for lag in (1, 2, 8)]


@pytest.mark.parametrize("pairs", [agents, purposes, counters, neighbours])
def test_independence(pairs: Callable[[Streams], list[tuple[Tensor, Tensor]]]) -> None:
    check_independence(pairs(Streams(range(4))))


def test_independence_is_a_test_that_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_mix", lambda x: x)
    with pytest.raises(AssertionError):
        check_independence(neighbours(Streams(range(4))))
