"""``damper inspect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from damper.cli.options.inspect import Inspect
from damper.errors import DamperError, MissingExtraError
from damper.files import check_folder, write_json
from damper.inspection import Inspection, inspect_log, read_log
from damper.inspection.measures import SHORTEST_LOG
from damper.plots.inspection import draw_inspection
from damper.terminal import joined, quoted, say, show

MEANINGS = {
    "quiet": "does not shake",
    "policy": "shakes, but not at one frequency together with an observation; the policy passes "
    "noise on or jumps: train it smoother, or filter its observations",
    "loop": "oscillates at one frequency together with an observation: look at delay and gains "
    "first, a smoother policy alone may not cure it",
    "unknown": "shakes; to tell the policy from delay and gains, give --observations and a log of "
    f"at least {SHORTEST_LOG} steps",
}


def run(options: Inspect) -> None:
    """Measure the logs, show and save what was measured."""
    paths = [options.log, *([options.other] if options.other else [])]
    out = options.out or options.log.with_name(f"{options.log.name}-inspection")
    check_folder("out", out)
    columns = (options.actions, options.observations, options.time, options.dt)
    logs = {name: read_log(path, *columns) for name, path in zip(_names(paths), paths, strict=True)}
    if len({log.action_names for log in logs.values()}) > 1:
        raise DamperError(
            "two logs must have the same actions, but these have others: name the actions that "
            "both have with --actions."
        )
    inspections = {
        name: inspect_log(log, options.low or None, options.high or None, options.above)
        for name, log in logs.items()
    }
    _show(inspections)
    write_json(out / "inspection.json", {name: i.to_json() for name, i in inspections.items()})
    try:
        picture = draw_inspection(logs, inspections, out / "inspection.png")
    except MissingExtraError as error:
        say(f"measures in {quoted(out / 'inspection.json')}; {error}")
    else:
        say(f"measures and picture in {quoted(out)} ({picture.name})")


def _names(paths: Sequence[Path]) -> list[str]:
    """Names that tell the logs apart."""
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    if len(set(paths)) < len(paths):
        raise DamperError(f"the second log must be another one, but {paths[0]} was given twice.")
    return [str(path) for path in paths]


def _show(inspections: Mapping[str, Inspection]) -> None:
    """One table, the logs below each other for every action; below it what it means."""
    some = next(iter(inspections.values()))
    unit = "Hz" if some.period else "/step"
    columns = {  # title and form by measure
        "mean_change": ("change/step", "{:.4g}"),
        "change_per_second": ("change/s", "{:.4g}"),
        "sm": ("sm", "{:.4g}"),
        "dominant_frequency": (f"strongest {unit}", "{:.3g}"),
        "power_above": (f"> {some.above:.3g} {unit}", "{:.1%}"),
        "shaking_frequency": ("at", "{:.3g}"),
        "saturation": ("saturated", "{:.1%}"),
        "coherence": ("coherence", "{:.2f}"),
        "observation": ("with", "{}"),
        "lag": ("lag s" if some.period else "lag steps", "{:.3g}"),
        "cause": ("cause", "{}"),
    }
    several, rows = len(inspections) > 1, []
    for i in range(len(some.actions)):
        for name, inspection in inspections.items():
            report = inspection.actions[i]
            row = [report.name, name] if several else [report.name]
            for measure, (_, form) in columns.items():
                value = getattr(report, measure)
                row.append("–" if value is None else form.format(value))
            rows.append(row)
    titles = ["action", "log"] if several else ["action"]
    header = [*titles, *(title for title, _ in columns.values())]
    show("changes, spectrum and company of every action", header, rows)
    for name, inspection in inspections.items():
        for sentence in sentences(inspection):
            say(f"{name}: {sentence}" if several else sentence)


def sentences(inspection: Inspection) -> list[str]:
    """What the causes mean, a sentence for each that occurs."""
    named: dict[str, list[str]] = {}
    for report in inspection.actions:
        named.setdefault(report.cause, []).append(report.name)
    return [f"{cause} ({joined(names)}): {MEANINGS[cause]}." for cause, names in named.items()]
