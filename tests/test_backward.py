"""``damper.backward`` in a training loop: what gets a gradient, which one, what is reported."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import damper
from damper import DamperError
from damper._backward import after_backward, backward_auxiliary
from damper.rules import RULES, has_memory, reads_loss
from tests.rules.references import REFERENCES

GENERATOR = torch.Generator().manual_seed(0)
OBS, NEXT_OBS = torch.randn(32, 3, generator=GENERATOR), torch.randn(32, 3, generator=GENERATOR)


class CountingActor(nn.Sequential):
    """A small actor that counts its forward passes."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2), nn.Tanh())
        self.calls = 0

    def forward(self, obs: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(obs)


@pytest.fixture
def actor() -> CountingActor:
    torch.manual_seed(1)
    return CountingActor()


@pytest.fixture
def critic() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))


def losses(actor: nn.Module, critic: nn.Module) -> tuple[Tensor, Tensor]:
    """The actor's own loss and the temporal one, from one forward pass over both states."""
    mu, mu_next = actor(torch.cat([OBS, NEXT_OBS])).chunk(2)
    return -critic(torch.cat([OBS, mu], 1)).mean(), (mu_next - mu).square().sum(-1).mean()


def separate_gradients(actor: nn.Module, critic: nn.Module) -> list[np.ndarray[Any, Any]]:
    """Both gradients, flattened, each from its own graph and ``.backward()``."""
    flat = []
    for i in (0, 1):
        twin = copy.deepcopy(actor)
        losses(twin, critic)[i].backward()
        flat.append(
            torch.cat([p.grad.flatten() for p in twin.parameters() if p.grad is not None])
            .double()
            .numpy()
        )
    return flat


def gradient_of(module: nn.Module) -> np.ndarray[Any, Any]:
    grads = [p.grad for p in module.parameters()]
    return torch.cat([g.flatten() for g in grads if g is not None]).double().numpy()


@pytest.mark.parametrize("name", RULES)
def test_every_rule_against_two_separate_backward_passes(
    name: str, actor: CountingActor, critic: nn.Module
) -> None:
    g_R, g_T = separate_gradients(actor, critic)
    primary, auxiliary = losses(actor, critic)
    damper.backward(primary, auxiliary, actor.parameters(), rule=name)
    loss = {"auxiliary_loss": auxiliary.item()} if reads_loss(name) else {}
    expected = REFERENCES[name](g_R, g_T, **loss)
    np.testing.assert_allclose(
        gradient_of(actor), expected, rtol=0, atol=2e-6 * np.linalg.norm(expected)
    )


@pytest.mark.parametrize("eta", [0.0, 0.6, torch.tensor(0.6)])
def test_eta_and_the_report(eta: Any, actor: CountingActor, critic: nn.Module) -> None:
    g_R, g_T = separate_gradients(actor, critic)
    report = damper.backward(*losses(actor, critic), actor.parameters(), eta=eta)
    expected = REFERENCES["damper"](g_R, g_T, eta=float(eta))
    np.testing.assert_allclose(
        gradient_of(actor), expected, rtol=0, atol=1e-6 * np.linalg.norm(expected)
    )
    n_R, n_T = np.linalg.norm(g_R), np.linalg.norm(g_T)
    assert report.cosine.item() == pytest.approx(g_R @ g_T / (n_R * n_T), rel=1e-4)
    assert report.norm_ratio.item() == pytest.approx(n_T / n_R, rel=1e-5)
    assert report.conflict.item() is bool(g_R @ g_T < 0)
    assert report.weight.item() == pytest.approx(min(n_T / n_R, 1) ** (1 - float(eta)), rel=1e-5)
    assert report.guard.item() is False
    assert report.state is None


def test_one_forward_pass_is_enough_and_the_critic_stays_untouched(
    actor: CountingActor, critic: nn.Module
) -> None:
    damper.backward(*losses(actor, critic), actor.parameters())
    assert actor.calls == 1
    assert all(parameter.grad is None for parameter in critic.parameters())
    for parameter in critic.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    damper.backward(*losses(actor, critic), actor.parameters())
    assert all(bool((parameter.grad == 7.0).all()) for parameter in critic.parameters())


def test_gradients_are_set_not_added(actor: CountingActor, critic: nn.Module) -> None:
    damper.backward(*losses(actor, critic), actor.parameters())
    once = gradient_of(actor)
    damper.backward(*losses(actor, critic), actor.parameters())
    np.testing.assert_array_equal(gradient_of(actor), once)


