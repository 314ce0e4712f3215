"""Progress of training: a bar and a live table in a terminal, otherwise a line every 15 seconds."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from damper.engine.settings import Settings
from damper.seed_groups import group_by_settings, group_mean
from damper.terminal import console, fit

COLUMNS = {
    "mean_change": ("mean |Δa|", "{:.4f}"),
    "return": ("return", "{:.1f}"),
    "sm": ("sm", "{:.3f}"),
    "conflict": ("conflict", "{:.0%}"),
    "cosine": ("cosine", "{:+.2f}"),
    "norm_ratio": ("n_T/n_R", "{:.2g}"),
    "weight": ("weight", "{:.2f}"),
}
EPISODE_COLUMNS = ("mean_change", "return", "sm")  # shown before there is a value
SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_TABLES = 15.0, 0.5
MEASURED_UPDATES = 100  # before them, random steps would make the time left look short


class Progress:
    """A metrics writer of the trainer; the last table stays after ``close``."""

    def __init__(self, settings: Settings) -> None:
        """Start drawing, with one row per group of agents that differ only in seed."""
        agents = settings.agents()
        self.settings, self.console = settings, console()
        self.groups = group_by_settings(agents)
        self.latest: dict[str, list[float | None]] = {
            name: [None] * len(agents) for name in EPISODE_COLUMNS
        }
        self.step, self.frozen = 0, 0
        self.first_update: tuple[int, int, float] | None = None  # updates, step and time
        self.seconds_per_step: float | None = None
        self.live = (
            Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        )
        self.shown_at = 0.0
        if self.live:
            self.live.start()
        self._show()

    def close(self) -> None:
        """Stop drawing."""
        if self.live:
            self.live.stop()

    def __call__(self, line: dict[str, Any]) -> None:
        """Take one metrics line; an agent without a finished episode keeps its last value."""
        for name in COLUMNS:
            values = line.get(name)
            if values is not None:
                kept = self.latest.get(name) or [None] * len(values)
                self.latest[name] = [
                    new if new is not None else old for new, old in zip(values, kept, strict=True)
                ]
        self.step, self.frozen = line["step"], sum(at >= 0 for at in line["frozen"])
        if self.live or self.step >= self.settings.steps:
            self._show()

    def after_step(self, step: int, updates: int) -> None:
        """Measure what a step costs once updates are made, and show it from time to time."""
        now, self.step = time.monotonic(), step
        first_cost = False
        if self.first_update is None:
            self.first_update = (updates, step, now) if updates else None
        elif updates - self.first_update[0] >= MEASURED_UPDATES:
            first_cost = self.seconds_per_step is None
            self.seconds_per_step = (now - self.first_update[2]) / (step - self.first_update[1])
        pause = SECONDS_BETWEEN_TABLES if self.live else SECONDS_BETWEEN_LINES
        if (first_cost or now - self.shown_at > pause) and step < self.settings.steps:
            self._show()

    def _show(self) -> None:
        self.shown_at = time.monotonic()
        if self.live:
            bar = Padding(ProgressBar(self.settings.steps, self.step, width=60), 0)
            self.live.update(Group(Text(self._title()), bar, self._table()), refresh=True)
        else:
            self.console.print(self._sentence(), highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        header = [
            "agents" if len(self.groups) == 1 else "group",
            *(COLUMNS[name][0] for name in self.latest),
        ]
        rows = []
        for label, members in self.groups.items():
            cells = [
                _cell(group_mean(values, members), COLUMNS[name][1])
                for name, values in self.latest.items()
            ]
            rows.append(
                [f"{len(members)}" if label == "all" else f"{label} ×{len(members)}", *cells]
            )
        return fit(header, rows, self.console)[0]

    def _title(self) -> str:
        settings, cost = self.settings, self.seconds_per_step
        if cost is None:
            pace = f"the time left is estimated after {MEASURED_UPDATES} updates"
        else:
            left = _duration((settings.steps - self.step) * cost)
            pace = f"{1 / cost:,.0f} steps/s, {left} left"
        note = f", {self.frozen} frozen (not finite)" if self.frozen else ""
        return (
            f"{settings.env_id} {settings.backbone} {settings.method}: step {self.step:,} of "
            f"{settings.steps:,}, {pace}{note}"
        )

    def _sentence(self) -> str:
        means = {
            name: group_mean(self.latest[name], range(len(self.latest[name])))
            for name in ("mean_change", "return")
        }
        shown = ", ".join(
            f"{COLUMNS[name][0]} {_cell(value, COLUMNS[name][1])}"
            for name, value in means.items()
            if value is not None
        )
        return f"{self._title()}; {shown}" if shown else self._title()


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {seconds:02d}s"
