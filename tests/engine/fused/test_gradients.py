"""The passes that are written out for the compiler give autograd's gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.fused import Fused
from damper.engine.fused import gradients as fused_gradients
from damper.engine.gradients import Autograd, CriticGradient, Given, Logs
from damper.engine.networks.agent_networks import NetworkSizes
from damper.engine.networks.layout import Layout, weight_list
from damper.engine.update.population import Population
from damper.interface import Batch, Critic, Loss, Noise, NoiseDraws, Policy, Setting
from damper.losses._maths import mean_square
from damper.losses.pave import pave
from damper.methods import Method
from tests.engine import small

SEEDS, MEMBER = (5, 3, 8), 1
TOLERANCE, ROUNDING = 1e-10, 1e-13
Gradients = tuple[list[Tensor], Logs]
COMPOSED = ("damper+grad-caps+pave", "damper+caps", "damper+asap", "scalarization+l2c2")
BACKBONES = ("td3", "sac")


def build(backbone: str, method: str | Method) -> tuple[Population, Given]:
    """Agents whose copies differ from their originals, and what one update's losses read."""
    made = small.population(backbone, method, SEEDS, torch.float64)  # type: ignore[arg-type]
    for factor, name in enumerate(("actor_target", "critic_target", "actor_average"), start=2):
        if name in made.state():
            made.state()[name] *= 1.0 + 0.1 * factor
    return made, Given(*small.inputs(made, SEEDS, 0), made.hparams)


def check_same(layout: Layout, ours: Gradients, theirs: Gradients) -> None:
    (gradients, seen), (expected, known) = ours, theirs
    assert len(gradients) == len(expected) and set(seen) == set(known)
    for a, b in zip(gradients, expected, strict=True):
        assert a.shape == b.shape and b.norm() > 0
        tensors = zip(
            *(weight_list(layout.unflatten(rows.reshape(-1, layout.size))) for rows in (a, b)),
            strict=True,
        )
        for part, other in tensors:
            # A bias that a loss of differences does not feel has a gradient of nothing but rounding
            # errors.
            assert (part - other).norm() <= TOLERANCE * other.norm() + ROUNDING * b.norm()
    for name in seen:
        assert seen[name].shape == known[name].shape
        assert (seen[name] - known[name]).norm() <= TOLERANCE * known[name].norm(), name


def as_gradients(found: CriticGradient) -> Gradients:
    return [found.gradient], found.logs


def fused(made: Population) -> Fused:
    return Fused(made.networks, made.method_kwargs)


def check_backends(made: Population, given: Given) -> None:
    networks = made.networks
    shared, reference = fused(made), Autograd(networks, made.method_kwargs)
    found = shared.of_critics(given)
    whole = as_gradients(reference.of_critics(given))
    check_same(networks.critic_layout, as_gradients(found), whole)
    expected = reference.of_actors(given)
    assert len(expected[0]) == (2 if made.method.rule else 1)
    check_same(networks.actor_layout, shared.of_actors(given), expected)
    # An update is two functions: what the first has run already is handed to the second.
    saved, layers = found.saved_activations, networks.actor_layout.layer_slices
    assert len(saved) == (0 if networks.target_policy == "actor_target" else 2 * len(layers))
    check_same(networks.actor_layout, shared.of_actors(given, saved), expected)


@pytest.mark.parametrize("method", [*small.METHODS_BY_LOSSES, *COMPOSED])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_fused_gradients_passes_give_autograd_s_gradients(backbone: str, method: str) -> None:
    check_backends(*build(backbone, method))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("backbone", "method"), [("td3", "damper"), ("sac", "damper+asap")])
def test_other_activations(
    backbone: str, method: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "SHAPE", NetworkSizes(small.OBS, small.ACT, (10, 8), activation))
    check_backends(*build(backbone, method))


@pytest.mark.parametrize("hidden", [(9,), (10, 8), (7, 17, 6)], ids=len)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_action_gradients_of_other_critics(
    backbone: str, activation: str, hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "SHAPE", NetworkSizes(small.OBS, small.ACT, hidden, activation))
    check_backends(*build(backbone, "damper+pave"))


def test_values_per_agent_reach_their_agent() -> None:
    own = {"lambda_T": [0.0, 0.5, 2.0], "sigma": [0.1, 0.0, 0.4]}
    made = small.population("td3", "damper+caps", SEEDS, torch.float64, own=own)
    check_backends(made, Given(*small.inputs(made, SEEDS, 0), made.hparams))


def _part(policy: Policy, batch: Batch, noise: NoiseDraws) -> Tensor:
    """Asks for some of the rows only, and first for those that the primary loss does not."""
    return policy(batch.next_obs[:, 3:]).square().sum((1, 2)) - policy(batch.obs[:, :2]).mean(
        (1, 2)
    )


def _after(policy: Policy, batch: Batch, noise: NoiseDraws) -> Tensor:
    """Asks for nothing that the primary loss asks for."""
    return policy(batch.next_obs).square().sum((1, 2))


@pytest.mark.parametrize("function", [_part, _after])
@pytest.mark.parametrize("rule", ["damper", None])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_loss_may_ask_for_what_it_likes(
    backbone: str, rule: str | None, function: Callable[..., Tensor]
) -> None:
    check_backends(
        *build(backbone, Method("own", actor=Loss(function, reads_outputs_only=True), rule=rule))
    )


