"""Training episodes as the log tells them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damper.engine.data.episodes import EpisodeStats, EpisodeTracker
from damper.engine.run.metrics_log import MetricsLog, episode_means, read_metrics
from damper.metrics import mean_change, smoothness

LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)


def steps(count: int) -> list[tuple[Any, Any, Any]]:
    """Actions, rewards and ends of three agents; agent 2's episode outlasts the first buffer."""
    rng = np.random.default_rng(0)
    ends = rng.random((count, 3)) < 0.05
    ends[:, 2] = np.arange(count) == 599
    actions, rewards = rng.uniform(-1, 1, (count, 3, 2)), rng.normal(size=(count, 3))
    return list(zip(actions.astype(np.float32), rewards.astype(np.float32), ends, strict=True))


def expected(made: list[tuple[Any, Any, Any]]) -> list[EpisodeStats]:
    """The same from whole arrays."""
    found = []
    began = [0, 0, 0]
    for t, (_, _, ended) in enumerate(made):
        for agent in np.flatnonzero(ended):
            part = made[began[agent] : t + 1]
            means = np.stack([actions[agent] for actions, _, _ in part])
            trace = LOW + (means + 1.0) * 0.5 * (HIGH - LOW)
            total = sum(float(reward[agent]) for _, reward, _ in part)
            change = mean_change(means, -1.0, 1.0)
            assert change == pytest.approx(mean_change(trace, LOW, HIGH), rel=1e-6), (
                "whatever the unit"
            )
            found.append(EpisodeStats(int(agent), total, len(part), smoothness(trace), change))
            began[agent] = t + 1
    return found


@pytest.mark.parametrize("stopped_at", [None, 3, 256, 400])
def test_episodes(stopped_at: int | None) -> None:
    made, episodes, found = steps(620), EpisodeTracker(3, LOW, HIGH), []
    for t, step in enumerate(made):
        if t == stopped_at:
            state, episodes = episodes.state(), EpisodeTracker(3, LOW, HIGH)
            episodes.restore(state)
        first = [t == 0 or bool(made[t - 1][2][j]) for j in range(3)]
        assert episodes.first.tolist() == first
        found += episodes.step(*step)
    reference = expected(made)
    assert len(found) == len(reference) > 40 and {episode.length for episode in found} >= {600}
    for ours, theirs in zip(found, reference, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)


def test_means_are_per_agent() -> None:
    episodes = [
        EpisodeStats(0, 1.0, 10, 0.5, 0.1),
        EpisodeStats(0, 3.0, 20, 1.5, 0.3),
        EpisodeStats(2, float("nan"), 5, 1.0, 0.2),
    ]
    means = episode_means(episodes, 3)
    assert means["return"] == [2.0, None, None], "none finished, and none finite"
    assert means["length"] == [15.0, None, 5.0]
    assert means["sm"] == [1.0, None, 1.0] and means["mean_change"] == pytest.approx(
        [0.2, None, 0.2]
    )


def test_lines_can_be_taken_back_and_half_a_line_is_none(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.sync() == 0 and read_metrics(log.path) == []
    log.rewind(0)
    log.write({"step": 1})
    length = log.sync()
    log.write({"step": 2})
    with open(log.path, "a") as file:
        file.write('{"step": 3')
    assert read_metrics(log.path) == [{"step": 1}, {"step": 2}]
    log.rewind(length)
    assert read_metrics(log.path) == [{"step": 1}] and log.sync() == length
    log.rewind(length + 100)
    assert log.path.stat().st_size == length, "a shorter file is not filled up"
