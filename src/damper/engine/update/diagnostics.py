"""Diagnostics of updates for the metrics log: names by group, and sums between two lines.

To add one, put its name into a group here and its value ``[P]`` under that name into a step's logs:
for a loss in ``Objectives`` (``engine/gradients.py``), for a gradient or a parameter change in
``engine/update/population.py``: ``step_critic`` and ``step_actor``. A diagnostic of a rule is a
field of ``damper.rules.GradientReport``; ``RULE_DIAGNOSTICS`` then has it too.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from damper.methods import Method
from damper.rules import GradientReport

CRITIC_DIAGNOSTICS = ("critic_loss",)  # at every critic step
ACTOR_DIAGNOSTICS = ("actor_loss",)  # at every actor step
AUXILIARY_DIAGNOSTICS = ("auxiliary_loss",)  # at actor steps, for methods with an actor loss
# At actor steps, for methods with a rule.
RULE_DIAGNOSTICS = tuple(name for name in GradientReport._fields if name != "state")


class Diagnostics:
    """Sums of updates' logs on the device, read by ``pop_means``.

    Attributes:
        sums: ``[names, P]``, one row per name of every group; a method without a rule leaves the
            last rows zero.
        counts: ``[2]``, the critic steps and actor steps that were added.
    """

    def __init__(self, method: Method, n_agents: int, device: torch.device) -> None:
        self.actor_names: tuple[str, ...] = ACTOR_DIAGNOSTICS
        if method.actor:
            self.actor_names += AUXILIARY_DIAGNOSTICS
            if method.rule:
                self.actor_names += RULE_DIAGNOSTICS
        # Rows for every group, used or not: checkpoints of all methods have one shape.
        actor_rows = len((*ACTOR_DIAGNOSTICS, *AUXILIARY_DIAGNOSTICS, *RULE_DIAGNOSTICS))
        first = len(CRITIC_DIAGNOSTICS)
        self.sums = torch.zeros(first + actor_rows, n_agents, dtype=torch.float64, device=device)
        self.counts = torch.zeros(2, dtype=torch.float64, device=device)
        self._critic_rows = slice(first)
        self._actor_rows = slice(first, first + len(self.actor_names))

    @property
    def names(self) -> list[str]:
        """Names of the rows of ``sums`` that are used."""
        return [*CRITIC_DIAGNOSTICS, *self.actor_names]

    def state(self) -> dict[str, Tensor]:
        """The tensors by their names in a checkpoint."""
        return {"diagnostics": self.sums, "diagnosed": self.counts}

    def add(self, logs: Mapping[str, Tensor], of_actor: bool) -> None:
        """Add the logs of a critic's or an actor's step; compiled and in CUDA graphs too."""
        names = self.actor_names if of_actor else CRITIC_DIAGNOSTICS
        rows = self._actor_rows if of_actor else self._critic_rows
        # Stacked first: one addition for the group instead of one per name.
        self.sums[rows] += torch.stack([logs[name].detach().to(torch.float64) for name in names])
        self.counts[int(of_actor)] += 1

    def pop_means(self) -> dict[str, list[float]]:
        """Means per agent since the last call; waits for the device."""
        # Two reads for all names: each waits for the device.
        sums, (critic_steps, actor_steps) = self.sums.tolist(), self.counts.tolist()
        self.sums.zero_()
        self.counts.zero_()
        means = {}
        for name, row in zip(self.names, sums, strict=False):  # unused rows are the last
            steps = critic_steps if name in CRITIC_DIAGNOSTICS else actor_steps
            if steps:
                means[name] = [value / steps for value in row]
        return means
