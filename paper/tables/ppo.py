"""A table and two panels of a picture per environment from PPO's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from damper.intervals import percent
from damper.plots.style import Look, draw_all, draw_curve, look, shades
from damper.tables import markdown_table
from paper.experiments.ppo_records import read_ppo_records
from paper.statistics.cells import COMPARED, MEASURES
from paper.statistics.estimates import difference, mean_interval
from paper.statistics.numbers import four_digits, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRADIENTS = ("conflict", "cosine", "norm_ratio", "weight")
GRADIENT_TITLES = ("updates in conflict", "cosine", "\\(n_T/n_R\\)", "\\(w\\)")

# Records by environment (with the size of minibatches, if it is not SB3's) and label, in the order
# of the seeds.
Runs = dict[str, dict[str, list[dict[str, Any]]]]


def read_ppo(results: Path) -> Runs:
    """The records of a store; nothing where there is none."""
    runs: Runs = {}
    for record in read_ppo_records(results):
        size = record["ppo"].get("batch_size")
        group = f"{record['env']}, minibatches of {size:,}" if size else record["env"]
        runs.setdefault(group, {}).setdefault(record["label"], []).append(record)
    order = ("plain", "CAPS", "DAMPER 0", "DAMPER 0.5", "DAMPER 1")
    sorted_runs: Runs = {}
    for env in sorted(sorted(runs), key=lambda group: group.partition(",")[0], reverse=True):
        labels = [label for label in order if label in runs[env]]
        labels += sorted(set(runs[env]) - set(order))
        sorted_runs[env] = {
            label: sorted(runs[env][label], key=lambda record: record["seed"]) for label in labels
        }
    return sorted_runs


def _title(label: str) -> str:
    """A label as a table prints it."""
    name, _, eta = label.partition(" ")
    return f"{name}, η = {eta}" if eta else name


def ppo_tables(runs: Runs) -> str:
    """Per environment the measures, and what happened between the two gradients in training."""
    parts = [_settings_table(runs)] if runs else []
    for env, labels in runs.items():
        header = ["method", *(MEASURES[measure] for measure in COMPARED), "return minus plain's"]
        rows = [[_title(m), *_measures(labels, m), *_gradients(labels[m])] for m in labels]
        parts += [f"## {env}\n", markdown_table([*header, *GRADIENT_TITLES], rows)]
    return "\n".join(parts)


def _settings_table(runs: Runs) -> str:
    """What was run in each environment."""
    rows = []
    for env, labels in runs.items():
        records = [record for several in labels.values() for record in several]
        first = records[0]
        settings = {"n_envs": first["n_envs"], **first["ppo"]}
        shown = [f"`{name}={value!r}`" for name, value in settings.items() if name != "device"]
        shown += ["`VecNormalize`"] if first["vec_normalize"] else []
        seeds = str(max(map(len, labels.values())))
        simulator = "EnvPool" if first["backend"] == "envpool" else "Gymnasium"
        code = ", ".join(sorted({record["source"][:10] for record in records}))
        row = [env, f"{first['steps']:,}", seeds, str(len(first["evaluation_seeds"]))]
        rows.append([*row, simulator, ", ".join(shown), code])
    header = ["environment", "steps", "seeds", "episodes", "simulator", "settings", "code"]
    return markdown_table(header, rows)


def _means(records: Sequence[Mapping[str, Any]], measure: str) -> NDArray[np.float64]:
    """One number per seed."""
    return np.array([np.mean(record["measures"][measure]) for record in records])


def _measures(labels: Mapping[str, Sequence[Mapping[str, Any]]], label: str) -> list[str]:
    seeds = {measure: _means(labels[label], measure) for measure in COMPARED}
    texts = [with_interval(v.mean(), mean_interval(v), measure) for measure, v in seeds.items()]
    if label == "plain" or "plain" not in labels:
        return [*texts, ""]
    gap, interval = difference(seeds["return"], _means(labels["plain"], "return"))
    return [*texts, with_interval(gap, interval, "return")]


def _gradients(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Means over the whole training; empty for a method without a second gradient."""
    texts = []
    for name in GRADIENTS:
        values = [v for record in records for v in record["curve"][name] if v is not None]
        form = percent if name == "conflict" else four_digits
        texts.append(form(float(np.mean(values))) if values else "")
    return texts


def draw_ppo(runs: Runs, folder: Path, formats: Sequence[str]) -> list[Path]:
    """``ppo`` in each format; nothing where there are no runs."""
    figures = {"ppo": partial(_draw, runs)} if runs else {}
    return draw_all(figures, folder, formats, {"font.size": 9})


def _draw(runs: Runs, figure: Figure) -> None:
    """Per environment the training return with the range of the seeds."""
    figure.set_size_inches(8.4, 2.9 * len(runs))
    panels = figure.subplots(len(runs), 2, squeeze=False)
    for (env, labels), (left, right) in zip(runs.items(), panels, strict=True):
        for label, style in _looks(labels).items():
            records, strong = labels[label], style.colour == look("damper").colour
            seen = np.array([record["curve"]["return"] for record in records], np.float64)
            values = np.array([seen.mean(0), seen.min(0), seen.max(0)])
            steps = records[0]["curve"]["steps"]
            draw_curve(left, steps, values, style, _title(label), True, strong)
            points = _means(records, "sm"), _means(records, "return")
            right.plot(*points, style.marker, color=style.colour, label=_title(label), alpha=0.8)
        left.set(title=env, xlabel="environment steps", ylabel="return (with exploration)")
        right.set(title="mean action, each seed", xlabel="sm (less is smoother)", ylabel="return")
    panels[0, 0].legend(frameon=False, fontsize=8)


def _looks(labels: Sequence[str] | Mapping[str, Any]) -> dict[str, Look]:
    """DAMPER's η from light to dark."""
    ours = [label for label in labels if label.startswith("DAMPER")]
    tones = dict(zip(ours, shades("damper", len(ours)), strict=True)) if ours else {}
    return {label: tones.get(label) or look(label.lower()) for label in labels}
