"""The temporal loss: the paper's equation, its mask, its gradient through both states."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import damper
from damper import DamperError
from damper.interface import Batch
from damper.losses import temporal as module
from damper.losses.temporal import masked_mean, temporal
from damper.losses.temporal_ramp import temporal_ramp


def double(obs: Tensor) -> Tensor:
    return 2.0 * obs


OBS = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
NEXT_OBS = torch.tensor([[1.0, 1.0], [1.0, 3.0], [2.0, 0.5]])
# With μ(s) = 2 s the squared distances are 4 (1 + 1) = 8, 4 (0 + 4) = 16 and 4 (0 + 0.25) = 1.


def test_golden_rows() -> None:
    assert damper.temporal_loss(double, OBS, NEXT_OBS).item() == pytest.approx(25 / 3)
    done = torch.tensor([False, True, False])
    assert damper.temporal_loss(double, OBS, NEXT_OBS, mask=~done).item() == pytest.approx(9 / 2)


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_masks_of_any_usual_form(column: bool, dtype: torch.dtype) -> None:
    mask = torch.tensor([1, 1, 0], dtype=dtype)
    loss = damper.temporal_loss(double, OBS, NEXT_OBS, mask=mask.unsqueeze(1) if column else mask)
    assert loss.item() == pytest.approx(12.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_holds_a_batch_of_any_size(dtype: torch.dtype) -> None:
    obs = torch.zeros(70_000, 2, dtype=dtype, requires_grad=True)
    loss = damper.temporal_loss(
        double, obs, obs.detach() + 1.0, mask=torch.ones(70_000, dtype=torch.bool)
    )
    loss.backward()
    assert loss.item() == 8.0 and obs.grad is not None and bool(obs.grad.all())


def test_nothing_kept_is_zero_with_zero_gradient() -> None:
    layer = nn.Linear(2, 1)
    loss = damper.temporal_loss(layer, OBS, NEXT_OBS, mask=torch.zeros(3, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0.0
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().max() == 0


def calls(mask: Tensor, count: int = 400) -> int:
    """Warnings in so many calls with this mask, by a process that has made none before."""
    with warnings.catch_warnings(record=True) as seen, pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(module, "_empty_masks", module._EmptyMasks())
        obs = torch.randn(4, 2)
        for _ in range(count):
            damper.temporal_loss(lambda s: s, obs, obs, mask)
    assert all("keep none, so that the temporal loss is 0" in str(w.message) for w in seen)
    return len(seen)


def test_masks_that_keep_nothing_are_worth_one_warning() -> None:
    done = torch.zeros(4, dtype=torch.bool)
    assert calls(done) == calls(done.float().unsqueeze(-1), 4000) == 1
    assert calls(done, 100) == calls(~done) == calls(torch.tensor([0.0, 0.0, 1.0, 0.0])) == 0


def test_masks_are_read_rarely_and_only_where_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Tensor] = []
    read = Tensor.any
    monkeypatch.setattr(Tensor, "any", lambda self: reads.append(self) or read(self))
    assert calls(torch.zeros(4)) == 1 and len(reads) == 3
    reads.clear()
    empty = torch.zeros(3, 4)
    masks = module._EmptyMasks()
    monkeypatch.setattr(module, "_empty_masks", masks)

    def loss(mask: Tensor) -> Tensor:
        return damper.temporal_loss(lambda s: s, torch.ones(4, 2), torch.ones(4, 2), mask)

    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    for _ in range(400):
        torch.func.vmap(loss)(empty)
        compiled(empty[0])
    assert not reads and masks.calls == 400


def test_a_population_gets_one_value_per_agent() -> None:
    obs, next_obs = torch.stack([OBS, 3 * OBS]), torch.stack([NEXT_OBS, 3 * NEXT_OBS])
    assert damper.temporal_loss(double, obs, next_obs).tolist() == pytest.approx([25 / 3, 75.0])
    mask = torch.tensor([[True, False, False], [False, False, False]])
    assert damper.temporal_loss(double, obs, next_obs, mask).tolist() == pytest.approx([8.0, 0.0])


def test_the_gradient_flows_through_both_states() -> None:
    w = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    s, s_next = (
        torch.tensor([[1.0]], dtype=torch.float64),
        torch.tensor([[4.0]], dtype=torch.float64),
    )
    damper.temporal_loss(lambda obs: w * obs**2, s, s_next).backward()
    # L = (16 w − w)² = 225 w², so dL/dw = 450 w; through s' alone it would be 480 w.
    assert w.grad is not None
    assert w.grad.item() == pytest.approx(1350.0)


def test_the_gradient_against_finite_differences() -> None:
    torch.manual_seed(0)
    weight = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)

    def loss(matrix: Tensor) -> Tensor:
        obs, next_obs = OBS.double(), NEXT_OBS.double()
        return damper.temporal_loss(
            lambda x: (x @ matrix).tanh(), obs, next_obs, torch.tensor([True, True, False])
        )

    assert torch.autograd.gradcheck(loss, weight)


def batch(terminated: Tensor) -> Batch:
    fields = {name: torch.zeros(3) for name in Batch._fields}
    return Batch(**(fields | {"obs": OBS, "next_obs": NEXT_OBS, "terminated": terminated}))


def test_as_a_method_it_leaves_out_terminations_and_may_leave_out_the_square() -> None:
    ended = torch.tensor([0.0, 1.0, 0.0])
    assert temporal(double, batch(ended), {}).item() == pytest.approx(9 / 2)
    assert temporal(double, batch(ended), {}, mask_terminal=False).item() == pytest.approx(25 / 3)
    assert temporal(double, batch(ended), {}, squared=False).item() == pytest.approx(
        (8**0.5 + 1) / 2
    )


def test_actions_are_compared_in_the_policy_s_units_or_the_environment_s() -> None:
    scaled = batch(torch.zeros(3))._replace(action_scale=torch.tensor([2.0, 1.0]))
    # Squared distances 4 (4 + 1) = 20, 4 (0 + 4) = 16 and 4 (0 + 0.25) = 1.
    assert temporal(double, scaled, {}, units="environment").item() == pytest.approx(37 / 3)
    assert temporal(double, scaled, {}).item() == pytest.approx(25 / 3)
    ramp = temporal_ramp(double, scaled._replace(progress=0.5), {}, weight=2.0, units="environment")
    assert ramp.item() == pytest.approx(37 / 3)
    with pytest.raises(
        DamperError, match=r"^units must be 'policy' or 'environment', but 'newton' was given"
    ):
        temporal.check({"units": "newton"})


def test_without_the_square_a_still_policy_has_a_gradient_of_zero() -> None:
    w = torch.ones(2, 1, requires_grad=True)
    still = batch(torch.zeros(3))._replace(next_obs=OBS)
    temporal(lambda obs: obs @ w, still, {}, squared=False).backward()
    assert w.grad is not None
    assert w.grad.abs().max() == 0


def test_masked_mean_of_nothing_is_zero() -> None:
    assert masked_mean(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])).item() == 0.0


def test_mistakes_are_told() -> None:
    with pytest.raises(
        DamperError,
        match=r"^policy must return actions \[\.\.\., batch, action\] .* returned \(3,\)",
    ):
        damper.temporal_loss(lambda obs: obs.sum(-1), OBS, NEXT_OBS)
    with pytest.raises(
        DamperError, match=r"^policy must .*\(3, 2\) for obs and \(2, 2\) for next_obs: "
    ):
        damper.temporal_loss(double, OBS, NEXT_OBS[:2])
    with pytest.raises(
        DamperError, match=r"^mask must have the batch's shape \(3,\), but has \(2,\): "
    ):
        damper.temporal_loss(double, OBS, NEXT_OBS, torch.ones(2))
    with pytest.raises(
        DamperError,
        match=r"^policy must return the actions as one tensor, but returned a tuple: wrap it",
    ):
        damper.temporal_loss(lambda obs: (obs, obs), OBS, NEXT_OBS)  # type: ignore[arg-type,return-value]
    with pytest.raises(DamperError, match=r"^mask must be a tensor, but a list was given: "):
        damper.temporal_loss(double, OBS, NEXT_OBS, [True, True, False])  # type: ignore[arg-type]
    with pytest.raises(
        DamperError,
        match=r"^policy must be a function .*, but a Tensor was given: pass the actor itself",
    ):
        damper.temporal_loss(double(OBS), OBS, NEXT_OBS)  # type: ignore[arg-type]
    with pytest.raises(
        DamperError,
        match=r"^policy must return actions of a floating-point dtype, .* torch.int64: ",
    ):
        damper.temporal_loss(lambda obs: obs.long(), OBS, NEXT_OBS)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_integer_flags_are_refused_since_their_complement_is_no_logical_not(
    dtype: torch.dtype,
) -> None:
    done = torch.tensor([0, 1, 0], dtype=dtype)
    sentence = (
        rf"^mask must be boolean or floating-point, but is {dtype}, for which .*: pass done == 0"
    )
    with pytest.raises(DamperError, match=sentence):
        damper.temporal_loss(double, OBS, NEXT_OBS, mask=~done)  # 255 and 254, or -1 and -2
    assert damper.temporal_loss(double, OBS, NEXT_OBS, mask=done == 0).item() == pytest.approx(
        9 / 2
    )
