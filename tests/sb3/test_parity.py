"""Our update is SB3's where the method does nothing, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from damper.interface import Loss
from damper.losses.temporal import temporal
from damper.methods import Method
from damper.sb3.common.fused import fused
from tests.sb3.models import NAMES, OURS, THEIRS, make, optimizer, quiet, taken, weights

SILENT = Method(
    "silent", actor=Loss(lambda *inputs, **k: 0.0 * temporal(*inputs, **k)), rule="damper"
)


@pytest.mark.parametrize(
    ("backbone", "steps"),
    [("td3", 400), ("sac", 400), ("ddpg", 150), ("tqc", 150), ("ppo", 400)]
    + [pytest.param(name, 2000, marks=pytest.mark.slow) for name in NAMES],
)
@pytest.mark.parametrize("method", ["plain", "silent"])
def test_plain_and_silenced_equal_sb3_bit_for_bit(backbone, steps, method, request):
    """Plain as it is; an auxiliary loss of zero without what is fast at the price of rounding."""
    if method == "silent":
        request.getfixturevalue("exact")
    theirs = make(THEIRS[backbone]).learn(steps)
    ours = make(OURS[backbone], method=SILENT if method == "silent" else method).learn(steps)
    assert torch.equal(weights(ours), weights(theirs))
    moments = (optimizer(model).state.values() for model in (ours, theirs))
    for mine, other in zip(*moments, strict=True):
        assert torch.equal(mine["exp_avg"], other["exp_avg"])
        assert torch.equal(mine["exp_avg_sq"], other["exp_avg_sq"])
    assert np.array_equal(taken(ours), taken(theirs))


@pytest.mark.parametrize("backbone", NAMES)
def test_fast_steps_differ_from_sb3s_by_rounding(backbone):
    ours, theirs = (
        quiet(make(kind, **settings)).learn(60)
        for kind, settings in ((OURS[backbone], {"method": SILENT}), (THEIRS[backbone], {}))
    )
    difference = weights(ours) - weights(theirs)
    assert 0 < difference.norm() <= 1e-6 * weights(theirs).norm()


def test_only_our_own_steps_on_a_cpu_with_pytorch_s_default_adam_are_fused():
    class Own(torch.optim.Adam):
        pass

    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    for adam, expected in (
        (torch.optim.Adam([parameter]), True),
        (torch.optim.AdamW([parameter]), True),
        (torch.optim.Adam([parameter], foreach=True), None),
        (torch.optim.Adam([parameter], fused=False), False),
        (torch.optim.Adam([parameter], differentiable=True), None),
        (Own([parameter]), None),
        (torch.optim.RMSprop([parameter]), None),
    ):
        before = adam.param_groups[0].get("fused")
        with fused(adam):
            assert adam.param_groups[0].get("fused") is expected
        assert adam.param_groups[0].get("fused") is before
    seen = []
    model = make(OURS["td3"], method="plain")
    model.critic.optimizer.register_step_pre_hook(
        lambda adam, *_: seen.append(adam.param_groups[0]["fused"])
    )
    model.learn(60)
    assert seen and set(seen) == {None}


@pytest.mark.parametrize("backbone", NAMES)
def test_damper_differs_from_sb3(backbone):
    steps = 120
    assert not torch.equal(
        weights(make(OURS[backbone]).learn(steps)), weights(make(THEIRS[backbone]).learn(steps))
    )


@pytest.mark.parametrize(
    ("backbone", "settings"),
    [
        ("td3", {"policy_delay": 1, "gradient_steps": 2, "target_policy_noise": 0.3, "n_steps": 3}),
        ("sac", {"ent_coef": 0.2, "target_update_interval": 2, "gradient_steps": 3}),
        (
            "sac",
            {
                "use_sde": True,
                "use_sde_at_warmup": True,
                "sde_sample_freq": 4,
                "ent_coef": "auto_0.1",
            },
        ),
        (
            "sac",
            {"policy_kwargs": {"share_features_extractor": True, "n_critics": 3, "net_arch": [8]}},
        ),
        (
            "td3",
            {"policy_kwargs": {"share_features_extractor": True, "n_critics": 1, "net_arch": [8]}},
        ),
        (
            "ddpg",
            {"gradient_steps": 2, "n_steps": 3, "policy_kwargs": {"n_critics": 2, "net_arch": [8]}},
        ),
        ("tqc", {"top_quantiles_to_drop_per_net": 4, "use_sde": True, "ent_coef": 0.1}),
        (
            "tqc",
            {
                "n_steps": 3,
                "policy_kwargs": {
                    "share_features_extractor": True,
                    "n_critics": 3,
                    "net_arch": [8],
                },
            },
        ),
    ],
)
def test_plain_equals_sb3_under_other_settings(backbone, settings):
    theirs = make(THEIRS[backbone], **settings).learn(150)
    assert torch.equal(
        weights(make(OURS[backbone], method="plain", **settings).learn(150)), weights(theirs)
    )


@pytest.mark.parametrize("backbone", NAMES)
def test_the_native_log_is_sb3s(backbone):
    logs = []
    for kind, method in ((OURS[backbone], {"method": "plain"}), (THEIRS[backbone], {})):
        logger = quiet(make(kind, **method)).learn(60).logger
        logs.append(
            {
                name: value
                for name, value in logger.name_to_value.items()
                if name.startswith("train/")
            }
        )
    assert logs[0].keys() == logs[1].keys()
    for name, value in logs[1].items():
        assert logs[0][name] == pytest.approx(value, rel=1e-6), name