def test_a_layer_frozen_between_two_updates_stays_where_it_is(
    actor: CountingActor, critic: nn.Module
) -> None:
    optimiser = torch.optim.Adam(actor.parameters())
    damper.backward(*losses(actor, critic), actor.parameters())
    optimiser.step()
    frozen: Tensor = actor[0].requires_grad_(False).weight.clone()
    damper.backward(*losses(actor, critic), actor.parameters())  # no zero_grad is needed
    optimiser.step()
    assert torch.equal(actor[0].weight, frozen)


OPTIMISERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1),
    lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3),
]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=["sgd", "adam", "adamw", "rmsprop"])
def test_a_zero_auxiliary_trains_bit_for_bit_as_without(
    name: str,
    optimiser: Callable[[Any], torch.optim.Optimizer],
    actor: CountingActor,
    critic: nn.Module,
) -> None:
    plain = copy.deepcopy(actor)
    ours, theirs = optimiser(actor.parameters()), optimiser(plain.parameters())
    state = None
    for _ in range(5):
        primary, auxiliary = losses(actor, critic)
        state = damper.backward(
            primary, 0.0 * auxiliary, actor.parameters(), rule=name, state=state
        ).state
        ours.step()
        theirs.zero_grad()
        losses(plain, critic)[0].backward()
        theirs.step()
    for mine, other in zip(actor.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_parameters_unused_by_one_loss_or_by_both() -> None:
    first, second, both, neither, frozen = (
        nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(5)
    )
    neither.grad = torch.ones(2)
    frozen.requires_grad_(False)
    primary = (first + both).square().sum()
    auxiliary = (second - both).square().sum() + second.sum()
    damper.backward(
        primary, auxiliary, [first, second, both, neither, frozen], rule="scalarization", weight=1.0
    )
    # d/dx of (x + b)² and of (x − b)² + x at x = b = (1, 2).
    assert first.grad is not None and second.grad is not None and both.grad is not None
    assert first.grad.tolist() == [4.0, 8.0]
    assert second.grad.tolist() == [1.0, 1.0]
    assert both.grad.tolist() == [4.0, 8.0]
    assert neither.grad is None
    assert frozen.grad is None


def test_the_graph_is_kept_if_asked_and_only_then(actor: CountingActor, critic: nn.Module) -> None:
    both = losses(actor, critic)
    damper.backward(*both, actor.parameters(), retain_graph=True)
    once = gradient_of(actor)
    damper.backward(*both, actor.parameters())
    np.testing.assert_array_equal(gradient_of(actor), once)
    with pytest.raises(RuntimeError, match="second time"):
        damper.backward(*both, actor.parameters())


def test_parameters_of_several_dtypes() -> None:
    parameters = [
        nn.Parameter(torch.tensor([1.0, 2.0], dtype=dtype))
        for dtype in (torch.float32, torch.float64)
    ]
    parameters.append(nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.bfloat16)))
    primary = sum((p.double() ** 2).sum() for p in parameters)
    auxiliary = sum((p.double().flip(0) * torch.tensor([1.0, -3.0])).sum() for p in parameters)
    damper.backward(primary, auxiliary, parameters, eta=0.5)
    g_R, g_T = np.array([2.0, 4.0] * 3), np.array([-3.0, 1.0] * 3)
    expected = REFERENCES["damper"](g_R, g_T, eta=0.5).reshape(3, 2)
    for parameter, wanted, tolerance in zip(parameters, expected, (1e-6, 1e-14, 1e-2), strict=True):
        assert parameter.grad is not None
        assert parameter.grad.dtype == parameter.dtype
        assert parameter.grad.tolist() == pytest.approx(wanted.tolist(), rel=tolerance)


@pytest.mark.parametrize(
    "wrap", [nn.Module.parameters, lambda a: tuple(a.parameters()), lambda a: a]
)
def test_parameters_in_any_container(
    wrap: Callable[[Any], Any], actor: CountingActor, critic: nn.Module
) -> None:
    twin = copy.deepcopy(actor)
    damper.backward(*losses(twin, critic), list(twin.parameters()))
    damper.backward(*losses(actor, critic), wrap(actor))
    np.testing.assert_array_equal(gradient_of(actor), gradient_of(twin))


