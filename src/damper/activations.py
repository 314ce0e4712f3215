"""The activations of networks, with derivatives; a new one is a line in ``ACTIVATIONS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Activation(NamedTuple):
    """An activation f; every function is elementwise.

    Attributes:
        function: ``f(z)``, for autograd to differentiate.
        module: the same as a PyTorch module, for SB3's ``activation_fn``.
        with_grad: ``f(z)`` and ``f'(z)``, for hand-written gradients.
        second_derivative: ``f''(z)``.
        onnx: the ONNX operator, or "Silu", which `export/files.py` writes as two.
    """

    function: Callable[[Tensor], Tensor]
    module: type[nn.Module]
    with_grad: Callable[[Tensor], tuple[Tensor, Tensor]]
    second_derivative: Callable[[Tensor], Tensor]
    onnx: str


class ExportableActivation(NamedTuple):
    """An activation as exported files need it, without derivatives."""

    module: type[nn.Module]
    function: Callable[[Tensor], Tensor]
    onnx: str


def _silu(z: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(z)
    h = z * s
    return h, s + h * (1.0 - s)


def _relu(z: Tensor) -> tuple[Tensor, Tensor]:
    return F.relu(z), (z > 0).to(z.dtype)


def _tanh(z: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(z)
    return h, 1.0 - h.square()


def _silu_second(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1.0 - s) * (2.0 + z * (1.0 - 2.0 * s))


def _tanh_second(z: Tensor) -> Tensor:
    h = torch.tanh(z)
    return -2.0 * h * (1.0 - h.square())


# ReLU's second derivative is zero almost everywhere; autograd gives zero at the kink too.
ACTIVATIONS = {
    "silu": Activation(F.silu, nn.SiLU, _silu, _silu_second, "Silu"),
    "relu": Activation(F.relu, nn.ReLU, _relu, torch.zeros_like, "Relu"),
    "tanh": Activation(torch.tanh, nn.Tanh, _tanh, _tanh_second, "Tanh"),
}
NAME_BY_MODULE = {activation.module: name for name, activation in ACTIVATIONS.items()}
# Exported files may also have ELU, rsl_rl's default, which the engine does not train.
EXPORTABLE: dict[str, Activation | ExportableActivation] = {
    **ACTIVATIONS,
    "elu": ExportableActivation(nn.ELU, F.elu, "Elu"),
}
EXPORTABLE_NAME_BY_MODULE = {activation.module: name for name, activation in EXPORTABLE.items()}


def known_modules(names: Mapping[type[nn.Module], str] = NAME_BY_MODULE) -> str:
    """Names of the PyTorch modules that can be converted, for messages: "SiLU, ReLU or Tanh"."""
    *most, last = (module.__name__ for module in names)
    return f"{', '.join(most)} or {last}"
