"""A mistake raises one sentence: which argument, what it must be, what was given, what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from damper import DamperError, combine
from damper.rules import RULES, settings_of
from tests.rules.references import loss_argument

ONES = torch.ones(2, 3)
each_rule = pytest.mark.parametrize("name", RULES)


@pytest.mark.parametrize(
    ("eta", "given"),
    [
        (-0.1, "-0.1"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (torch.tensor(1.25), "1.25"),
        (torch.tensor([0.5, -2.0]), "-2"),
        (torch.tensor([float("nan"), 0.5]), "nan"),
    ],
)
def test_eta_outside_its_range(eta: Any, given: str) -> None:
    for name in ("damper", "unconditional-sum", "unconditional-projection"):
        with pytest.raises(ValueError, match=rf"^eta must be in \[0, 1\], but {given} was given: "):
            RULES[name](ONES, ONES, eta=eta)
    with pytest.raises(ValueError, match=rf"^eta must be in \[0, 1\], but {given} was given: "):
        combine(ONES, ONES, eta)


@pytest.mark.parametrize(
    ("name", "setting", "bounds"),
    [
        ("scalarization", "weight", "finite and at least 0"),
        ("dynamic-barrier", "weight", "finite and at least 0"),
        ("dynamic-barrier", "beta", "finite and at least 0"),
        ("gcr-ppo", "weight", "finite and at least 0"),
        ("bloop", "weight", "finite and at least 0"),
        ("bloop", "rate", r"in \[0, 1\]"),
        ("cagrad", "c", r"in \[0, 1\]"),
        ("metabalance", "r", r"in \[0, 1\]"),
        ("metabalance", "beta", r"in \[0, 1\]"),
        ("damper-fading", "full_change", "finite and at least 1e-06"),
    ],
)
@pytest.mark.parametrize(
    "bad", [-1.0, float("nan"), float("inf"), torch.tensor([0.5, -1.0]), torch.tensor(torch.inf)]
)
def test_other_settings_outside_their_range(name: str, setting: str, bounds: str, bad: Any) -> None:
    with pytest.raises(DamperError, match=rf"^{setting} must be {bounds}, but .+ was given: "):
        RULES[name](ONES, ONES, **loss_argument(name), **{setting: bad})


def test_every_number_among_the_settings_is_checked() -> None:
    for name in RULES:
        for setting, default in settings_of(name).items():
            if isinstance(default, float):
                with pytest.raises(DamperError, match=rf"^{setting} must be "):
                    RULES[name](ONES, ONES, **loss_argument(name), **{setting: -1.0})


@pytest.mark.parametrize("bad", ["1.0", None, [0.5, 0.5], 1j, torch.tensor([0.5, 0.5j])])
def test_a_setting_that_is_no_number(bad: Any) -> None:
    with pytest.raises(DamperError, match=r"^eta must be a number or a tensor, but .+ was given: "):
        combine(ONES, ONES, bad)


@pytest.mark.parametrize(
    ("name", "setting"), [("cosine-gating", "weighted"), ("mgda", "normalize")]
)
@pytest.mark.parametrize("bad", ["False", 0.5, torch.tensor([True, False])])
def test_a_switch_that_is_neither_on_nor_off(name: str, setting: str, bad: Any) -> None:
    with pytest.raises(
        DamperError,
        match=rf"^{setting} must be True or False, the same for all agents, but .+ was given",
    ):
        RULES[name](ONES, ONES, **{setting: bad})


@pytest.mark.parametrize("shape", [(3,), (2, 1), (1, 2), (4, 2)])
def test_a_setting_that_does_not_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        DamperError, match=r"^eta must broadcast over the leading axes \(2,\), but has shape "
    ):
        combine(ONES, ONES, torch.full(shape, 0.5))


@each_rule
def test_shapes_that_differ(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"^auxiliary must have primary's shape \(2, 3\), but has \(3,\): "
    ):
        RULES[name](ONES, torch.ones(3), **loss_argument(name))


@each_rule
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_dtypes_without_a_gradient(name: str, dtype: torch.dtype) -> None:
    bad = torch.ones(2, 3, dtype=dtype)
    with pytest.raises(
        ValueError, match=rf"^primary must have a floating-point dtype, but has {dtype}: "
    ):
        RULES[name](bad, bad, **loss_argument(name))
    with pytest.raises(
        ValueError, match=rf"^auxiliary must have a floating-point dtype, but has {dtype}: "
    ):
        RULES[name](ONES, bad, **loss_argument(name))


@each_rule
def test_sparse_gradients(name: str) -> None:
    for pair in ((ONES.to_sparse(), ONES.to_sparse()), (ONES, ONES.to_sparse())):
        with pytest.raises(
            DamperError,
            match=r"^(primary|auxiliary) must be dense, but its layout is torch.sparse_coo: ",
        ):
            RULES[name](*pair, **loss_argument(name))


@each_rule
def test_dtypes_that_differ(name: str) -> None:
    with pytest.raises(
        DamperError,
        match=r"^auxiliary must have primary's dtype torch.float32, but has torch.float64",
    ):
        RULES[name](ONES, ONES.double(), **loss_argument(name))


@each_rule
def test_devices_that_differ(name: str) -> None:
    with pytest.raises(
        DamperError, match=r"^auxiliary must be on primary's device cpu, but is on meta: "
    ):
        RULES[name](ONES, ONES.to("meta"), **loss_argument(name))


@each_rule
@pytest.mark.parametrize("bad", [torch.tensor(1.0), torch.ones(2, 0)])
def test_gradients_without_entries(name: str, bad: torch.Tensor) -> None:
    with pytest.raises(
        DamperError, match=r"^primary must have shape \[..., n\] with n at least 1, but has \("
    ):
        RULES[name](bad, bad, **loss_argument(name))


@each_rule
def test_what_is_no_tensor(name: str) -> None:
    with pytest.raises(DamperError, match=r"^primary must be a tensor, not list: "):
        RULES[name]([1.0, 2.0], ONES, **loss_argument(name))