@pytest.mark.parametrize("times", [None, 1, 2])
def test_a_single_tensor_and_a_parameter_given_twice(times: int | None) -> None:
    x = torch.tensor([3.0, 0.0], requires_grad=True)
    losses = x.square().sum() / 2, (x * torch.tensor([0.0, 5.0])).sum()
    # Nash-MTL's answer has a length of its own, (1, 1) here, which counting a parameter twice would
    # change.
    damper.backward(*losses, x if times is None else [x] * times, rule="nash-mtl")
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([1.0, 1.0])


def test_each_gradient_owns_its_memory(actor: CountingActor, critic: nn.Module) -> None:
    damper.backward(*losses(actor, critic), actor.parameters())
    for parameter in actor.parameters():
        assert parameter.grad is not None
        assert (
            parameter.grad.untyped_storage().nbytes()
            == parameter.numel() * parameter.element_size()
        )


@pytest.mark.parametrize("name", [name for name in RULES if has_memory(name)])
def test_memory_is_handed_on_through_the_report(
    name: str, actor: CountingActor, critic: nn.Module
) -> None:
    sizes = {"sizes": [p.numel() for p in actor.parameters()]} if name == "metabalance" else {}
    state, expected_state = None, None
    for _ in range(3):
        flat = [torch.from_numpy(g).float() for g in separate_gradients(actor, critic)]
        expected, expected_state = RULES[name](*flat, expected_state, **sizes)
        state = damper.backward(
            *losses(actor, critic), actor.parameters(), rule=name, state=state, **sizes
        ).state
        np.testing.assert_allclose(gradient_of(actor), expected.double().numpy(), rtol=0, atol=1e-7)
        with torch.no_grad():
            for parameter in actor.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[operator]
    torch.testing.assert_close(state, expected_state, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("second_half", [False, True])
def test_memory_stays_with_its_parameters_where_a_batch_reaches_others(second_half: bool) -> None:
    """Two heads of one size, used in turn: each keeps its own average."""
    trunk, heads = (
        nn.Parameter(torch.tensor([1.0])),
        [nn.Parameter(torch.tensor([2.0])) for _ in range(2)],
    )
    parameters, state = [trunk, *heads], None
    for step in range(2):
        head = heads[step]
        primary, auxiliary = (trunk * head).square().sum(), trunk.sum() + (step + 1) * head.sum()
        if second_half:
            trunk.grad = heads[0].grad = heads[1].grad = None
            primary.backward(retain_graph=True)
            report = backward_auxiliary(auxiliary, parameters, "bloop", state, rate=0.5)
        else:
            report = damper.backward(
                primary, auxiliary, parameters, rule="bloop", state=state, rate=0.5
            )
        state = report.state
        assert head.grad is not None and heads[1 - step].grad is None
    # d/dt and d/dh of (t h)² at (1, 2) are (8, 4); half of the second average is the first step's.
    assert state is not None and state.tolist() == [8.0, 2.0, 2.0]
    # The auxiliary (1, 0, 2) without its part along the first average (8, 4, 0) is (0.2, -0.4, 2).
    assert trunk.grad is not None and heads[1].grad is not None
    assert [trunk.grad.item(), heads[1].grad.item()] == pytest.approx([8.2, 6.0])


@pytest.mark.parametrize("second_half", [False, True])
def test_memory_stays_with_its_parameters_where_another_layer_is_frozen(second_half: bool) -> None:
    layers = [nn.Parameter(torch.tensor([value])) for value in (1.0, 2.0)]
    state = None
    for frozen, trained in ((0, 1), (1, 0)):
        layers[frozen].requires_grad_(False)
        layers[trained].requires_grad_(True).grad = None
        total = layers[0] + layers[1]
        primary, auxiliary = total.square().sum(), total.sum()
        if second_half:
            primary.backward(retain_graph=True)
            state = backward_auxiliary(auxiliary, layers, "bloop", state, rate=0.5).state
        else:
            state = damper.backward(
                primary, auxiliary, layers, rule="bloop", state=state, rate=0.5
            ).state
        assert layers[frozen].grad is None and layers[trained].grad is not None
    assert state is not None and state.tolist() == [3.0, 3.0]  # of (0, 6) and (6, 0), half each


def test_sizes_count_parameters_that_a_batch_does_not_reach() -> None:
    x, unused, frozen = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(3))
    frozen.requires_grad_(False)
    report = damper.backward(
        x.square().sum(), x.sum(), [x, unused, frozen], rule="metabalance", sizes=[2, 2, 2]
    )
    assert report.state.m_R.shape == (3,) and unused.grad is None and frozen.grad is None


