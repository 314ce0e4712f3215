"""A critic's gradient with respect to the action, ``∇ₐQ``, and its curvature, written by hand layer by layer.

A critic of L hidden layers is ``z_1 = x W_1 + b_1``, ``h_l = f(z_l)``,
``z_{l+1} = h_l W_{l+1} + b_{l+1}`` and ``q = h_L w + b``. Its derivatives with respect to the
action are then products and sums like the critic itself, and a loss on them needs to be
differentiated only once, with respect to the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from damper.activations import ACTIVATIONS


def repeat_action(observations: Sequence[Tensor], action: Tensor) -> Tensor:
    """Inputs ``[P, R, d + A]``: the same action at each of several observations, concatenated along the rows."""
    return torch.cat([torch.cat((obs, action), -1) for obs in observations], -2)


def by_agent(gradient: Tensor, curvature: Tensor, count: int) -> tuple[list[Tensor], Tensor]:
    """Group outputs of 2P networks by agent: ``count`` gradients ``[P, 2, B, A]``, and curvature ``[P, 2, B]``."""
    return list(gradient.unflatten(0, (-1, 2)).chunk(count, -2)), curvature.unflatten(0, (-1, 2))


def action_gradients(
    layers: Sequence[tuple[Tensor, Tensor]], activation: str, x: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    r"""``g = ∇ₐq`` at every row of x, ``[M, R, A]``, and ``vᵀ∇²ₐₐq v`` at the first B rows, ``[M, B]``.

    The forward pass runs x and, along ``a + t v``, its tangents: ``z_1' = v W_1[a]``,
    ``h_l' = f'(z_l) z_l'`` and ``z_{l+1}' = h_l' W_{l+1}``, where ``W_1[a]`` are the actions' rows.
    The backward pass runs the hidden units' gradients, ``u_L = w`` and
    ``u_{l-1} = (u_l f'(z_l)) W_lᵀ``, and ends with ``g = (u_1 f'(z_1)) W_1[a]ᵀ``. The second
    derivative along the line is a sum over the layers: ``vᵀ∇²ₐₐq v = Σ_l u_l · (f''(z_l) z_l'²)``.

    Args:
        layers: weights ``[M, in, out]`` and biases ``[M, 1, out]`` of M networks, the output layer
            last.
        activation: f.
        x: inputs ``[M, R, d + A]``, observations before actions.
        v: directions ``[M, B, A]`` at x's first B rows.
    """
    f, (*hidden, (w, _)) = ACTIVATIONS[activation], layers
    R, (B, A) = x.shape[1], v.shape[1:]
    activation_grads, curvature_terms = [], []
    h, dh = x, F.pad(v, (x.shape[-1] - A, 0))
    for W, b in hidden:
        # Tangents are more rows of the same product.
        z, dz = torch.bmm(torch.cat((h, dh), 1), W).split((R, B), 1)
        z = z + b
        h, activation_grad = f.with_grad(z)
        dh = activation_grad[:, :B] * dz
        activation_grads.append(activation_grad)
        curvature_terms.append(f.second_derivative(z[:, :B]) * dz.square())
    u, curvature = w.mT, torch.zeros_like(v[..., 0])
    for i in reversed(range(len(hidden))):
        W = hidden[i][0] if i else hidden[i][0][:, -A:]
        curvature = curvature + (u[:, :B] * curvature_terms[i]).sum(-1)
        u = torch.bmm(u * activation_grads[i], W.mT)
    return u, curvature
