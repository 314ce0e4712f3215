"""MetaBalance: averages of norms, over the whole gradient or per tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from damper import DamperError
from damper.rules.metabalance import metabalance
from tests.rules.references import pairs


def test_two_golden_steps() -> None:
    # 1. n_R = 4, n_T = 2: averages 0.4 and 0.2, ratio 2, so g_T times 0.7 * 2 + 0.3 = 1.7.
    g, state = metabalance(torch.tensor([4.0, 0.0]), torch.tensor([0.0, 2.0]))
    assert g.tolist() == pytest.approx([4, 3.4])
    assert [float(m) for m in state] == pytest.approx([0.4, 0.2])
    # 2. n_R = 1, n_T = 10: averages 0.46 and 1.18, so g_T times 0.7 * 23/59 + 0.3.
    g, state = metabalance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 10.0]), state)
    assert g.tolist() == pytest.approx([1, 3 + 7 * 23 / 59])
    assert [float(m) for m in state] == pytest.approx([0.46, 1.18])


def test_sizes_balance_each_part_by_itself() -> None:
    g_R, g_T = pairs(6, 9)
    state = None
    parts: list[tuple[torch.Tensor, object]] = [(g_R[:, :2], None), (g_R[:, 2:], None)]
    for step in range(3):
        scaled = g_T * (step + 1.0)
        g, state = metabalance(g_R, scaled, state, sizes=(2, 7))
        slices = (slice(0, 2), slice(2, 9))
        parts = [
            metabalance(g_R[:, s], scaled[:, s], old)
            for s, (_, old) in zip(slices, parts, strict=True)
        ]
        assert torch.equal(g, torch.cat([part[0] for part in parts], 1))
        for k, (_, own) in enumerate(parts):
            assert torch.equal(torch.stack(list(state))[..., k], torch.stack(list(own))[..., 0])


def test_r_interpolates_between_the_plain_sum_and_equal_norms() -> None:
    g_R, g_T = pairs(20, 6)
    torch.testing.assert_close(metabalance(g_R, g_T, r=0.0)[0], g_R + g_T, rtol=1e-12, atol=1e-13)
    added = metabalance(g_R, g_T, r=1.0)[0] - g_R
    torch.testing.assert_close(added.norm(dim=-1), g_R.norm(dim=-1), rtol=1e-12, atol=0)


def test_averages_wait_out_what_cannot_be_combined() -> None:
    g_R, g_T = pairs(4, 5)
    _, state = metabalance(g_R, g_T)
    broken_R, broken_T = g_R.clone(), g_T.clone()
    broken_R[0, 0], broken_T[1, 0] = torch.nan, torch.inf
    broken_T[2] = 0.0
    g, new = metabalance(broken_R, broken_T, state)
    for old_average, new_average in zip(state, new, strict=True):
        assert torch.equal(new_average[:3], old_average[:3])
        assert (new_average[3] != old_average[3]).all()
    assert torch.equal(g[1:3], g_R[1:3])


@pytest.mark.parametrize(
    ("sizes", "given"), [((2, 2), r"\[2, 2\]"), ((5, 0), r"\[5, 0\]"), ((), r"\[\]")]
)
def test_sizes_that_do_not_cover_the_gradient_are_refused(
    sizes: tuple[int, ...], given: str
) -> None:
    with pytest.raises(
        DamperError, match=rf"sizes must be positive and add up to .* 5, but {given} was given: "
    ):
        metabalance(torch.ones(5), torch.ones(5), sizes=sizes)


def test_a_state_of_another_shape_is_refused() -> None:
    _, state = metabalance(torch.ones(5), torch.ones(5))
    with pytest.raises(
        DamperError,
        match=r"state must hold two averages of shape \(2,\), but holds \(1,\) and \(1,\)",
    ):
        metabalance(torch.ones(5), torch.ones(5), state, sizes=(2, 3))
    with pytest.raises(
        DamperError, match=r"state must hold two averages of shape \(1,\), but is a Tensor: "
    ):
        metabalance(torch.ones(5), torch.ones(5), torch.ones(5))  # type: ignore[arg-type]

    with pytest.raises(
        DamperError,
        match=r"state must hold two averages of shape \(1,\), but holds \(1,\) and \(4,\)",
    ):
        metabalance(torch.ones(5), torch.ones(5), (state.m_R, torch.ones(4)))


def test_a_memory_comes_back_from_a_file(tmp_path: Path) -> None:
    g_R, g_T = pairs(4, 5)
    _, state = metabalance(g_R, g_T)
    torch.save(tuple(state), tmp_path / "memory.pt")
    loaded = torch.load(
        tmp_path / "memory.pt"
    )  # weights only: torch refuses a class that it does not know
    for mine, other in zip(
        metabalance(g_T, g_R, loaded)[1], metabalance(g_T, g_R, state)[1], strict=True
    ):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("sizes", [5, "ab", [None], [2.9, 3.9]])
def test_sizes_that_are_no_numbers_are_refused(sizes: Any) -> None:
    with pytest.raises(
        DamperError,
        match=r"sizes must be a list of whole numbers, one per part, but .+ was given: ",
    ):
        metabalance(torch.ones(5), torch.ones(5), sizes=sizes)