def average(primary: Tensor, auxiliary: Tensor, share: float = 0.5) -> Tensor:
    return share * primary + (1 - share) * auxiliary


def test_a_rule_of_ones_own(actor: CountingActor, critic: nn.Module) -> None:
    g_R, g_T = separate_gradients(actor, critic)
    report = damper.backward(*losses(actor, critic), actor.parameters(), rule=average, share=0.25)
    np.testing.assert_allclose(gradient_of(actor), 0.25 * g_R + 0.75 * g_T, rtol=0, atol=1e-7)
    assert report.weight.item() == pytest.approx(
        0.75 * np.linalg.norm(g_T - g_R) / np.linalg.norm(g_R), rel=1e-5
    )


def mistake(message: str) -> Any:
    return pytest.raises(DamperError, match=rf"^{message}")


def test_mistakes_are_told_and_leave_gradients_alone(
    actor: CountingActor, critic: nn.Module
) -> None:
    primary, auxiliary = losses(actor, critic)
    parameters = list(actor.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    with mistake(r"primary_loss must be a scalar tensor, but shape \(2,\) was given: reduce it"):
        damper.backward(primary.expand(2), auxiliary, parameters)
    with mistake(r"auxiliary_loss must be a scalar tensor, but float was given"):
        damper.backward(primary, 0.0, parameters)  # type: ignore[arg-type]
    primary, auxiliary = losses(actor, critic)
    with mistake(r"parameters must include a tensor with requires_grad, but none was given"):
        damper.backward(primary, auxiliary, [])
    with mistake(r"parameters must be tensors, but a tuple was given: pass module.parameters\(\)"):
        damper.backward(primary, auxiliary, actor.named_parameters())  # type: ignore[arg-type]
    with mistake(
        r"parameters must be leaf tensors, .*, but one was computed from other tensors: pass the "
        r"two losses"
    ):
        damper.backward(primary, auxiliary, 2 * auxiliary, parameters)  # type: ignore[arg-type]
    with mistake(
        r"parameters must be tensors, but a NoneType was given: pass module.parameters\(\)"
    ):
        damper.backward(primary, auxiliary, None)  # type: ignore[arg-type]
    with mistake(
        r"primary_loss must depend on the parameters, but depends on none of those given: check "
        r"for a detach"
    ):
        damper.backward(primary, auxiliary, [nn.Parameter(torch.ones(2))])
    with mistake(r"rule must name one of .*, but 'dampr' was given: did you mean 'damper'"):
        damper.backward(primary, auxiliary, parameters, rule="dampr")
    with mistake(r"rule must name one of .*, but None was given: choose one of bloop,"):
        damper.backward(primary, auxiliary, parameters, rule=None)  # type: ignore[arg-type]
    with mistake(r"eta must be in \[0, 1\], but 2 was given"):
        damper.backward(*losses(actor, critic), parameters, eta=2.0)
    with mistake(r"eta must broadcast over the leading axes \(\), but has shape \(2,\): "):
        damper.backward(*losses(actor, critic), parameters, eta=torch.tensor([0.1, 0.2]))
    with mistake(r"weight is not a setting of damper: it has eta"):
        damper.backward(*losses(actor, critic), parameters, weight=2.0)
    with mistake(r"eta is not a setting of pegrad: it has cap"):
        damper.backward(*losses(actor, critic), parameters, eta=1.0, rule="pegrad")
    with mistake(r"state must be left out for damper, which has no memory, but a Tensor was given"):
        damper.backward(*losses(actor, critic), parameters, state=torch.ones(3))
    assert all(bool((p.grad == 1).all()) for p in parameters if p.grad is not None)
    assert all(p.grad is not None for p in parameters)


@pytest.mark.parametrize("which", [0, 1])
def test_a_loss_without_gradient_is_a_mistake(
    which: int, actor: CountingActor, critic: nn.Module
) -> None:
    name = ("primary_loss", "auxiliary_loss")[which]
    elsewhere = critic(torch.cat([OBS, actor(OBS).detach()], 1)).mean()
    for other, why in (
        (torch.tensor(0.0), "has no graph"),
        (elsewhere, "depends on none of those given"),
    ):
        both = list(losses(actor, critic))
        both[which] = other
        with pytest.raises(DamperError, match=f"^{name} must depend on the parameters, but {why}"):
            damper.backward(*both, actor.parameters())


@pytest.mark.parametrize("rule", ["damper", "bloop"])
def test_losses_that_reach_only_what_is_shared_are_a_mistake(rule: str) -> None:
    shared, unused = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    shared.square().sum().backward()
    left = shared.grad
    with pytest.raises(
        DamperError,
        match="parameters must include one that a loss depends on, but the losses depend",
    ):
        backward_auxiliary(shared.sum(), [unused], rule, shared=[shared])
    assert shared.grad is left and unused.grad is None


def test_a_sparse_gradient_is_a_mistake() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    row = table(torch.tensor([1]))
    with pytest.raises(
        DamperError, match=r"^primary_loss must have dense gradients, but has a sparse one"
    ):
        damper.backward(row.square().sum(), row.sum(), table.parameters())


# --- several processes ---------------------------------------------------------------------------


ADDING = ("damper", "damper-fading")


class Branching(nn.Module):
    """A first layer for all, one of two for each process, and one for none."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def forward(self, obs: Tensor, branch: int) -> Tensor:
        output: Tensor = self.layers[1 + branch](self.layers[0](obs))
        return output


def branch_losses(model: nn.Module, branch: int) -> tuple[Tensor, Tensor]:
    rows = slice(16 * branch, 16 * branch + 16)
    output = model(OBS[rows], branch)
    return output.square().mean(), (output - NEXT_OBS[rows]).abs().mean()


def add_branch_auxiliary(
    auxiliary: Callable[[nn.Module], Tensor], rule: str = "damper", **arguments: Any
) -> nn.Module:
    """The auxiliary gradient in a primary one that is the same in every process."""
    torch.manual_seed(2)
    model = Branching()
    model.layers[0](OBS).square().mean().backward()
    settings = {"full_change": 3.0} if reads_loss(rule) else {}
    report = backward_auxiliary(auxiliary(model), model, rule, **settings, **arguments)
    assert not reads_loss(rule) or 0.01 < report.weight < 0.99
    return model


def train_three_steps(
    name: str, actor: nn.Module, critic: nn.Module, rows: slice, **group: Any
) -> Tensor:
    """Parameters and last report of an actor whose process sees some rows of the batch."""
    # With the default every process would push at full length, whatever its loss.
    settings = {"full_change": 3.0} if reads_loss(name) else {}
    state = None
    for _ in range(3):
        mu, mu_next = actor(OBS[rows]), actor(NEXT_OBS[rows])
        primary, auxiliary = (
            -critic(torch.cat([OBS[rows], mu], 1)).mean(),
            (mu_next - mu).square().sum(-1).mean(),
        )
        parameters = list(actor.parameters()) if group else actor
        report = damper.backward(
            primary, auxiliary, parameters, rule=name, state=state, **settings, **group
        )
        assert not reads_loss(name) or 0.01 < report.weight < 0.99
        state = report.state
        with torch.no_grad():
            for parameter in actor.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[operator]
    return torch.cat(
        [p.detach().flatten() for p in actor.parameters()]
        + [n.float().reshape(1) for n in report[:5]]
    )


def make_pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    return CountingActor(), nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))


def one_of_two_processes(rank: int, folder: str) -> None:
    """Half the batch each; what came of it is saved."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    rows, found = slice(16 * rank, 16 * rank + 16), {}
    for name in RULES:
        actor, critic = make_pair()
        found[name] = train_three_steps(name, DistributedDataParallel(actor), critic, rows)
    actor, critic = make_pair()
    found["bare"] = train_three_steps(
        "damper", actor, critic, rows, process_group=distributed.group.WORLD
    )
    actor, critic = make_pair()
    found["alone"] = train_three_steps("damper", actor, critic, rows, process_group=None)
    with mistake(
        r"process_group must be given when torch.distributed runs 2 processes, unless .* None if "
        r"each"
    ):
        damper.backward(*losses(actor, critic), actor.parameters())
    first_alone = distributed.new_group([0])
    if rank == 1:
        with mistake(r"process_group must include this process, but does not"):
            damper.backward(*losses(actor, critic), actor, process_group=first_alone)
    torch.manual_seed(2)
    branching = DistributedDataParallel(Branching(), find_unused_parameters=True)
    for _ in range(2):  # the wrapper would complain of the first at the second
        damper.backward(*branch_losses(branching, rank), branching)
    found |= {
        f"branch {i}": p.grad for i, p in enumerate(branching.parameters()) if p.grad is not None
    }
    for rule in ADDING:
        added = add_branch_auxiliary(
            lambda model: branch_losses(model, rank)[1],
            rule,
            process_group=distributed.group.WORLD,
        )
        for i, parameter in enumerate(added.parameters()):
            if parameter.grad is not None:
                found[f"added by {rule} {i}"] = parameter.grad
    save_file(found, f"{folder}/{rank}.safetensors")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("distributed")
    multiprocessing.spawn(one_of_two_processes, (str(folder),), nprocs=2)
    return [load_file(folder / f"{rank}.safetensors") for rank in (0, 1)]


@pytest.mark.parametrize("name", RULES)
def test_two_processes_with_half_the_batch_equal_one_with_the_whole(
    name: str, two_processes: list[dict[str, Tensor]]
) -> None:
    whole = train_three_steps(name, *make_pair(), slice(None))
    first, second = (found[name] for found in two_processes)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, whole, rtol=1e-4, atol=1e-5)


