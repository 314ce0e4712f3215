"""What holds for every loss of every method: one value per agent, its slope, with or without P."""

from __future__ import annotations

import pytest
import torch

from damper.engine.data.random_streams import Streams
from damper.methods import METHODS
from tests.losses.helpers import (
    SEEDS,
    actor_loss,
    critic_loss,
    draws,
    population,
    slope_error,
    stacked_batch,
)

NAMES = ["damper", "temporal-ramp", "caps", "grad-caps", "asap", "l2c2", "l2c2-released", "pave"]
CASES = [
    (name, backbone, part)
    for name in NAMES
    for backbone in ("td3", "sac")
    for part in ("actor", "critic")
    if getattr(METHODS[name], part)
]
# Grad-CAPS and ASAP hold parts of their loss fixed: their own tests have the gradient in closed
# form.
NOTHING_HELD = [case for case in CASES if case[0] not in ("grad-caps", "asap")]
LOSSES = {"actor": actor_loss, "critic": critic_loss}


class Unstacked:
    """A population of one as the single agent it is: no leading axis anywhere."""

    def __init__(self, stacked):
        self.stacked = stacked

    @property
    def stochastic(self):
        return self.stacked.stochastic

    def __call__(self, *inputs):
        return self.stacked(*(x[None] for x in inputs))[0]

    def distribution(self, obs):
        return tuple(x[0] for x in self.stacked.distribution(obs[None]))

    def prediction(self, obs):
        return self.stacked.prediction(obs[None])[0]

    def averaged_prediction(self, obs):
        return self.stacked.averaged_prediction(obs[None])[0]


def test_every_method_with_a_loss_of_its_own_is_here():
    losses = {id(loss) for name in NAMES for loss in METHODS[name].losses}
    assert {id(loss) for method in METHODS.values() for loss in method.losses} == losses


@pytest.mark.parametrize(("name", "backbone", "part"), NOTHING_HELD)
def test_the_gradient_is_the_losss_slope(name, backbone, part):
    agents, streams = population(name, backbone), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 20), draws(agents, streams, 20)
    row = agents.state()[part].clone().requires_grad_()
    for seed in range(3):
        assert slope_error(lambda: LOSSES[part](agents, row, batch, noise), [row], seed) < 1e-6


@pytest.mark.parametrize(("name", "backbone", "part"), CASES)
def test_one_value_per_agent_each_with_its_own_settings(name, backbone, part):
    numbers = [
        key for key, value in METHODS[name].parts()[part].items() if isinstance(value, float)
    ]
    rows = {
        key: torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64) * METHODS[name].settings()[key]
        for key in numbers
    }
    agents, streams = population(name, backbone, **rows), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 20), draws(agents, streams, 20)
    together = LOSSES[part](agents, agents.state()[part], batch, noise)
    assert together.shape == (3,)
    for j, seed in enumerate(SEEDS):
        alone_settings = {key: float(values[j]) for key, values in rows.items()}
        alone, stream = population(name, backbone, (seed,), **alone_settings), Streams((seed,))
        batch_alone, noise_alone = stacked_batch(stream, 20), draws(alone, stream, 20)
        torch.testing.assert_close(
            LOSSES[part](alone, alone.state()[part], batch_alone, noise_alone)[0], together[j]
        )


@pytest.mark.parametrize(("name", "backbone", "part"), CASES)
def test_without_a_population_axis_it_is_a_scalar(name, backbone, part):
    agents, streams = population(name, backbone, SEEDS[:1]), Streams(SEEDS[:1])
    batch, noise = stacked_batch(streams, 20), draws(agents, streams, 20)
    rows = {
        name: value for name, value in batch._asdict().items() if isinstance(value, torch.Tensor)
    }
    single = batch._replace(**{name: value[0] for name, value in rows.items()})
    inputs = [
        Unstacked(agents.networks.actor()),
        single,
        {key: draw[0] for key, draw in noise.items()},
    ]
    if part == "critic":
        inputs.insert(0, Unstacked(agents.networks.critic()))
    loss = getattr(agents.method, part)(*inputs, **agents.method_kwargs[part])
    assert loss.shape == ()
    torch.testing.assert_close(loss, LOSSES[part](agents, agents.state()[part], batch, noise)[0])
