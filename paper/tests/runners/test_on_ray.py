"""Two machines, as far as one can be two: a local cluster of two Ray nodes, one of which dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from damper.engine.run.folder import Run
from damper.engine.run.stop import Stopped
from damper.errors import DamperError
from paper.cli import main
from paper.experiments.catalogue import expand_request
from paper.experiments.population_plan import Job, pack
from paper.experiments.store import Record, Store
from paper.runners.in_process import plan, run_job
from paper.runners.on_ray import _connect, run_on_ray
from paper.tests.experiments.helpers import invented, tiny

STEPS = 6000
COMMAND = (
    f"reproduce td3-table --tasks Pendulum --methods plain damper --seeds 1 --steps {STEPS} "
    "--net-arch 16"
)
COMMAND += (
    " --batch-size 16 --learning-starts 100 --log-every 500 --checkpoint-every 500 --episodes 2"
)
# Ray's own code warns about itself.
pytestmark = [pytest.mark.serial, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000}
    )
    try:
        yield nodes
    finally:
        nodes.shutdown()


def wait_for(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.2)


@pytest.mark.slow
def test_a_lost_machines_population_goes_on_elsewhere(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    places = f" --results {tmp_path}/results --out {tmp_path}/runs --ray {cluster.address}"
    driver = subprocess.Popen([sys.executable, "-m", "damper", *(COMMAND + places).split()])
    try:
        # Both nodes are at work, each past a checkpoint, when one is lost.
        wait_for(
            lambda: (
                len({p.parent for p in (tmp_path / "runs").rglob("checkpoints/step-*.json")}) == 2
            )
        )
        cluster.remove_node(second, allow_graceful=False)
        assert driver.wait(timeout=240) == 0
    finally:
        driver.kill()
    assert len(list(Store(tmp_path / "results"))) == 2
    runs = [Run(path.parent) for path in (tmp_path / "runs").rglob("manifest.json")]
    resumed = [event["step"] for run in runs for event in run.manifest["resumed"]]
    assert len(runs) == 2 and len(resumed) == 1 and resumed[0] >= 500


def test_a_machine_with_other_simulators_is_refused(tmp_path: Path) -> None:
    (job,) = pack(expand_request(tiny()))
    other = patch("paper.runners.in_process.versions", return_value={"gymnasium": "0.1"})
    with other, pytest.raises(DamperError, match="install the same versions"):
        run_job(job, tmp_path / "run", "")
    assert not (tmp_path / "run").exists()


def test_without_ray_the_sentence_says_how_to_get_it() -> None:
    with patch.dict(sys.modules, {"ray": None}), pytest.raises(DamperError, match="need Ray"):
        _connect("auto")


class Cluster:
    """What of Ray ``run_on_ray`` uses; a task is run when its result is asked for."""

    def __init__(self, **resources: float) -> None:
        self.resources = resources
        self.asked: list[dict[str, Any]] = []

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, work: Any) -> Any:
        return SimpleNamespace(
            options=lambda **asked: (
                self.asked.append(asked),
                SimpleNamespace(remote=lambda *given: partial(work, *given)),
            )[1]
        )

    def wait(self, tasks: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: Any) -> Any:
        return task()


def test_populations_that_fail_are_named_and_the_others_kept(tmp_path: Path) -> None:
    def fragile(job: Job, folder: Path, command: str, progress: bool) -> list[Record]:
        if job.settings.method != "damper":
            raise MemoryError(f"no room for {job.settings.method}")
        return [invented(agent) for agent in job.wanted]

    jobs = plan(expand_request(tiny(methods=("plain", "damper", "caps"))), tmp_path / "runs")
    store = Store(tmp_path / "results")
    workers = patch("paper.runners.on_ray._connect", return_value=Cluster())
    with (
        workers,
        patch("paper.runners.on_ray.run_job", fragile),
        pytest.raises(ExceptionGroup) as failed,
    ):
        run_on_ray(jobs, store, "", progress=False)
    assert [str(error) for error in failed.value.exceptions] == [
        "no room for plain",
        "no room for caps",
    ]
    assert [record.identity["method"] for record in store] == ["damper", "damper"]


def test_a_signal_stops_the_command_and_it_says_how_to_go_on(tmp_path: Path) -> None:
    def stopped(job: Job, folder: Path, command: str, progress: bool) -> list[Record]:
        os.kill(os.getpid(), signal.SIGTERM)
        return []

    jobs = plan(expand_request(tiny()), tmp_path / "runs")
    connected = patch("paper.runners.on_ray._connect", return_value=Cluster())
    trained = patch("paper.runners.on_ray.run_job", stopped)
    with (
        connected,
        trained,
        pytest.raises(Stopped, match="the same command resumes what was started") as raised,
    ):
        run_on_ray(jobs, Store(tmp_path / "results"), "", progress=False)
    assert raised.value.number == signal.SIGTERM


@pytest.mark.parametrize(
    ("resources", "words", "device"),
    [
        ({"CPU": 8.0}, [], "cpu"),
        ({"GPU": 2.0}, [], "cuda"),
        ({"GPU": 2.0}, ["--device", "cpu"], "cpu"),
    ],
)
def test_a_cluster_s_gpus_are_used_where_it_has_some(
    resources: dict[str, float],
    words: list[str],
    device: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, seen = Cluster(**resources), set()

    def trained(job: Job, folder: Path, command: str, progress: bool) -> list[Record]:
        seen.add((job.settings.device, job.settings.backend, f"--device {device}" in command))
        return [invented(agent) for agent in job.wanted]

    monkeypatch.setattr("paper.runners.on_ray._connect", lambda address: cluster)
    monkeypatch.setattr("paper.runners.on_ray.run_job", trained)
    monkeypatch.setattr("damper.engine.settings.resolving._envpool_has", lambda task: True)
    places = [
        "--ray",
        "auto",
        "--results",
        str(tmp_path / "results"),
        "--out",
        str(tmp_path / "runs"),
    ]
    main(["reproduce", "one-eta", "--tasks", "Pendulum", "--seeds", "1", *places, *words])
    assert seen == {(device, "envpool" if device == "cuda" else "gymnasium", True)}
    assert {asked["num_gpus"] for asked in cluster.asked} == {float(device == "cuda")}
