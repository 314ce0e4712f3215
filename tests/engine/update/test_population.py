"""Agents of a population do not touch each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from damper.engine.networks.layout import weight_list
from damper.engine.update.population import Population
from damper.methods import METHODS
from damper.rules import RULES, state_tensors
from tests.engine import small

SEEDS = (5, 3, 8, 1, 9, 2, 7, 4)
WATCHED = {torch.float32: 1, torch.float64: 3}
UPDATES = 100
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
HYPER = {
    "learning_rate": [1e-3 * 2**-j for j in range(8)],
    "gamma": [0.9 + 0.01 * j for j in range(8)],
    "tau": [0.005 * (j + 1) for j in range(8)],
    "ent_coef": [0.1 * (j + 1) for j in range(8)],
}
OWN: dict[str, dict[str, list[float]]] = {
    "damper": {"eta": [j / 7 for j in range(8)]},
    "scalarization": {"weight": [10.0 ** (j - 4) for j in range(8)]},
    "bloop": {"rate": [0.1 * (j + 1) for j in range(8)]},
    "metabalance": {"r": [j / 7 for j in range(8)]},
    "asap": {"lambda_P": [0.5 * j for j in range(8)]},
    "pave": {"lambda_1": [0.1 * j for j in range(8)]},
}
BACKBONES = [("td3", False), ("sac", False), ("sac", True)]
CASES = [
    *(
        (backbone, automatic, method)
        for backbone, automatic in BACKBONES
        for method in ("plain", "damper")
    ),
    *(
        ("td3", False, method)
        for method in ("scalarization", "bloop", "metabalance", "asap", "pave")
    ),
    *(("sac", True, method) for method in ("scalarization", "metabalance")),
]
# Every other method with both backbones; `tests/test_methods.py` has a shorter round of them for
# every day.
REST = [
    pytest.param(case, marks=pytest.mark.slow)
    for case in (
        (backbone, backbone == "sac", method) for method in METHODS for backbone in ("td3", "sac")
    )
    if case not in CASES
]


def build(
    case: tuple[str, bool, str],
    dtype: torch.dtype,
    members: Sequence[int] = range(8),
    fused: bool = False,
) -> Population:
    backbone, automatic, method = case
    hparams = {name: [values[j] for j in members] for name, values in HYPER.items()}
    own = {name: [values[j] for j in members] for name, values in OWN.get(method, {}).items()}
    return small.population(
        backbone, method, [SEEDS[j] for j in members], dtype, automatic, hparams, own, fused
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", [*CASES, *REST], ids=str)
def test_a_member_equals_the_same_agent_alone(
    case: tuple[str, bool, str], dtype: torch.dtype
) -> None:
    together = build(case, dtype)
    small.train(together, SEEDS, UPDATES)
    j = WATCHED[dtype]
    alone = build(case, dtype, (j,))
    start = {name: value.clone() for name, value in alone.state().items()}
    small.train(alone, (SEEDS[j],), UPDATES)
    assert set(together.state()) == set(alone.state())
    for name in ("actor", "critic", "critic_target"):
        assert not torch.equal(alone.state()[name], start[name]), "something was learned"
    for name in together.state():
        for ours, theirs in zip(
            small.pieces(together, name, j), small.pieces(alone, name, 0), strict=True
        ):
            assert (ours - theirs).norm() <= TOLERANCE[dtype] * theirs.norm(), name


@pytest.mark.parametrize(
    "case", [("td3", False, "damper"), ("td3", False, "pave"), ("sac", True, "asap")], ids=str
)
def test_a_member_equals_the_same_agent_alone_by_shared_forward_passes(
    case: tuple[str, bool, str],
) -> None:
    together, alone = (
        build(case, torch.float64, members, fused=True) for members in (range(8), (3,))
    )
    small.train(together, SEEDS, 20)
    small.train(alone, SEEDS[3:4], 20)
    for name in together.state():
        for ours, theirs in zip(
            small.pieces(together, name, 3), small.pieces(alone, name, 0), strict=True
        ):
            assert (ours - theirs).norm() <= TOLERANCE[torch.float64] * theirs.norm(), name


@pytest.mark.parametrize("rule", ["bloop", "metabalance"])
def test_a_rule_remembers_from_one_actor_update_to_the_next(rule: str) -> None:
    """Beside the rule stepped by hand: a population and an agent alone would forget alike."""
    made = small.population("td3", rule, SEEDS[:2], torch.float64)
    seen = small.watch_rule(made)
    small.train(made, SEEDS[:2], 12)
    memory: Any = None
    for step in seen:
        result, memory = RULES[rule](step.primary, step.auxiliary, memory)
        torch.testing.assert_close(step.result, result, rtol=1e-12, atol=1e-12)
    kept = [made.state()[name] for name in sorted(made.state()) if name.startswith("memory.")]
    assert len(seen) == 6
    for ours, theirs in zip(kept, state_tensors(memory), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "method", ["damper-fading", "damper-fading+grad-caps", "damper-fading,plain"]
)
def test_a_rule_reads_each_agent_s_own_auxiliary_loss(method: str, fused: bool) -> None:
    made = build(("td3", False, method), torch.float64, fused=fused)
    combine, seen = made._combine, []

    def watched(gradients: Sequence[Tensor], logs: dict[str, Tensor]) -> Tensor:
        result = combine(gradients, logs)
        seen.append((logs["auxiliary_loss"], logs["weight"]))
        return result

    made._combine = watched  # type: ignore[method-assign]
    small.train(made, SEEDS, 8)
    for loss, weight in seen:
        assert len(loss.unique()) == 8 and not loss.requires_grad
        torch.testing.assert_close(weight, (loss.sqrt() / 0.3).clamp(max=1.0))
    assert len(seen) == 4 and (seen[0][1] < 1).any()


def test_values_per_agent_reach_their_agent() -> None:
    made = build(("td3", False, "damper"), torch.float64)
    same = small.population("td3", "damper", SEEDS, torch.float64, False, HYPER, {"eta": [0.0] * 8})
    small.train(made, SEEDS, 10)
    small.train(same, SEEDS, 10)
    differs = (made.state()["actor"] != same.state()["actor"]).any(1)
    assert differs.tolist() == [False] + [True] * 7, "only agent 0 has η = 0 in both"


@pytest.mark.parametrize("method", ["damper", "bloop", "nash-mtl"])
def test_what_lies_between_the_layers_stays_zero(method: str) -> None:
    made = small.population("sac", method, SEEDS, automatic=True)
    small.train(made, SEEDS, 10)
    for layout, names in (
        (made.networks.actor_layout, ("actor", "actor.m")),
        (made.networks.critic_layout, ("critic", "critic_target")),
    ):
        for name in names:
            rows = made.state()[name].reshape(-1, layout.size)
            gaps = rows.clone()
            for start, length in layout.spans:
                gaps[:, start : start + length] = 0.0
            assert layout.size > sum(length for _, length in layout.spans) and (gaps == 0).all()
            assert torch.equal(layout.flatten(weight_list(layout.unflatten(rows))), rows)


# --- an agent that is not finite ------------------------------------------------------------------

PARAMETERS = ("actor", "critic", "actor_target", "critic_target", "actor_average", "log_ent_coef")
PLANTED_AT, MEMBER = 6, 2
FREEZING = [
    *(("td3", False, method) for method in ("plain", "damper", "metabalance", "asap")),
    *(("sac", automatic, method) for automatic, method in ((True, "damper"), (False, "bloop"))),
]


def spoil_parameters(made: Population, given: Any) -> Any:
    made.state()["actor"][MEMBER, 4] = float("nan")
    return given


def spoil_critic(made: Population, given: Any) -> Any:
    made.state()["critic"][MEMBER, 4] = float("inf")
    return given


def spoil_reward(made: Population, given: Any) -> Any:
    batch, noise = given
    reward = batch.reward.clone()
    reward[MEMBER, 0] = float("nan")
    return batch._replace(reward=reward), noise


def overflow(made: Population, given: Any) -> Any:
    """A finite gradient whose square is not: an infinite second moment would stop Adam."""
    batch, noise = given
    reward = batch.reward.clone()
    reward[MEMBER] = 1e25
    return batch._replace(reward=reward), noise


def run(case: tuple[str, bool, str], spoil: Any, fused: bool) -> list[dict[str, torch.Tensor]]:
    """States after every update; the actor learns at each, so that a death is seen at once."""
    made, states = build(case, torch.float32, fused=fused), []
    for k in range(12):
        given = small.inputs(made, SEEDS, k)
        given = spoil(made, given) if spoil and k == PLANTED_AT else given
        made.update_on(*given, with_actor=True)
        states.append({name: value.clone() for name, value in made.state().items()})
    return states


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("spoil", [spoil_parameters, spoil_critic, spoil_reward, overflow])
@pytest.mark.parametrize("case", FREEZING, ids=str)
def test_a_nan_freezes_its_agent_and_changes_no_bit_of_the_others(
    case: tuple[str, bool, str], spoil: Any, fused: bool
) -> None:
    clean, spoiled = (run(case, planted, fused) for planted in (None, spoil))
    others = [j for j in range(8) if j != MEMBER]
    for before, after in zip(clean, spoiled, strict=True):
        for name in before:
            assert torch.equal(small.rows(before, name, others), small.rows(after, name, others)), (
                name
            )
    last = spoiled[-1]
    assert last["active"].tolist() == [j != MEMBER for j in range(8)]
    assert last["frozen_at"].tolist() == [PLANTED_AT + 1 if j == MEMBER else -1 for j in range(8)]
    for name in set(PARAMETERS) & set(last):
        for state in spoiled[PLANTED_AT:]:
            torch.testing.assert_close(
                state[name][MEMBER],
                spoiled[PLANTED_AT][name][MEMBER],
                rtol=0,
                atol=0,
                equal_nan=True,
            )
        if spoil is not spoil_parameters and spoil is not spoil_critic:
            assert last[name].isfinite().all(), "the last good parameters remain"


def test_everything_an_optimiser_changes_is_in_the_state() -> None:
    made = small.learner(small.settings("sac"))
    for name, adam in made.optimisers.items():
        for part, tensor in adam.state().items():
            assert made.state()[f"{name}.{part}"] is tensor


# --- copies that follow ---------------------------------------------------------------------------


def test_a_target_follows_with_each_agent_s_own_rate() -> None:
    made = build(("td3", False, "plain"), torch.float64, (0, 1, 2))
    target, online = made.state()["critic_target"], made.state()["critic"]
    generator = torch.Generator().manual_seed(0)
    for tensor in (target, online):
        tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    tau, before = torch.tensor([0.005, 0.0, 1.0], dtype=torch.float64), target.clone()
    made.polyak_update("critic", "critic_target", tau)
    torch.testing.assert_close(
        target, (1 - tau[:, None]) * before + tau[:, None] * online, rtol=1e-12, atol=0
    )
    assert torch.equal(target[1], before[1]) and torch.equal(target[2], online[2])


def test_the_target_of_a_frozen_agent_stays() -> None:
    made = build(("td3", False, "plain"), torch.float32, (0, 1, 2))
    target, online = made.state()["critic_target"].zero_(), made.state()["critic"]
    online.fill_(float("nan"))[0] = 1.0
    made.state()["active"].copy_(torch.tensor([True, False, False]))
    made.polyak_update("critic", "critic_target", torch.full((3,), 0.5))
    assert (target[0] == 0.5).all() and (target[1:] == 0).all()
