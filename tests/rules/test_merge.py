"""One rule per agent: each agent gets what its own rule gives it alone."""

from __future__ import annotations

import pytest
import torch

from damper.errors import DamperError
from damper.rules import RULES, can_share_population, combine_reported, find, settings_of

MIXED = tuple(name for name, rule in RULES.items() if can_share_population(rule))


def test_each_agent_has_its_own_rule_and_settings() -> None:
    names = ("plain", *MIXED)
    g_R, g_T = torch.randn(2, len(names), 50, generator=torch.Generator().manual_seed(0)).unbind()
    choice = torch.arange(len(names)).flip(0)
    eta, weight = torch.linspace(0, 1, len(names)), torch.linspace(0.1, 2, len(names))
    own = {
        name: value
        for name, value in {"eta": eta, "weight": weight}.items()
        if name in settings_of(",".join(names))
    }
    loss = torch.linspace(0, 0.1, len(names))
    together, report = combine_reported(
        ",".join(names), g_R, g_T, auxiliary_loss=loss, choice=choice, **own
    )
    for agent, index in enumerate(choice.tolist()):
        if names[index] == "plain":
            assert torch.equal(together[agent], g_R[agent]) and report.weight[agent] == 0
            continue
        mine = {
            name: value[agent] for name, value in own.items() if name in settings_of(names[index])
        }
        alone, seen = combine_reported(
            names[index], g_R[agent], g_T[agent], auxiliary_loss=loss[agent], **mine
        )
        assert torch.equal(together[agent], alone), names[index]
        assert torch.equal(report.weight[agent], seen.weight)


def test_a_rule_named_twice_keeps_the_places_after_it() -> None:
    g_R, g_T = torch.tensor([[3.0, 0.0]] * 3), torch.tensor([[-4.0, 3.0]] * 3)
    g = find("damper,damper,scalarization")(g_R, g_T, choice=torch.arange(3))
    assert torch.equal(g[:2], RULES["damper"](g_R, g_T)[:2])
    assert torch.equal(g[2], RULES["scalarization"](g_R, g_T)[2])


@pytest.mark.parametrize("choice", [2, -1, torch.tensor([0, 2])])
def test_a_choice_beyond_the_list_is_refused(choice: int | torch.Tensor) -> None:
    with pytest.raises(DamperError, match=r"^choice must be in \[0, 1\], but (2|-1) was given: "):
        find("damper,scalarization")(torch.ones(2, 3), torch.ones(2, 3), choice=choice)


def test_what_is_not_a_number_stays_with_its_agent() -> None:
    g_R, g_T = torch.ones(3, 4), torch.full((3, 4), -1.0)
    g_T[1] = float("nan")
    combined, _ = combine_reported("plain,damper,pegrad", g_R, g_T, choice=torch.tensor([1, 1, 2]))
    assert combined.isfinite().all() and torch.equal(combined[1], g_R[1])


@pytest.mark.parametrize("names", ["damper,bloop", "damper,mgda", "damper,dampr"])
def test_rules_with_memory_or_that_rescale_the_primary_are_refused(names: str) -> None:
    with pytest.raises(
        DamperError,
        match=r"rules of one population must be among plain, damper, .* but '(bloop|mgda|dampr)'",
    ):
        find(names)


def test_the_papers_rules_go_together() -> None:
    assert {
        "damper",
        "unconditional-sum",
        "unconditional-projection",
        "pegrad",
        "scalarization",
    } <= set(MIXED)
