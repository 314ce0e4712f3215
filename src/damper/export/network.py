"""A policy as a short list of operations, from which every file format is written.

From left to right: the observations' statistics if there are any, linear layers with their
activation, tanh, and the action's own range. All numbers are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from damper.activations import EXPORTABLE
from damper.engine.envs.pool import action_scale
from damper.policies.loaded import LoadedPolicy
from damper.policies.normaliser import Normaliser

Array = NDArray[np.float32]


class Step(NamedTuple):
    """One operation by its name in ONNX (and "Silu"), and its constants."""

    name: str
    constants: tuple[Array, ...] = ()


class Network(NamedTuple):
    """The operations, and the dimensions of observations and actions."""

    inputs: int
    outputs: int
    steps: tuple[Step, ...]


def build(policy: LoadedPolicy) -> Network:
    """``low + (tanh(W_k h + b_k) + 1)/2 · (high − low)`` on hidden layers ``h ← f(W h + b)``.

    Without squashing the last layer's output is cut to the bounds that are finite.
    """
    actor = policy.actor
    assert actor is not None, "a policy without layers is refused before"
    layers = [(_f32(weight), _f32(bias)) for weight, bias in actor.layers]
    steps = _normalising_steps(policy.normaliser) if policy.normaliser else []
    for layer in layers[:-1]:
        steps += [Step("Gemm", layer), Step(EXPORTABLE[actor.activation].onnx)]
    steps += [Step("Gemm", layers[-1])]
    if actor.clip_mean is not None:
        steps += [Step("Clip", (_f32(-actor.clip_mean), _f32(actor.clip_mean)))]
    low, high = _f32(policy.low), _f32(policy.high)
    if actor.squash:
        scale = Step("Mul", (_f32(action_scale(low, high)),))
        steps += [Step("Tanh"), Step("Add", (_f32(1.0),)), scale, Step("Add", (low,))]
    elif np.isfinite((low, high)).any():
        steps += [Step("Max", (np.atleast_1d(low),)), Step("Min", (np.atleast_1d(high),))]
    return Network(layers[0][0].shape[0], layers[-1][0].shape[1], tuple(steps))


def _normalising_steps(normaliser: Normaliser) -> list[Step]:
    """The normaliser in float32, its mean in two parts, to keep digits far from zero."""
    coarse, bound = _f32(normaliser.mean), _f32(normaliser.clip)
    rest = _f32(normaliser.mean - coarse)
    scale = _f32(normaliser.scale)
    steps = [Step("Sub", (coarse,)), Step("Sub", (rest,)), Step("Mul", (scale,))]
    return [*steps, Step("Clip", (-bound, bound))] if np.isfinite(bound) else steps


def _f32(values: ArrayLike) -> Array:
    return np.array(values, dtype=np.float32, order="C")


# Every operation on a batch and the step's constants, in PyTorch.
OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "Sub": lambda x, c: x - c,
    "Add": lambda x, c: x + c,
    "Mul": lambda x, c: x * c,
    "Clip": lambda x, low, high: torch.clamp(x, low, high),
    "Gemm": lambda x, weight, bias: torch.addmm(bias, x, weight),
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Tanh": torch.tanh,
    **{activation.onnx: activation.function for activation in EXPORTABLE.values()},
}


class Module(nn.Module):
    """The network in PyTorch: observations ``[batch, d]`` to actions ``[batch, A]``."""

    def __init__(self, network: Network) -> None:
        """Constants become buffers."""
        super().__init__()
        self.steps = [(step.name, len(step.constants)) for step in network.steps]
        for i, step in enumerate(network.steps):
            for j, constant in enumerate(step.constants):
                self.register_buffer(f"c{i}_{j}", torch.tensor(constant))

    def forward(self, observation: Tensor) -> Tensor:
        """Run the operations in order."""
        x = observation
        for i, (name, count) in enumerate(self.steps):
            x = OPERATIONS[name](x, *(getattr(self, f"c{i}_{j}") for j in range(count)))
        return x
