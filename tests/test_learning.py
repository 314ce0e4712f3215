"""Learning where the answer is known: Pendulum-v1 is solved at -150, unsolved at -1200."""

from __future__ import annotations

import pytest

import damper

SETTINGS = {
    "steps": 20_000,
    "seeds": (0, 1, 2, 3, 4),
    "net_arch": (128, 128),
    "learning_starts": 500,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "batch_size": 128,
    "progress": False,
}


def evaluated(backbone: str, method: str, out) -> dict[str, float]:
    """Mean return and smoothness after 20,000 steps."""
    run = damper.train(
        "Pendulum-v1", backbone, method, out=out / f"{backbone}-{method}", **SETTINGS
    )
    assert run.manifest["frozen"] == {}
    summary = damper.evaluate(run).summary()["all"]
    return {name: summary[name]["mean"] for name in ("return", "sm", "mean_change")}


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_plain_and_damper_learn_and_damper_is_smoother(backbone, tmp_path):
    plain, smooth = (evaluated(backbone, method, tmp_path) for method in ("plain", "damper"))
    assert plain["return"] > -250
    assert smooth["return"] > -250
    if backbone == "td3":  # SAC's own mean action is smooth already at this size
        assert smooth["mean_change"] < plain["mean_change"]
        assert smooth["sm"] < 0.5 * plain["sm"]
