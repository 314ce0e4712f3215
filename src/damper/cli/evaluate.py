"""``damper evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from damper.cli.options.evaluate import Evaluate
from damper.errors import DamperError, MissingExtraError, MissingOptionError
from damper.files import check_folder
from damper.metrics import MEASURES
from damper.plots.episodes import film_evaluations, first_episodes
from damper.plots.traces import draw_traces
from damper.plots.video import check_video
from damper.policies.episodes import evaluation_seeds
from damper.policies.evaluate import Evaluation, evaluate
from damper.policies.filters import Filter, parse_filter
from damper.policies.opening import find_path
from damper.policies.recorded import evaluation_folder
from damper.seed_groups import group_by_settings
from damper.tables import constant_mark, spread_cell
from damper.tasks import find_task
from damper.terminal import quoted, say, show


def run(options: Evaluate) -> None:
    """Evaluate, save and show the result."""
    chosen = parse_filter(options.filter) if options.filter else None
    if options.video is not None:
        _check_video(options)
    elif options.beside:
        what = "beside needs --video, which shows the sources side by side"
        raise DamperError(f"{what}, but it was not given: add --video film.gif.")
    source = find_path(options.source)
    out = options.out or evaluation_folder(source, options.filter, options.env)
    check_folder("out", out)
    seeds = options.seed_list or None
    first = options.seed_list[:1] or evaluation_seeds(1)
    others = [_evaluate_beside(source, options, first, chosen) for source in options.beside]
    evaluation = evaluate(
        options.source,
        options.env,
        options.episodes,
        seeds,
        chosen,
        options.backend,
        vecnormalize=options.vecnormalize,
        trust=options.trust,
    )
    evaluation.save(out)
    show(f"{evaluation.env}: mean (spread over seeds; pooled over episodes)", *table(evaluation))
    _say_of_training(evaluation, options)
    try:
        name = evaluation.training.get("method") or options.source.stem
        picture = draw_first_episodes(evaluation, out / "traces.png", name, options.filter)
    except MissingExtraError as error:
        say(f"records and traces in {quoted(out)}; {error}")
    else:
        say(f"records, traces and picture in {quoted(out)} ({picture.name})")
    if options.video is not None:
        shown = [evaluation, *others]
        named = dict(zip(_names([options.source, *options.beside], shown), shown, strict=True))
        say(f"video: {quoted(film_evaluations(named, options.video, steps=options.video_steps))}")


def _evaluate_beside(
    source: Path, options: Evaluate, seed: tuple[int, ...], chosen: Filter | None
) -> Evaluation:
    """One episode of another source, without ``--vecnormalize`` and ``--trust``."""
    try:
        return evaluate(source, options.env, 1, seed, chosen)
    except MissingOptionError as error:
        raise DamperError(
            "beside must name sources that need neither --vecnormalize nor --trust, which apply "
            f"to the first source only, but {source} needs one: export it to ONNX first (damper "
            "export) and give that file."
        ) from error


def _names(sources: Sequence[Path], evaluations: Sequence[Evaluation]) -> list[str]:
    """Names that tell the sources apart: methods, or as much of the paths as needed."""
    paths = [find_path(source).absolute() for source in sources]
    stems = [path.stem for path in paths]
    methods = [evaluation.training.get("method") for evaluation in evaluations]
    choices = [[method or stem for method, stem in zip(methods, stems, strict=True)], stems]
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        choices.append(["/".join(path.parts[-count:]) for path in paths])
    return next(names for names in choices if len(set(names)) == len(names))


def _say_of_training(evaluation: Evaluation, options: Evaluate) -> None:
    """Say if a run is unfinished, or was trained with another backend."""
    training, backend = evaluation.training, options.backend
    if "budget" in training:
        of = f"{training['steps']:,} of {training['budget']:,}"
        say(f"{options.source} is not finished: these are its policies at step {of}", "yellow")
    trained = training.get("backend", backend)
    if trained != backend and options.env is None:
        say(
            f"Trained with --backend {trained}, evaluated with {backend}, where the same seeds "
            f"give other initial states: use --backend {trained} for those of its records, if it "
            "has any."
        )


def _check_video(options: Evaluate) -> None:
    assert options.video is not None
    sources = [find_path(source).absolute() for source in (options.source, *options.beside)]
    if twice := [path for path in sources if sources.count(path) > 1]:
        given = f"{twice[0]} was given twice"
        raise DamperError(f"beside must name other sources, but {given}: leave one out.")
    check_video(options.video)
    check_folder("video", options.video.parent)
    if options.backend != "gymnasium":
        given = f"--backend {options.backend} was given"
        raise DamperError(f"video needs Gymnasium's environments, but {given}: leave it out.")
    if options.video_steps < 1:
        raise DamperError(f"video_steps must be at least 1, but {options.video_steps} was given.")


def table(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Header and rows, one per group of agents; with a filter, raw sm and saturation too."""
    summary = evaluation.summary()
    measures = dict(MEASURES)
    if any("raw_sm" in values for values in summary.values()):
        measures |= {"raw_sm": ("raw sm", "{:.3f}"), "saturation": ("saturated", "{:.1%}")}
    rows, constant = [], evaluation.constant_agents()
    for label, members in group_by_settings(evaluation.agents).items():
        cells = (spread_cell(summary[label][name], form) for name, (_, form) in measures.items())
        rows.append([label + constant_mark(members, constant), *cells])
    return ["agents", *(title for title, _ in measures.values())], rows


def draw_first_episodes(
    evaluation: Evaluation, path: Path, method: str, filter: str | None = None, most: int = 8
) -> Path:
    """Draw the first seed's first episode of every setting, or of ``most`` spread evenly."""
    episodes = list(first_episodes(evaluation, method).items())
    count, shown, part = len(episodes), episodes, ""
    if count > most:
        shown = [episodes[i * (count - 1) // (most - 1)] for i in range(most)]
        part = f", {most} of {count} settings"
    traces = {f"{method} {label}".removesuffix(" all"): trace for label, trace in shown}
    seed = evaluation.agents[0]["seed"]
    trained = f", training seed {seed}" if seed >= 0 else ""  # -1 for a model without a seed
    behind = f", behind {filter}" if filter else ""
    played = f"episode seed {evaluation.episodes[0][0].seed}"
    title = f"{evaluation.env}{trained}, {played}{part}{behind}"
    return draw_traces(traces, path, title, find_task(evaluation.env).period)
