"""The rule in JAX against the rule in PyTorch, at scales that overflow when they are squared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

jax = pytest.importorskip("jax", reason="JAX is not installed")
optax = pytest.importorskip("optax", reason="optax is not installed")

import damper  # noqa: E402
from damper import jax as damper_jax  # noqa: E402
from damper.errors import DamperError  # noqa: E402

jnp = jax.numpy
PAGE = Path(__file__).parents[1] / "docs" / "jax.md"
LARGEST = float(np.finfo(np.float32).max)


def pairs(cosines: Any = (0.9, 0.3, 0.0, -0.3, -0.9, -0.999, -1.0, 1.0)) -> list[np.ndarray]:
    """Pairs ``[2, n]`` of unit vectors with these cosines."""
    rng = np.random.default_rng(0)
    made = []
    for c in cosines:
        a, b = np.linalg.qr(rng.standard_normal((40, 2)))[0].T
        made.append(np.stack([a, c * a + np.sqrt(1 - c * c) * b]))
    return made


def by_torch(primary: np.ndarray, auxiliary: np.ndarray, eta: float) -> np.ndarray:
    return damper.combine(torch.as_tensor(primary), torch.as_tensor(auxiliary), eta).numpy()


def assert_close(result: Any, expected: np.ndarray, rtol: float = 2e-6) -> None:
    # XLA takes numbers below the smallest normal one for zero.
    expected = np.where(np.abs(expected) < np.finfo(np.float32).tiny, 0.0, expected)
    scale = np.abs(expected).max() or 1.0
    error = np.linalg.norm(np.asarray(result, np.float64) / scale - expected / scale)
    assert error <= rtol * np.linalg.norm(expected / scale)


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scale", [1e-28, 1e-10, 1.0, 1e10, 1e30])
@pytest.mark.parametrize("ratio", [1e-6, 1.0, 1e6])
def test_it_equals_the_pytorch_rule_at_every_scale(scale: float, ratio: float, eta: float) -> None:
    for pair in pairs():
        g_R, g_T = (
            (scale * pair[0]).astype(np.float32),
            (scale * ratio * pair[1]).astype(np.float32),
        )
        assert_close(damper_jax.combine(g_R, g_T, eta), by_torch(g_R, g_T, eta))


HOSTILE = {
    "no auxiliary": (1.0, 0.0),
    "no primary": (0.0, 1.0),
    "neither": (0.0, 0.0),
    "a tiny auxiliary": (1.0, 1e-39),
    "a tiny primary": (1e-39, 1.0),
    "an infinite auxiliary": (1.0, np.inf),
    "a NaN auxiliary": (1.0, np.nan),
    "a primary near overflow": (0.9 * LARGEST, 1.0),
    "both near overflow": (0.4 * LARGEST, 0.4 * LARGEST),
    "an auxiliary beyond overflow": (1.0, 0.9 * LARGEST),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pairs(name: str) -> None:
    first, second = HOSTILE[name]
    for pair in pairs((0.5, -0.5)):
        # The largest entry is 1, so that a factor near overflow stays within float32.
        g_R, g_T = (row / np.abs(row).max() for row in pair)
        with np.errstate(over="ignore", invalid="ignore"):
            g_R, g_T = (first * g_R).astype(np.float32), (second * g_T).astype(np.float32)
        assert_close(damper_jax.combine(g_R, g_T, 0.5), by_torch(g_R, g_T, 0.5))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_primary_is_returned_as_it_is(bad: float) -> None:
    g_R, g_T = np.float32([1.0, bad]), np.float32([1.0, 1.0])
    assert np.array_equal(damper_jax.combine(g_R, g_T), g_R, equal_nan=True)


def test_the_result_keeps_the_primary_where_there_is_nothing_to_add() -> None:
    g_R = np.float32([0.1, -0.2, 0.3])
    assert np.array_equal(damper_jax.combine(g_R, np.zeros_like(g_R)), g_R)


def test_pytrees_are_one_vector() -> None:
    pair = pairs((-0.7,))[0].astype(np.float32)
    trees = [{"w": row[:30].reshape(5, 6), "b": (row[30:39], row[39])} for row in pair]
    combined = damper_jax.combine(*trees, 0.5)
    flat = np.concatenate([combined["w"].ravel(), combined["b"][0], combined["b"][1][None]])
    assert_close(flat, by_torch(*pair, 0.5))


def test_half_precision_is_computed_in_float32() -> None:
    pair = pairs((-0.7,))[0]
    g_R, g_T = (jnp.asarray(1e-6 * row, jnp.bfloat16) for row in pair)
    combined = damper_jax.combine(g_R, g_T, 0.5)
    assert combined.dtype == jnp.bfloat16
    tensors = [torch.tensor(np.asarray(g, np.float32)).bfloat16() for g in (g_R, g_T)]
    expected = damper.combine(*tensors, 0.5).float().numpy()
    assert_close(combined, expected, rtol=4e-3)


def test_float64_where_jax_has_it() -> None:
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        for pair in pairs():
            g_R, g_T = jnp.asarray(pair[0]), jnp.asarray(1e3 * pair[1])
            combined = damper_jax.combine(g_R, g_T, 0.3)
            assert combined.dtype == jnp.float64
            assert_close(combined, by_torch(*map(np.array, (g_R, g_T)), 0.3), rtol=1e-13)


def test_ten_million_parameters() -> None:
    rng = np.random.default_rng(0)
    g_R = rng.standard_normal(10**7).astype(np.float32)
    g_T = -g_R + 1e-3 * rng.standard_normal(10**7).astype(np.float32)
    assert_close(damper_jax.combine(g_R, g_T, 0.5), by_torch(g_R, g_T, 0.5))


def test_a_population_under_vmap() -> None:
    stacked = np.stack(pairs()).astype(np.float32)
    eta = np.linspace(0, 1, len(stacked), dtype=np.float32)
    combined = jax.jit(jax.vmap(damper_jax.combine))(stacked[:, 0], stacked[:, 1], eta)
    expected = damper.combine(*torch.tensor(stacked).unbind(1), torch.tensor(eta)).numpy()
    for row, reference in zip(combined, expected, strict=True):
        assert_close(row, reference)


def test_chained_before_adam_it_trains_as_in_pytorch() -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal(8).astype(np.float32)
    optimizer = optax.chain(damper_jax.add_auxiliary(eta=0.4), optax.adam(1e-2))
    params, state = jnp.asarray(start), optimizer.init(jnp.asarray(start))
    weights = torch.tensor(start, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=1e-2)
    update = jax.jit(lambda g, s, p, a: optimizer.update(g, s, p, auxiliary=a))
    for _ in range(100):
        primary, auxiliary = rng.standard_normal((2, 8)).astype(np.float32)
        updates, state = update(primary, state, params, auxiliary)
        params = optax.apply_updates(params, updates)
        weights.grad = damper.combine(torch.tensor(primary), torch.tensor(auxiliary), 0.4)
        adam.step()
    np.testing.assert_allclose(params, weights.detach(), atol=1e-5)
    assert int(state[0].count) == 100


def test_the_report_is_that_of_pytorch() -> None:
    transformation = damper_jax.add_auxiliary(eta=0.3)
    for pair in (*pairs(), np.zeros((2, 40))):
        g_R, g_T = pair[0].astype(np.float32), (0.1 * pair[1]).astype(np.float32)
        _, state = transformation.update(g_R, transformation.init(g_R), auxiliary=g_T)
        weights = torch.zeros(40, requires_grad=True)
        losses = [(torch.tensor(g) * weights).sum() for g in (g_R, g_T)]
        report = damper.backward(*losses, [weights], eta=0.3)
        for name in ("cosine", "norm_ratio", "weight"):
            ours, theirs = getattr(state.report, name), getattr(report, name)
            assert float(ours) == pytest.approx(float(theirs), rel=1e-5, abs=1e-6), name
        assert bool(state.report.guard) == bool(report.guard)
        if abs(float(report.cosine)) > 1e-6:
            assert bool(state.report.conflict) == bool(report.conflict)


def test_eta_may_follow_a_schedule() -> None:
    g_R, g_T = pairs((-0.5,))[0].astype(np.float32)
    transformation = damper_jax.add_auxiliary(eta=optax.linear_schedule(0.0, 1.0, 4))
    state = transformation.init(g_R)
    for step in range(6):
        combined, state = transformation.update(g_R, state, auxiliary=0.01 * g_T)
        assert_close(combined, by_torch(g_R, 0.01 * g_T, min(step / 4, 1.0)))


def test_the_temporal_loss_is_that_of_pytorch() -> None:
    rng = np.random.default_rng(0)
    obs, next_obs = rng.standard_normal((2, 30, 3)).astype(np.float32)
    for mask in (None, rng.random(30) < 0.5, rng.random((30, 1)) < 0.5, np.zeros(30, bool)):
        ours = damper_jax.temporal_loss(jnp.tanh, obs, next_obs, mask)
        kept = None if mask is None else torch.tensor(mask)
        theirs = damper.temporal_loss(torch.tanh, torch.tensor(obs), torch.tensor(next_obs), kept)
        assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


def test_mistakes_get_one_sentence() -> None:
    g = np.ones(3, np.float32)
    transformation = damper_jax.add_auxiliary()
    with pytest.raises(DamperError, match="auxiliary must be given to update"):
        transformation.update(g, transformation.init(g))
    with pytest.raises(DamperError, match="their pytrees differ"):
        damper_jax.combine({"a": g}, {"b": g})
    with pytest.raises(DamperError, match=r"eta must be in \[0, 1\], but 2"):
        damper_jax.add_auxiliary(eta=2)
    with pytest.raises(DamperError, match="did you mean 'damper'"):
        damper_jax.combine(g, g, rule="dampr")


def test_another_rule_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def sum_of_units(stats: Any, eta: float) -> Any:
        return 0.0 * stats.n_R, eta * stats.n_R

    monkeypatch.setitem(damper_jax.RULES, "sum-of-units", sum_of_units)
    g_R, g_T = np.float32([3.0, 0.0]), np.float32([-4.0, 3.0])
    combined = damper_jax.combine(g_R, g_T, 1.0, rule="sum-of-units")
    np.testing.assert_allclose(combined, [3 - 3 * 0.8, 3 * 0.6], rtol=1e-6)


def test_the_page_s_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    exec("\n".join(code), {})
    assert "cosine" in capsys.readouterr().out
