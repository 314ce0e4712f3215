"""A tape for losses on a critic's gradient with respect to the action, ``∇ₐQ``, and on its curvature.

It is ``networks.action_gradients`` and its derivative, both written by hand with the layers of
``layer_ops``. A bar marks ``∂L/∂``, a dot the tangents along v at the first B of R rows;
``s_l = f'(z_l)``, and ``b_l = f''(z_l) ż_l²``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from damper.activations import ACTIVATIONS
from damper.engine.gradients.tape import in_groups
from damper.engine.kernels import layer_ops
from damper.engine.kernels.layer import BackwardRows, LayerSlice, expand_shared
from damper.engine.networks.layout import Layout


class ActionGradientTape:
    """For M stacked critics: ``gradient = ∇ₐq``, ``[M, R, A]``, and ``curvature = vᵀ∇²ₐₐq v``, ``[M, B]``.

    Autograd does not see any of it.

    Attributes:
        below: input of every hidden layer, ``[h_{l-1}; ḣ_{l-1}]``, ``[M, R + B, ·]``; the first is
            x with v.
        above: output of every hidden layer before the activation, ``[z_l; ż_l]``, of the same form.
    """

    def __init__(
        self, layout: Layout, flat_params: Tensor, activation: str, x: Tensor, v: Tensor
    ) -> None:
        """Run the critics and their tangents forward, then the gradients with respect to hidden units backward.

        Args:
            layout: their layers.
            flat_params: their parameters ``[M, n]``.
            activation: f.
            x: inputs ``[M, R, d + A]``, observations before actions; ``[M/2, R, d + A]`` if two
                networks share theirs.
            v: directions ``[M or M/2, B, A]`` at x's first B rows.
        """
        *self.hidden, self.head = layout.layer_slices
        self.flat_params, self.activation = flat_params, ACTIVATIONS[activation]
        self.R, (self.B, self.A) = x.shape[1], v.shape[1:]
        self.below = [torch.cat((x, F.pad(v, (x.shape[-1] - self.A, 0))), 1)]
        self.above: list[Tensor] = []
        for i, layer in enumerate(self.hidden):
            z, _ = layer_ops.forward(
                flat_params, layer, self.below[-1], for_backward=False, biased=self.R
            )
            self.above.append(z)
            if i + 1 < len(self.hidden):
                self.below.append(torch.cat(self._activated(z), 1))
        self._backward_to_actions(v)

    def _activated(self, z: Tensor) -> tuple[Tensor, Tensor]:
        h, activation_grad = self.activation.with_grad(z[:, : self.R])
        return h, activation_grad[:, : self.B] * z[:, self.R :]

    def _activation_grad(self, i: int) -> Tensor:
        return self.activation.with_grad(self.above[i][:, : self.R])[1]

    def _second_derivative(self, i: int) -> Tensor:
        return self.activation.second_derivative(self.above[i][:, : self.R])

    def _backward_to_actions(self, v: Tensor) -> None:
        """``u_L = w``, ``p_l = u_l s_l``, ``u_{l-1} = p_l W_lᵀ``, and the curvature ``Σ_l u_l · b_l``."""
        u, terms = self.head.weights(self.flat_params).mT, []
        self.u: list[Tensor] = []
        self.p: list[Tensor] = []
        for i in reversed(range(len(self.hidden))):
            terms.append(u[:, : self.B] * self._curvature_term(i))
            self.u.insert(0, u)
            self.p.insert(0, u * self._activation_grad(i))
            layer, x = (
                (self.hidden[i], self.below[i]) if i else (_last_inputs(self.hidden[0], self.A), v)
            )
            back = layer_ops.backward(
                self.flat_params, layer, x, self.p[0], BackwardRows.whole(self.R, [self.R])
            )
            assert back is not None
            u = back
        self.gradient, self.curvature = u, torch.cat(terms, -1).sum(-1)

    def _curvature_term(self, i: int) -> Tensor:
        return self._second_derivative(i)[:, : self.B] * self.above[i][:, self.R :].square()

    def gradients(self, gradient_bar: Tensor, curvature_bar: Tensor) -> Tensor:
        """Flat gradients ``[M, n]`` of a loss, given its derivatives with respect to ``gradient`` and ``curvature``.

        Every layer's weights take part in three passes:
        ``W̄_l = [h_{l-1}; ḣ_{l-1}]ᵀ [z̄_l; ż̄_l] + ū_{l-1}ᵀ p_l``; biases only in the first. For
        few networks on a GPU, one product of all these rows is faster.
        """
        c_bar, total = curvature_bar.unsqueeze(-1), 2 * self.R + self.B
        joint = self.R % self.B == 0 and in_groups(self.flat_params, total, self.B)
        groups = (self.B,) * (total // self.B) if joint else (self.R + self.B,)
        rows = BackwardRows(
            sum(groups), groups, input_grad_rows=self.R + self.B, biased_rows=self.R
        )
        unbiased = BackwardRows(self.R, (self.R,), input_grad_rows=0, biased_rows=0)
        counts = [len(groups)] if joint else [len(groups), 1]
        grads = [layer_ops.alloc_grads(self.flat_params, count) for count in counts]
        inputs, p_bars, w_bar = self._through_activation_grads(gradient_bar, c_bar, joint)
        for i in range(0 if joint else len(self.hidden)):
            layer_ops.backward(
                self.flat_params, self.hidden[i], inputs[i], self.p[i], unbiased, gradients=grads[1]
            )
        back: Tensor | None = None
        for i in reversed(range(len(self.hidden))):
            x, d = self.below[i], [*self._through_layer(i, p_bars[i], c_bar, back)]
            if joint:
                x, d = inputs[i], [*d, self.p[i]]
            layer_rows = rows if i else replace(rows, input_grad_rows=0)
            back = layer_ops.backward(
                self.flat_params, self.hidden[i], x, torch.cat(d, 1), layer_rows, gradients=grads[0]
            )
        return self._joined(grads, w_bar)

    def _through_activation_grads(
        self, gradient_bar: Tensor, c_bar: Tensor, joint: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """``p̄_l = ū_{l-1} W_l`` and ``ū_l = p̄_l s_l + c̄ b_l``, starting with ``ū_0``, which is ḡ at the actions.

        Returns:
            ``ū_{l-1}`` of every layer, after ``h_{l-1}`` and ``ḣ_{l-1}`` if joint, its ``p̄_l``,
            and ``w̄ = Σ ū_L``.
        """
        below, padded = self.below[0], F.pad(gradient_bar, (self.below[0].shape[-1] - self.A, 0))
        inputs = [
            torch.cat((expand_shared(below, self.flat_params), padded), 1) if joint else padded
        ]
        u_bar, p_bars = gradient_bar, []
        for i, layer in enumerate((_last_inputs(self.hidden[0], self.A), *self.hidden[1:])):
            p_bar, _ = layer_ops.forward(
                self.flat_params, layer, u_bar, for_backward=False, biased=0
            )
            p_bars.append(p_bar)
            u_bar = p_bar * self._activation_grad(i) + self._padded(c_bar * self._curvature_term(i))
            if i + 1 == len(self.hidden):
                break
            if joint:
                # Recompute the activations: the compiler then writes all three parts at once
                # instead of copying two.
                inputs.append(torch.cat((*self._activated(self.above[i]), u_bar), 1))
                u_bar = inputs[-1][
                    :, self.R + self.B :
                ]  # one copy in memory, for this product and that of the weights
            else:
                inputs.append(u_bar)
        return inputs, p_bars, u_bar.sum(1)

    def _through_layer(
        self, i: int, p_bar: Tensor, c_bar: Tensor, back: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """``z̄ = s̄ f'' + h̄ s``, plus ``b̄ f''' ż² + ḣ̄ f'' ż`` in the first B rows, and ``ż̄ = 2 b̄ f'' ż + ḣ̄ s``.

        Here ``s̄ = p̄ u`` and ``b̄ = c̄ u``; ``back`` is h̄ and ḣ̄, zero for the last layer.
        """
        z, dz = self.above[i].split((self.R, self.B), 1)
        activation_grad, second, u = self._activation_grad(i), self._second_derivative(i), self.u[i]
        b_bar, second_dz = c_bar * u[:, : self.B], second[:, : self.B] * dz
        z_bar, extra = (
            p_bar * u * second,
            b_bar * self.activation.third_derivative(z[:, : self.B]) * dz.square(),
        )
        dz_bar = 2.0 * b_bar * second_dz
        if back is not None:
            h_bar, dh_bar = back.split((self.R, self.B), 1)
            z_bar, extra = z_bar + h_bar * activation_grad, extra + dh_bar * second_dz
            dz_bar = dz_bar + dh_bar * activation_grad[:, : self.B]
        return z_bar + self._padded(extra), dz_bar

    def _padded(self, first: Tensor) -> Tensor:
        return F.pad(first, (0, 0, 0, self.R - self.B))

    def _joined(self, grads: Sequence[Any], w_bar: Tensor) -> Tensor:
        """The gradient of all layers; that of the last bias is zero."""
        size, start = self.flat_params.shape[1], self.head.weight_offset
        if isinstance(grads[0], list):
            grads[0][0].update(
                self.head.pieces(w_bar.unsqueeze(-1), torch.zeros_like(w_bar[:, :1]))
            )
        parts = [part for group in grads for part in layer_ops.collect_grads(group, size)]
        gradient = functools.reduce(torch.add, parts)
        if isinstance(grads[0], list):
            return gradient
        value = F.pad(w_bar, (start, size - start - self.head.inputs))
        return torch.where(torch.arange(size, device=gradient.device) < start, gradient, value)


def _last_inputs(layer: LayerSlice, count: int) -> LayerSlice:
    """The part of a layer that belongs to its last ``count`` inputs."""
    skipped = (layer.inputs - count) * layer.outputs_per_head
    return replace(layer, inputs=count, weight_offset=layer.weight_offset + skipped)
