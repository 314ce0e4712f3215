"""Methods of one task side by side on one pool of environments: the same records as one after another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from damper.engine.run.lock import run_lock
from damper.engine.run.metrics_log import MetricsLog
from damper.experiments import runner
from damper.experiments.paper_experiments import Request
from damper.experiments.population_plan import Job, pack
from damper.experiments.reproduce import Outcome, reproduce
from damper.experiments.runner import group_by_pool, plan
from damper.experiments.store import Store
from tests.experiments.helpers import TINY, agents_of

pytest.importorskip("envpool")

SETTINGS = {**TINY, "envs": "envpool", "env_threads": 1}
REQUEST = Request(("td3-table",), ("Pendulum",), ("plain", "damper", "caps"), seeds=2, steps=300, episodes=2,
                  settings=SETTINGS)  # fmt: skip


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU shares its pools too, so that this is tested without a GPU."""
    monkeypatch.setattr(runner, "may_share", lambda settings: settings.backend == "envpool")


def episodes(folder: Path) -> dict[str, object]:
    return {record.digest: (record.episodes, record.curve, record.trace) for record in Store(folder)}


@pytest.mark.usefixtures("shared")
def test_the_records_are_those_of_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = reproduce(REQUEST, tmp_path / "together", tmp_path / "runs", progress=False)
    assert outcome == Outcome(wanted=6, there=0, added=6, left=0)
    monkeypatch.setattr(runner, "may_share", lambda settings: False)
    reproduce(REQUEST, tmp_path / "alone", tmp_path / "others", progress=False)
    assert episodes(tmp_path / "together") == episodes(tmp_path / "alone")


@pytest.mark.usefixtures("shared")
def test_what_another_process_trains_is_left_to_it(tmp_path: Path) -> None:
    agents = agents_of("td3-table", tasks=("Pendulum",), methods=REQUEST.methods, seeds=2, steps=300, episodes=2,
                       settings=SETTINGS)  # fmt: skip
    jobs = plan(agents, tmp_path / "runs")
    assert [len(group) for group in group_by_pool(jobs)] == [3]
    with run_lock(jobs[0][1]):
        outcome = reproduce(REQUEST, tmp_path / "results", tmp_path / "runs", progress=False)
    assert outcome == Outcome(wanted=6, there=0, added=4, left=2)
    assert reproduce(REQUEST, tmp_path / "results", tmp_path / "runs", progress=False).left == 0


@pytest.mark.usefixtures("shared")
def test_one_that_fails_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = MetricsLog.write

    def fragile(log: MetricsLog, line: dict[str, Any]) -> None:
        if line["step"] == 200 and "caps" in str(log.path):
            raise MemoryError("no room")
        write(log, line)

    monkeypatch.setattr(MetricsLog, "write", fragile)
    together = pytest.warns(UserWarning, match=r"side by side failed \(no room\): going on one after another")
    with together, pytest.raises(MemoryError) as failed:
        reproduce(REQUEST, tmp_path / "results", tmp_path / "runs", progress=False)
    assert failed.value.__notes__[0].startswith("Pendulum td3 caps ×2 failed")
    assert sorted(record.identity["method"] for record in Store(tmp_path / "results")) == 2 * ["damper"] + 2 * ["plain"]


def on_gpu(job: Job) -> Job:
    return replace(job, settings=replace(job.settings, device="cuda"))


def test_groups_share_task_backbone_and_protocol() -> None:
    agents = agents_of("td3-table", "sac-table", tasks=("Hopper", "Ant"), settings={"envs": "envpool"})
    jobs = [(on_gpu(job), Path(job.name)) for job in pack(agents)]
    groups = group_by_pool(jobs)
    assert sorted(len(group) for group in groups) == [7, 7, 7, 7]
    assert sorted(str(folder) for group in groups for _, folder in group) == sorted(str(folder) for _, folder in jobs)
    for group in groups:
        assert len({(job.settings.env_id, job.settings.backbone) for job, _ in group}) == 1
    on_cpu = [(job, Path(job.name)) for job in pack(agents)]
    assert [len(group) for group in group_by_pool(on_cpu)] == [1] * 28
