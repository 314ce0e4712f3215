"""Diagnostics of updates for the metrics log: their names by group, and sums per agent between two log lines.

To add one, put its name into a group here and its value ``[P]`` under that name into a step's logs:
for a loss in ``engine/gradients/objectives.py``, for a gradient or a parameter change in
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
RULE_DIAGNOSTICS = tuple(
    name for name in GradientReport._fields if name != "state"
)  # and those with a rule too


class Diagnostics:
    """Sums of updates' logs on the device, read by ``pop_means``.

    Attributes:
        sums: ``[names, P]``, one row per name of every group; a method without a rule leaves the
            last rows zero.
        counts: ``[2]``, the critic steps and actor steps that were added.
    """

    def __init__(self, method: Method, n_agents: int, device: torch.device) -> None:
        """All sums and counts start at zero."""
        rows = len(
            (*CRITIC_DIAGNOSTICS, *ACTOR_DIAGNOSTICS, *AUXILIARY_DIAGNOSTICS, *RULE_DIAGNOSTICS)
        )
        self.sums = torch.zeros(rows, n_agents, dtype=torch.float64, device=device)
        self.counts = torch.zeros(2, dtype=torch.float64, device=device)
        self.actor_names = (
            ACTOR_DIAGNOSTICS
            + (AUXILIARY_DIAGNOSTICS if method.actor else ())
            + (RULE_DIAGNOSTICS if method.actor and method.rule else ())
        )

    @property
    def names(self) -> list[str]:
        """Names of the rows of ``sums`` that are used."""
        return [*CRITIC_DIAGNOSTICS, *self.actor_names]

    def state(self) -> dict[str, Tensor]:
        """The tensors by their names in a checkpoint."""
        return {"diagnostics": self.sums, "diagnosed": self.counts}

    def add_critic(self, logs: Mapping[str, Tensor]) -> None:
        """Add a critic step's logs; runs inside a compiled update and a CUDA graph."""
        self._add(0, CRITIC_DIAGNOSTICS, slice(len(CRITIC_DIAGNOSTICS)), logs)

    def add_actor(self, logs: Mapping[str, Tensor]) -> None:
        """Add an actor step's logs, likewise."""
        self._add(
            1,
            self.actor_names,
            slice(len(CRITIC_DIAGNOSTICS), len(CRITIC_DIAGNOSTICS) + len(self.actor_names)),
            logs,
        )

    def _add(
        self, kind: int, names: tuple[str, ...], rows: slice, logs: Mapping[str, Tensor]
    ) -> None:
        self.sums[rows] += torch.stack([logs[name].detach().to(torch.float64) for name in names])
        self.counts[kind] += 1

    def pop_means(self) -> dict[str, list[float]]:
        """Means per agent since the last call; waits for the device."""
        sums, (critic_steps, actor_steps) = self.sums.tolist(), self.counts.tolist()
        self.sums.zero_()
        self.counts.zero_()
        steps = dict.fromkeys(CRITIC_DIAGNOSTICS, critic_steps) | dict.fromkeys(
            self.actor_names, actor_steps
        )
        rows = zip(steps.items(), sums, strict=False)
        return {name: [value / count for value in row] for (name, count), row in rows if count}
