"""Whole updates composed as on a GPU, with interpreted kernels, beside eager ones by autograd.

``TRITON_INTERPRET=1 python -m tests.engine.interpreted_updates`` prints relative differences of
parameters and moments.
"""

from __future__ import annotations

import json
from unittest import mock

import torch
from torch import Tensor

from damper.engine.fused import layer_ops, tape
from damper.engine.update.learner import Learner
from tests.engine import layers, small
from tests.engine.kernel_cases import interpreted, spoiled_alloc_grads

# Between them: losses that share passes with and without a rule, second derivatives, several heads,
# an average actor.
CASES = (("td3", "damper"), ("td3", "pave"), ("sac", "asap"), ("sac", "l2c2"))
UPDATES = 2  # TD3's first is without the actors


def updated(backbone: str, method: str, compile: bool) -> dict[str, Tensor]:
    """Parameters, targets and moments after a few updates."""
    learner = small.learner(small.settings(backbone, method, net_arch=(40, 24), compile=compile))
    for _ in range(UPDATES):
        learner.update()
    return {
        name: state
        for name, state in learner.state().items()
        if name.startswith(("actor", "critic"))
    }


def updated_as_on_a_gpu(backbone: str, method: str) -> dict[str, Tensor]:
    """The same, not compiled, with what is chosen by the device chosen as on a GPU."""
    with (
        mock.patch.object(Learner, "compiled", lambda learner, function: function),
        mock.patch.multiple(layer_ops, _kernels=interpreted, alloc_grads=spoiled_alloc_grads),
        mock.patch.object(tape, "in_groups", return_value=True),
    ):
        return updated(backbone, method, compile=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    differences = {}
    for case in CASES:
        expected, found = updated(*case, compile=False), updated_as_on_a_gpu(*case)
        differences |= {
            " ".join((*case, name)): layers.apart(found[name], expected[name]) for name in expected
        }
    print(json.dumps(differences))
