"""A loss that says that it reads outputs only is believed once that has been tried."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from damper.engine.data.random_streams import Streams
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.update.check_losses import check_loss_claims
from damper.engine.update.population import Population
from damper.errors import DamperError
from damper.interface import Loss
from damper.methods import METHODS, Method, find_method
from tests.engine import small
from tests.engine.update.test_modes import build

SHAPE = NetworkSizes(3, 2, (400, 300))
COMPOSED = ("damper+grad-caps+pave", "damper+asap", "scalarization+l2c2")


def check(backbone: str, method: Method, **own: Any) -> None:
    networks = AgentNetworks(backbone, method, SHAPE, Streams(range(4)), torch.float32)
    agents = Population(
        networks,
        hparams={name: torch.full((4,), value) for name, value in small.HYPER.items()},
        method_kwargs=method.route(own),
        fused=True,
    )
    check_loss_claims(agents)


@pytest.mark.parametrize("name", [*small.METHODS_BY_LOSSES, *COMPOSED])
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_every_method_keeps_its_word(backbone: str, name: str) -> None:
    check(backbone, find_method(name))


def test_values_per_agent_are_taken_from_the_first() -> None:
    check("td3", find_method("caps"), sigma=torch.tensor([0.1, 0.2, 0.3, 0.4]))


def fed_back(policy: Any, batch: Any, noise: Any) -> torch.Tensor:
    """The action moves the state at which it is read again."""
    pushed = batch.obs + 0.1 * policy(batch.obs).sum(-1, keepdim=True)
    return (policy(pushed) - policy(batch.obs)).square().mean((-2, -1))


def sensitivity(policy: Any, batch: Any, noise: Any) -> torch.Tensor:
    """How fast the action changes with the state."""
    slope = torch.func.grad(lambda obs: policy(obs).sum())(batch.obs)
    return slope.square().mean((-2, -1))


def steep(critic: Any, policy: Any, batch: Any, noise: Any) -> torch.Tensor:
    """How fast the value changes with the action."""
    slope = torch.func.grad(lambda action: critic(batch.obs, action).sum())(batch.action)
    return slope.square().mean((-2, -1))


@pytest.mark.parametrize(
    ("method", "network"),
    [
        (Method("fed-back", actor=Loss(fed_back, reads_outputs_only=True)), "actor"),
        (Method("fed-back", actor=Loss(fed_back, reads_outputs_only=True), rule="damper"), "actor"),
        (Method("sensitivity", actor=Loss(sensitivity, reads_outputs_only=True)), "actor"),
        (Method("steep", critic=Loss(steep, reads_outputs_only=True)), "critic"),
    ],
)
def test_a_loss_that_reads_more_is_refused_and_welcome_without_the_word(
    method: Method, network: str
) -> None:
    with pytest.raises(
        DamperError,
        match=f"reads_outputs_only must be left out for the {network} loss of method "
        f"'{method.name}'",
    ):
        check("td3", method)
    honest = {
        "actor": method.actor and Loss(method.actor.function),
        "critic": method.critic and Loss(method.critic.function),
    }
    check("td3", Method(method.name, rule=method.rule, **honest))


def test_it_is_tried_before_an_update_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        METHODS, "fed-back", Method("fed-back", actor=Loss(fed_back, reads_outputs_only=True))
    )
    build("td3", "fed-back")  # eager: autograd takes any loss
    with pytest.raises(DamperError, match="reads_outputs_only must be left out"):
        build("td3", "fed-back", compile=True)
