"""``damper export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from damper.errors import DamperError
from damper.export import export
from damper.export.files import contract_path
from damper.export.measure import EPISODES


@dataclass
class Export:
    """Write a trained policy to a file that runs anywhere: tanh, action range and normalisation inside."""

    source: tyro.conf.Positional[Path]
    """A run's folder, a policy file, or a Stable-Baselines3 zip (with or without its ending)."""
    to: Path
    """The file to write: policy.onnx, or policy.pt2 for PyTorch; its contract, policy.onnx.json, goes beside it."""
    agent: int = 0
    """Which agent of a run."""
    env: str | None = None
    """The environment's id, where the source does not tell it; the contract's smoothness is measured there."""
    vecnormalize: Path | None = None
    """Statistics that VecNormalize saved; they go inside."""
    check: bool = True
    """Run the file on thousands of observations and compare with the original."""
    trust: bool = False
    """Allow unpickling: it runs whatever code the file carries."""
    episodes: int = EPISODES
    """Episodes to measure the contract's smoothness on, where no evaluation lies beside the source; 0 for none."""
    force: bool = False
    """Replace files of these names also where no export wrote them."""

    def run(self) -> None:
        """Write, check, tell."""
        if self.episodes < 0:
            raise DamperError(f"episodes must be at least 0, but {self.episodes} was given: 0 measures nothing.")
        options = self.agent, self.env, self.vecnormalize, self.check, self.trust, self.episodes, self.force
        contract = export(self.source, self.to, *options)
        console = Console()
        shapes = (contract[part]["shape"][1] for part in ("observation", "action"))
        console.print("{}: {} numbers in, {} out; contract in {}".format(self.to, *shapes, contract_path(self.to)))
        if self.check:
            seen = contract["check"]
            worst, count = seen["largest_difference"], seen["observations"]
            console.print(f"largest difference from the original on {count} observations: {worst:.1e}", highlight=False)
        console.print(self._smoothness(contract), highlight=False, soft_wrap=True)

    def _smoothness(self, contract: dict[str, Any]) -> str:
        """What the contract says of it, or why it says nothing."""
        found = contract["smoothness"]
        if found is not None:
            means = f"return {found['return']:.1f}, sm {found['smoothness']:.3f}, mean|Δa| {found['mean_change']:.4f}"
            return f"{found['episodes']} episodes of {found['env']}: {means}"
        if self.episodes == 0:
            return "smoothness in the contract is null, as --episodes 0 asks."
        named = (
            f"{contract['env']} cannot be made here"
            if contract["env"]
            else f"{self.source} names no environment that fits"
        )
        return f"smoothness in the contract is null, because {named}: name one with --env to have it measured."
