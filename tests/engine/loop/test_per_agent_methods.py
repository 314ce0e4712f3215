"""Agents with different rules in one population: each learns what it would learn alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from damper.engine.loop.trainer import Trainer
from damper.engine.settings import Settings, population_settings
from damper.errors import DamperError
from damper.methods import find_method
from damper.seed_groups import group_by_settings
from tests.engine import small

AGENTS = [
    ("plain", 0, {}),
    ("damper", 0, {"eta": 0.3}),
    ("damper", 1, {}),
    ("unconditional-sum", 0, {}),
    ("pegrad", 2, {}),
]


def settings(method: str, seed: int, **given: object) -> Settings:
    return small.settings("td3", method, seeds=(seed,), dtype="float64", steps=120, **given)


def test_each_agent_learns_what_it_learns_alone(tmp_path: Path) -> None:
    alone = [settings(method, seed, **own) for method, seed, own in AGENTS]
    together = population_settings(alone)
    assert together.method == "plain,damper,unconditional-sum,pegrad"
    run = Trainer(together, tmp_path / "together").train()
    for index, one in enumerate(alone):
        mine, theirs = run.policy(index), Trainer(one, tmp_path / str(index)).train().policy()
        torch.testing.assert_close(mine.flat_params, theirs.flat_params, rtol=1e-6, atol=1e-7)
        assert mine.info.method == one.method and mine.info.seed == one.seeds[0]
        assert mine.info.settings.get("eta", 1.0) == AGENTS[index][2].get("eta", 1.0)
    policies = [run.policy(index).flat_params for index in (0, 1, 3)]  # of one seed
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(policies)), "rules matter"


def test_agents_that_differ_in_nothing_but_their_seed_need_no_table() -> None:
    made = population_settings([settings("damper", seed) for seed in (4, 2)])
    assert made.table == () and made.seeds == (4, 2) and made.agents() == [{"seed": 4}, {"seed": 2}]


def test_a_value_that_was_not_given_is_the_methods_own() -> None:
    made = population_settings([settings("damper", 0), settings("damper", 0, eta=0.5)])
    assert [row["eta"] for row in made.agents()] == [1.0, 0.5]


@pytest.mark.parametrize(
    "names", ["damper,caps", "plain,pave", "damper,damper+grad-caps", "plain,plain"]
)
def test_methods_with_other_losses_are_refused(names: str) -> None:
    with pytest.raises(
        DamperError, match="methods of one population must have the same losses and differ only in"
    ):
        find_method(names)


def test_rows_of_tables_name_the_method() -> None:
    agents = population_settings(
        [settings(method, seed, **own) for method, seed, own in AGENTS]
    ).agents()
    assert group_by_settings(agents) == {
        "plain": [0],
        "damper eta=0.3": [1],
        "damper eta=1": [2],
        "unconditional-sum eta=1": [3],
        "pegrad": [4],
    }
