"""What an evaluation has to draw: one episode per setting."""

from __future__ import annotations

from damper.engine.run.groups import groups
from damper.evaluation.evaluate import Evaluation
from damper.report.style import look
from damper.report.traces import Trace


def first_episodes(evaluation: Evaluation, method: str) -> dict[str, Trace]:
    """The first episode of each setting's first agent, by the setting's label ("all" where there is one)."""
    found = {}
    for label, members in groups(evaluation.agents).items():
        agent, episode = evaluation.agents[members[0]], evaluation.episodes[members[0]][0]
        found[label] = Trace(episode.executed, episode.low, episode.high, look(agent.get("method", method)))
    return found
