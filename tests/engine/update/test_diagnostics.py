"""What the log shows of updates: a group's names reach the metrics where they are computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from damper.engine.gradients import Objectives
from damper.engine.loop.trainer import Trainer
from damper.engine.update import diagnostics as module
from damper.engine.update.diagnostics import (
    ACTOR_DIAGNOSTICS,
    AUXILIARY_DIAGNOSTICS,
    CRITIC_DIAGNOSTICS,
    RULE_DIAGNOSTICS,
    Diagnostics,
)
from damper.methods import METHODS
from damper.rules import GradientReport
from tests.engine import small


@pytest.mark.parametrize(
    ("method", "groups"),
    [
        ("plain", (CRITIC_DIAGNOSTICS, ACTOR_DIAGNOSTICS)),
        ("caps", (CRITIC_DIAGNOSTICS, ACTOR_DIAGNOSTICS, AUXILIARY_DIAGNOSTICS)),
        (
            "damper",
            (CRITIC_DIAGNOSTICS, ACTOR_DIAGNOSTICS, AUXILIARY_DIAGNOSTICS, RULE_DIAGNOSTICS),
        ),
    ],
)
def test_a_line_has_the_groups_of_its_method(
    tmp_path: Path, method: str, groups: tuple[tuple[str, ...], ...]
) -> None:
    (line,) = (
        Trainer(small.settings("td3", method, steps=60, log_every=60), tmp_path / "run")
        .train()
        .metrics()
    )
    every = {*CRITIC_DIAGNOSTICS, *ACTOR_DIAGNOSTICS, *AUXILIARY_DIAGNOSTICS, *RULE_DIAGNOSTICS}
    assert every & line.keys() == {name for group in groups for name in group}


def test_another_diagnostic_is_a_name_here_and_a_value_where_it_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, critic = Objectives.primary_loss, Objectives.td_loss

    def with_action_size(self, given, policy, values):  # type: ignore[no-untyped-def]
        loss, logs = primary(self, given, policy, values)
        return loss, {**logs, "action_size": policy(given.batch.obs).abs().mean((-2, -1))}

    def with_target_size(self, given, values, y):  # type: ignore[no-untyped-def]
        loss, logs = critic(self, given, values, y)
        return loss, {**logs, "target_size": y.abs().flatten(1).mean(1)}

    monkeypatch.setattr(Objectives, "primary_loss", with_action_size)
    monkeypatch.setattr(Objectives, "td_loss", with_target_size)
    monkeypatch.setattr(module, "ACTOR_DIAGNOSTICS", (*ACTOR_DIAGNOSTICS, "action_size"))
    monkeypatch.setattr(module, "CRITIC_DIAGNOSTICS", (*CRITIC_DIAGNOSTICS, "target_size"))
    (line,) = Trainer(small.settings(steps=60, log_every=60), tmp_path / "run").train().metrics()
    assert all(0 < size < 1 for size in line["action_size"]) and all(
        size > 0 for size in line["target_size"]
    )


def test_a_rule_s_are_the_fields_of_its_report() -> None:
    assert (*RULE_DIAGNOSTICS, "state") == GradientReport._fields


def test_means_are_over_the_steps_of_their_kind_and_start_anew() -> None:
    sums = Diagnostics(METHODS["plain"], 2, torch.device("cpu"))
    for value in (1.0, 2.0, 6.0):
        logs = dict.fromkeys(CRITIC_DIAGNOSTICS, torch.tensor([value, 0.0]))
        sums.add(logs, of_actor=False)
    logs = dict.fromkeys(ACTOR_DIAGNOSTICS, torch.tensor([4.0, 5.0]))
    sums.add({**logs, "log_prob": torch.zeros(2, 8)}, of_actor=True)
    assert sums.pop_means() == {name: [3.0, 0.0] for name in CRITIC_DIAGNOSTICS} | {
        name: [4.0, 5.0] for name in ACTOR_DIAGNOSTICS
    }
    assert sums.pop_means() == {}
