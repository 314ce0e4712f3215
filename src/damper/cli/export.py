"""``damper export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from damper.export import export


@dataclass
class Export:
    """Write a trained policy to a file that runs anywhere: tanh, action range and normalisation inside."""

    source: tyro.conf.Positional[Path]
    """A run's folder, a policy file, or a Stable-Baselines3 zip."""
    to: Path
    """The file to write: policy.onnx, or policy.pt2 for PyTorch; a contract in JSON is written beside it."""
    agent: int = 0
    """Which agent of a run."""
    env: str | None = None
    """The environment's id, where the source does not tell it."""
    vecnormalize: Path | None = None
    """Statistics that VecNormalize saved; they go inside."""
    check: bool = True
    """Run the file on thousands of observations and compare with the original."""
    trust: bool = False
    """Allow unpickling: it runs whatever code the file carries."""

    def run(self) -> None:
        """Write, check, tell."""
        contract = export(self.source, self.to, self.agent, self.env, self.vecnormalize, self.check, self.trust)
        console = Console()
        shapes = (contract[part]["shape"][1] for part in ("observation", "action"))
        console.print(
            "{}: {} numbers in, {} out; contract in {}".format(self.to, *shapes, self.to.with_suffix(".json"))
        )
        if self.check:
            seen = contract["check"]
            worst, count = seen["largest_difference"], seen["observations"]
            console.print(f"largest difference from the original on {count} observations: {worst:.1e}", highlight=False)
