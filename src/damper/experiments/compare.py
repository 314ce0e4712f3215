"""``damper compare``: several methods on one task, trained and evaluated alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from damper.engine.lock import run_lock
from damper.engine.run import Run
from damper.engine.settings import Settings, resolve
from damper.engine.train import check_named, run_settings
from damper.errors import DamperError
from damper.evaluation.evaluate import Evaluation, evaluate
from damper.methods import METHODS, find_method

MEASURES = {
    "return": ("return", "{:.1f}"),
    "smoothness": ("sm", "{:.3f}"),
    "mean_change": ("mean|Δa|", "{:.4f}"),
    "spectral_roughness": ("roughness", "{:.4f}"),
    "length": ("length", "{:.0f}"),
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs and evaluations by label: the method, with its settings where it was given several."""

    env: str
    backbone: str
    runs: dict[str, Run]
    evaluations: dict[str, Evaluation]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: mean (over-seed spread; pooled spread) of every measure."""
        header = ["method", "seeds", *(title for title, _ in MEASURES.values())]
        rows = []
        for method, evaluation in self.evaluations.items():
            summaries = evaluation.summary()
            seeds = len(evaluation.agents) // len(summaries)
            for label, summary in summaries.items():
                cells = [spread_cell(summary[name], form) for name, (_, form) in MEASURES.items()]
                rows.append([method if label == "all" else f"{method} {label}", str(seeds), *cells])
        return header, rows


def spread_cell(value: dict[str, float], form: str) -> str:
    """The mean, and below it the spread over seeds and the pooled one."""
    mean, over_seeds, pooled = (form.format(value[name]) for name in ("mean", "over_seeds", "pooled"))
    return f"{mean}\n({over_seeds}; {pooled})"


def compare(
    env: str | Callable[[], Any],
    methods: Sequence[str] = ("plain", "damper"),
    backbone: str = "td3",
    seeds: int | Sequence[int] = 3,
    steps: int | None = None,
    protocol: str | None = None,
    out: str | Path | None = None,
    episodes: int = 10,
    progress: bool = True,
    **settings: Any,
) -> Comparison:
    """Train every method under the same settings, evaluate all on the same seeds.

    Settings that belong to one method only (η, weights) reach the methods that have them.
    """
    if not methods:
        raise DamperError(f"methods must name one or more of {', '.join(METHODS)}, but none was given.")
    runs, evaluations = {}, {}
    for method in methods:
        resolved = _for_method(env, backbone, method, seeds, steps, protocol, methods, settings)
        if not out:
            check_named(resolved)
        folder = Path(out or "runs/compare") / method
        with run_lock(folder):
            runs[method] = run_settings(resolved, folder, progress)
            evaluations[method] = evaluate(runs[method], env, episodes, envs=resolved.envs)
            evaluations[method].save(folder / "evaluation")
    return Comparison(resolved.env_id, backbone, runs, evaluations)


def _for_method(
    env: Any,
    backbone: str,
    method: str,
    seeds: Any,
    steps: int | None,
    protocol: str | None,
    methods: Sequence[str],
    given: dict[str, Any],
) -> Settings:
    """One method's settings: another method's own ones are left out."""
    others = {name for other in methods for name in find_method(other).settings()}
    foreign = others - set(find_method(method).settings())
    own = {name: value for name, value in given.items() if name not in foreign}
    return resolve(env, backbone, method, seeds, steps, protocol, **own)
