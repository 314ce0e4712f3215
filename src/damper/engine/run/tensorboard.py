"""Training metrics for TensorBoard: one run of its per group of agents that differ in seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from damper.engine.settings import Settings
from damper.errors import MissingExtraError
from damper.seed_groups import group_by_settings, group_mean


def find_writer() -> Any:
    """Torch's ``SummaryWriter``; raises if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError(
            'tensorboard needs its package: pip install "damper-rl[tensorboard]".'
        ) from error
    return SummaryWriter


class TensorBoard:
    """A metrics writer of the trainer that writes each group's means under ``folder``.

    Entries after ``step``, from which a run resumes, are purged.
    """

    def __init__(self, settings: Settings, folder: Path, step: int = 0) -> None:
        writer, self.groups = find_writer(), group_by_settings(settings.agents())
        self.writers = {
            label: writer(str(folder / label.replace(" ", "_")), purge_step=step + 1)
            for label in self.groups
        }

    def close(self) -> None:
        """Close the files."""
        for writer in self.writers.values():
            writer.close()

    def __call__(self, line: dict[str, Any]) -> None:
        """Write one metrics line."""
        self._write("train", line)
        for writer in self.writers.values():
            writer.add_scalar("train/steps_per_second", line["steps_per_second"], line["step"])
            writer.flush()

    def evaluated(self, line: dict[str, Any]) -> None:
        """Write one line of evaluations."""
        self._write("eval", line)

    def _write(self, kind: str, line: dict[str, Any]) -> None:
        for label, members in self.groups.items():
            for name, values in line.items():
                if isinstance(values, list) and not name.startswith("frozen"):
                    value = group_mean(values, members)
                    if value is not None:
                        self.writers[label].add_scalar(f"{kind}/{name}", value, line["step"])
