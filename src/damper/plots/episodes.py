"""First episodes of an evaluation, one per setting, as traces or as a video."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from gymnasium.envs.registration import EnvSpec

from damper.engine.envs import EnvLike
from damper.errors import DamperError
from damper.plots.style import look
from damper.plots.traces import Trace
from damper.plots.video import film, write_video
from damper.policies.episodes import Episode
from damper.policies.evaluate import Evaluation
from damper.seed_groups import group_by_settings
from damper.tasks import find_task

MAX_FILMS = 6  # films side by side


def first_episodes(evaluation: Evaluation, method: str) -> dict[str, Trace]:
    """The first episode of each setting's first agent."""
    return {label: trace for label, _, trace in _first(evaluation, method)}


def _first(evaluation: Evaluation, method: str) -> Iterator[tuple[str, Episode, Trace]]:
    for label, members in group_by_settings(evaluation.agents).items():
        agent, episode = evaluation.agents[members[0]], evaluation.episodes[members[0]][0]
        style = look(agent.get("method", method))
        yield label, episode, Trace(episode.executed, episode.low, episode.high, style)


def film_evaluations(
    evaluations: Mapping[str, Evaluation], path: Path, env: EnvLike | None = None, steps: int = 500
) -> Path:
    """Film the first episodes of several evaluations side by side, as a .gif or .mp4.

    The evaluations are of one environment, by method or another name; ``env`` is needed where they
    do not record it. At most ``steps`` steps are shown.
    """
    shown = []
    for name, evaluation in evaluations.items():
        for label, episode, trace in _first(evaluation, name):
            shown.append((f"{name} {label}".removesuffix(" all"), evaluation, episode, trace))
    if len(shown) > MAX_FILMS:
        most = f"a video must have at most {MAX_FILMS} settings side by side"
        raise DamperError(f"{most}, but {len(shown)} were given.")
    films = {}
    for label, evaluation, episode, trace in shown:
        period = find_task(evaluation.env).period
        spec = EnvSpec.from_json(evaluation.env_spec) if evaluation.env_spec else evaluation.env
        films[label] = film(episode, trace, env or spec, period, steps)
    return write_video(films, path, period)