def test_processes_average_where_asked_only(two_processes: list[dict[str, Tensor]]) -> None:
    first, second = two_processes
    assert torch.equal(first["bare"], first["damper"])
    assert not torch.equal(first["alone"], second["alone"])
    torch.testing.assert_close(first["alone"], train_three_steps("damper", *make_pair(), slice(16)))


def test_a_parameter_that_one_process_uses_is_averaged_and_one_that_none_uses_left_out(
    two_processes: list[dict[str, Tensor]],
) -> None:
    torch.manual_seed(2)
    model = Branching()
    both = [
        sum(pair) / 2 for pair in zip(branch_losses(model, 0), branch_losses(model, 1), strict=True)
    ]
    damper.backward(*both, model)
    for found in two_processes:
        assert {name for name in found if name.startswith("branch")} == {
            f"branch {i}" for i in range(6)
        }
        for i, parameter in enumerate(list(model.parameters())[:6]):
            torch.testing.assert_close(found[f"branch {i}"], parameter.grad)


@pytest.mark.parametrize("rule", ADDING)
def test_the_auxiliary_gradient_alone_is_averaged_likewise(
    rule: str, two_processes: list[dict[str, Tensor]]
) -> None:
    model = add_branch_auxiliary(
        lambda model: sum(branch_losses(model, branch)[1] for branch in (0, 1)) / 2, rule
    )
    for found in two_processes:
        assert {name for name in found if name.startswith(f"added by {rule} ")} == {
            f"added by {rule} {i}" for i in range(6)
        }
        for i, parameter in enumerate(list(model.parameters())[:6]):
            torch.testing.assert_close(found[f"added by {rule} {i}"], parameter.grad)