def _one(critic: Critic, policy: Policy, batch: Batch, noise: NoiseDraws) -> Tensor:
    """Reads the first critic alone, also where the critics' own loss reads both."""
    near = batch.obs + 0.1
    change = critic.first(near, batch.action) - critic.first(batch.obs, batch.action)
    return batch.progress * (change.square() + critic(near, batch.action).amin(-2)).mean(-1)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_critic_loss_may_read_the_first_alone(backbone: str) -> None:
    check_backends(*build(backbone, Method("own", critic=Loss(_one, reads_outputs_only=True))))


def _repeated(policy: Policy, batch: Batch, noise: NoiseDraws) -> Tensor:
    """Asks for what it asked for before: the batch's, its own, and the average's."""
    near = batch.obs + 0.1
    change = policy(near) - policy(batch.obs) * policy(near)
    pull = policy.averaged_prediction(near) - policy.averaged_prediction(
        batch.obs
    ) * policy.prediction(batch.obs)
    return mean_square(change) + mean_square(pull) + mean_square(policy(batch.obs + 0.1))


@pytest.mark.parametrize("rule", ["damper", None])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_loss_may_ask_twice(backbone: str, rule: str | None) -> None:
    check_backends(
        *build(
            backbone,
            Method(
                "own", actor=Loss(_repeated, prediction=True, reads_outputs_only=True), rule=rule
            ),
        )
    )


# --- one network run each -------------------------------------------------------------------------


def runs(monkeypatch: pytest.MonkeyPatch, made: Population, given: Given) -> list[int]:
    """On how many batches each run of a network works, critics first."""
    rows: list[int] = []
    original = fused_gradients.Tape

    class Counted(original):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            rows.append(arguments[3].shape[1] // small.BATCH)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(fused_gradients, "Tape", Counted)
    way = fused(made)
    way.of_actors(given, way.of_critics(given).saved_activations)
    return rows


@pytest.mark.parametrize(
    ("backbone", "method", "expected"),
    [
        # Target actor, target critics, critics; actor at s, critic at s.
        ("td3", "plain", [1, 1, 1, 1, 1]),
        # Actor at s and s' for both losses.
        ("td3", "damper", [1, 1, 1, 2, 1]),
        # Actor at s for the update and at s' for the target and the smoothness, once for both
        # functions.
        ("sac", "damper", [2, 1, 1, 1]),
        # A neighbour more, for the critics and for the actor.
        ("td3", "l2c2", [1, 1, 2, 2, 1]),
    ],
)
def test_each_network_runs_once_at_all_inputs_together(
    backbone: str, method: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs(monkeypatch, *build(backbone, method)) == expected


# --- agents apart ---------------------------------------------------------------------------------

NETWORKS = ("actor", "critic", "actor_target", "critic_target", "actor_average")


def outcome(made: Population, given: Given) -> list[Tensor]:
    """All gradients and logs, each with one row per agent."""
    way = fused(made)
    both = (as_gradients(way.of_critics(given)), way.of_actors(given))
    return [tensor for gradients, logs in both for tensor in (*gradients, *logs.values())]


@pytest.mark.parametrize("method", ["plain", "damper", "damper+asap", "damper+grad-caps+pave"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_nan_stays_with_its_member(backbone: str, method: str) -> None:
    made, given = build(backbone, method)
    clean, others = outcome(made, given), [j for j in range(len(SEEDS)) if j != MEMBER]
    for name in NETWORKS:
        if name not in made.state():
            continue
        good = made.state()[name].clone()
        made.state()[name][MEMBER, 4] = float("nan")
        spoiled = outcome(made, given)
        assert any(tensor[MEMBER].isnan().any() for tensor in spoiled), f"{name} is used"
        assert all(
            torch.equal(ours[others], theirs[others])
            for ours, theirs in zip(spoiled, clean, strict=True)
        ), name
        made.state()[name].copy_(good)


# --- losses that need more than values ------------------------------------------------------------


def _steep(policy: Policy, batch: Batch, noise: NoiseDraws, *, weight: Setting = 0.5) -> Tensor:
    """``mean (vᵀ ∂μ/∂s)²``: how steep a random combination of the action's parts is."""
    change = torch.func.grad(lambda obs: (noise["direction"] * policy(obs)).sum())(batch.obs)
    return weight * mean_square(change)


STEEP = Loss(_steep, noise={"direction": Noise("normal", "action")})


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_critic_loss_that_reads_more_than_values_takes_the_other_path(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not pave.reads_outputs_only
    made, given = build(backbone, Method("own", critic=pave))
    check_backends(made, given)
    calls = counted(monkeypatch)
    fused(made).of_critics(given)
    assert len(calls) == 1, "the smoothness loss alone"
    made, given = build(backbone, "l2c2")
    fused(made).of_critics(given)
    assert len(calls) == 1, "losses by value need no autograd through networks"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The losses that autograd differentiates through networks, from now on."""
    calls: list[Any] = []
    original = fused_gradients.func_gradients

    def count(loss: Any, *given: Any) -> Any:
        calls.append(loss)
        return original(loss, *given)

    monkeypatch.setattr(fused_gradients, "func_gradients", count)
    return calls


@pytest.mark.parametrize("rule", ["damper", None])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_derivative_of_the_policy_takes_the_other_path(
    backbone: str, rule: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not STEEP.reads_outputs_only
    made, given = build(backbone, Method("steep", actor=STEEP, rule=rule))
    check_backends(made, given)
    calls = counted(monkeypatch)
    fused(made).of_actors(given)
    assert len(calls) == 1, "the smoothness loss alone"
    made, given = build(backbone, "damper+caps")
    fused(made).of_actors(given)
    assert len(calls) == 1, "losses by value need no autograd through networks"
