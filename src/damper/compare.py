"""``damper compare``: train and evaluate several methods on one task, under the same settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from damper.engine.device.precision import check_tf32
from damper.engine.envs.gymnasium_pool import import_module_of, make_env
from damper.engine.run.folder import Run
from damper.engine.run.lock import run_lock
from damper.engine.settings import Settings, accept_sb3_names, resolve
from damper.engine.train import default_name, run_settings
from damper.errors import DamperError
from damper.methods import METHODS, find_method
from damper.metrics import MEASURES
from damper.policies.episodes import evaluation_seeds
from damper.policies.evaluate import Evaluation, evaluate
from damper.provenance import digest
from damper.seed_groups import group_by_settings
from damper.tables import constant_mark, spread_cell
from damper.terminal import counted, joined, quoted, say

DEFAULT_SEED_COUNT = 3


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs and evaluations of several methods on one task.

    Attributes:
        env: the environment's name.
        backbone: "td3" or "sac".
        path: the folder that holds a run per method.
        runs: by method.
        evaluations: by method, all on the same seeds.
    """

    env: str
    backbone: str
    path: Path
    runs: dict[str, Run]
    evaluations: dict[str, Evaluation]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: mean (over-seed spread; pooled spread) of every measure."""
        header = ["method", "seeds", *(title for title, _ in MEASURES.values())]
        rows = []
        for method, evaluation in self.evaluations.items():
            summaries, constant = evaluation.summary(), evaluation.constant_agents()
            for label, members in group_by_settings(evaluation.agents).items():
                name = method if label == "all" else f"{method} {label}"
                values, forms = summaries[label], [form for _, form in MEASURES.values()]
                cells = [
                    spread_cell(values[m], form) for m, form in zip(MEASURES, forms, strict=True)
                ]
                rows.append([name + constant_mark(members, constant), str(len(members)), *cells])
        return header, rows


def compare(
    env: str | Callable[[], Any],
    methods: str | Sequence[str] = ("plain", "damper"),
    backbone: str = "td3",
    seeds: int | Sequence[int] | None = None,
    steps: int | None = None,
    protocol: str | None = None,
    out: str | Path | None = None,
    episodes: int = 10,
    progress: bool = True,
    **settings: Any,
) -> Comparison:
    """Train every method under the same settings and evaluate all on the same seeds.

    Settings of single methods (η, weights) go to the methods that have them. Without ``out``, the
    folder under ``runs/`` is determined by environment and settings: the same call again changes
    nothing, and a call with more methods trains only the new ones.
    """
    if not methods:
        listed = ", ".join(METHODS)
        raise DamperError(f"methods must name one or more of {listed}, but none was given.")
    methods = (methods,) if isinstance(methods, str) else methods
    evaluation_seeds(episodes)  # raises before anything is trained
    import_module_of(env)  # before methods are looked up: it may register some
    seeds, steps, settings = accept_sb3_names(seeds, steps, settings)
    seeds = DEFAULT_SEED_COUNT if seeds is None else seeds
    runs, evaluations, resolved = {}, {}, {}
    for method in methods:
        accepted = _without_others(settings, method, methods)
        resolved[method] = resolve(env, backbone, method, seeds, steps, protocol, **accepted)
    for method_settings in resolved.values():
        check_tf32(method_settings.device, method_settings.tf32)
    path = Path(out) if out else _default_folder(list(resolved.values()), settings)
    if progress:
        say(_plan(resolved, path))
    for method, method_settings in resolved.items():
        folder, env_kwargs = path / method, method_settings.env_kwargs
        trained_in = partial(make_env, env, **env_kwargs) if env_kwargs else env
        with run_lock(folder):
            run = run_settings(method_settings, folder, progress)
            evaluation = evaluate(run, trained_in, episodes, backend=method_settings.backend)
            evaluation.save(folder / "evaluation")
        runs[method], evaluations[method] = run, evaluation
    return Comparison(method_settings.env_id, backbone, path, runs, evaluations)


def _plan(resolved: dict[str, Settings], path: Path) -> str:
    """What will be trained, in a sentence."""
    first = next(iter(resolved.values()))
    runs = [f"{name} ({counted(len(s.agents()), 'agent')})" for name, s in resolved.items()]
    return (
        f"Training {joined(runs)} on {first.env_id} with {first.backbone.upper()}, "
        f"{first.steps:,} steps each, on {first.device}, into {quoted(path)}."
    )


def _default_folder(methods: Sequence[Settings], given: Collection[str]) -> Path:
    """``runs/compare-<env>-<backbone>-<digest>``, independent of the methods."""
    first, given_settings = methods[0], {}
    for method in methods:
        for name in method.method_settings.keys() & given:
            given_settings[name] = method.method_settings[name]
    shared = default_name(replace(first, method="plain", method_settings={}))
    name = f"compare-{first.env_in_paths}-{first.backbone}"
    return Path("runs") / f"{name}-{digest([shared, given_settings])[:8]}"


def _without_others(given: dict[str, Any], method: str, methods: Sequence[str]) -> dict[str, Any]:
    """The settings given, without those that only other methods have."""
    others = {name for other in methods for name in find_method(other).settings()}
    foreign = others - set(find_method(method).settings())
    return {name: value for name, value in given.items() if name not in foreign}