def test_a_rule_may_be_an_object_without_a_hash(actor: CountingActor, critic: nn.Module) -> None:
    @dataclass
    class Weighted:
        factor: float

        def __call__(self, primary: Tensor, auxiliary: Tensor) -> Tensor:
            return primary + self.factor * auxiliary

    g_R, g_T = separate_gradients(actor, critic)
    damper.backward(*losses(actor, critic), actor.parameters(), rule=Weighted(0.5))
    np.testing.assert_allclose(gradient_of(actor), g_R + 0.5 * g_T, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_after_backward_calls_once_when_all_gradients_are_there(device: str) -> None:
    """Whichever of the parameters the loss reaches; the function may differentiate and add."""
    first, second, other = (
        nn.Parameter(torch.full((2,), value, device=device)) for value in (1.0, 2.0, 3.0)
    )
    seen: list[list[float | None]] = []

    def add() -> None:
        seen.append([None if p.grad is None else p.grad[0].item() for p in (first, second, other)])
        (10.0 * first.square().sum()).backward()

    with after_backward([first, second], add):
        (first * second * other).sum().backward()
        first.grad = second.grad = other.grad = None
        second.sum().backward()
        other.sum().backward()
    (first * second).sum().backward()
    assert seen == [[6.0, 3.0, 2.0], [None, 1.0, None]]
    assert first.grad is not None and first.grad.tolist() == [22.0, 22.0]


def test_after_backward_a_mistake_comes_out_and_leaves_no_hook() -> None:
    parameter, calls = nn.Parameter(torch.ones(2)), [0]

    def fail() -> None:
        calls[0] += 1
        raise DamperError("no")

    with pytest.raises(DamperError, match="no"), after_backward([parameter], fail):
        parameter.sum().backward()
    parameter.sum().backward()
    assert calls == [1]
