"""Progress of training: a live table in a terminal, otherwise a line every 15 seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.live import Live
from rich.table import Table

from damper.engine.settings import Settings
from damper.seed_groups import group_by_settings, group_mean
from damper.terminal import console, fit

COLUMNS = {
    "return": ("return", "{:.1f}"),
    "sm": ("sm", "{:.3f}"),
    "mean_change": ("mean |Δa|", "{:.4f}"),
    "conflict": ("conflict", "{:.0%}"),
    "cosine": ("cosine", "{:+.2f}"),
    "norm_ratio": ("n_T/n_R", "{:.2g}"),
    "weight": ("weight", "{:.2f}"),
}
SECONDS_BETWEEN_LINES = 15.0


class Progress:
    """A metrics writer of the trainer, one row per group of agents that differ only in seed.

    The last table stays after ``close``.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.console = settings, console()
        self.groups = group_by_settings(settings.agents())
        self.latest: dict[str, list[float | None]] = {}
        self.live: Live | None = None
        self.shown_at = 0.0
        if self.console.is_terminal:
            self.live = Live(console=self.console, auto_refresh=False)
            self.live.start()

    def close(self) -> None:
        """Stop drawing."""
        if self.live:
            self.live.stop()

    def __call__(self, line: dict[str, Any]) -> None:
        """Show one metrics line; an agent without a finished episode keeps its last value."""
        for name in COLUMNS:
            values = line.get(name)
            if values is not None:
                before = self.latest.get(name) or [None] * len(values)
                pairs = zip(values, before, strict=True)
                self.latest[name] = [old if new is None else new for new, old in pairs]
        if self.live:
            self.live.update(self._table(line), refresh=True)
            return
        now = time.monotonic()
        if now - self.shown_at > SECONDS_BETWEEN_LINES or line["step"] >= self.settings.steps:
            self.shown_at = now
            self.console.print(self._sentence(line), highlight=False, soft_wrap=True)

    def _table(self, line: dict[str, Any]) -> Table:
        first = "agents" if len(self.groups) == 1 else "group"
        header = [first, *(COLUMNS[name][0] for name in self.latest)]
        rows = []
        for label, members in self.groups.items():
            row = [f"{len(members)}" if label == "all" else f"{label} ×{len(members)}"]
            row += [self._mean(name, members) for name in self.latest]
            rows.append(row)
        table, _ = fit(header, rows, self.console)
        table.title, table.title_justify = self._title(line), "left"
        return table

    def _title(self, line: dict[str, Any]) -> str:
        settings, speed = self.settings, line["steps_per_second"]
        left = (settings.steps - line["step"]) / speed if speed else 0.0
        frozen = sum(at >= 0 for at in line["frozen"])
        note = f", {frozen} frozen (not finite)" if frozen else ""
        return (
            f"{settings.env_id} {settings.backbone} {settings.method}: step {line['step']:,} of "
            f"{settings.steps:,}, {speed:,.0f} steps/s, {_duration(left)} left{note}"
        )

    def _sentence(self, line: dict[str, Any]) -> str:
        everyone = range(len(line["frozen"]))
        names = [name for name in ("return", "sm") if name in self.latest]
        means = [f"{name} {self._mean(name, everyone)}" for name in names]
        return f"{self._title(line)}; {', '.join(means)}" if means else self._title(line)

    def _mean(self, name: str, members: Sequence[int]) -> str:
        value = group_mean(self.latest[name], members)
        return "–" if value is None else COLUMNS[name][1].format(value)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {seconds:02d}s"
