"""The policies of the main tables are kept beside their records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import damper
from paper.experiments import records
from paper.experiments.catalogue import Request
from paper.experiments.records import in_main_table
from paper.experiments.reproduce import reproduce
from paper.experiments.store import Store, read_record
from paper.tests.experiments.helpers import TINY, agents_of, invented

RESULTS = Path(__file__).parents[3] / "results"
KEPT = sorted((RESULTS / "policies").glob("*/*/*.safetensors"))
RECORDS = {record.digest: record for record in Store(RESULTS)}
# DAMPER's of each task and backbone, or the last by name.
ONE_OF_EACH = {
    (path.parent, path.name.split("-")[0]): path
    for path in sorted(KEPT, key=lambda path: ("-damper-" in path.name, path))
}.values()


@pytest.mark.parametrize("path", ONE_OF_EACH, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_kept_policy_repeats_its_record(path: Path) -> None:
    pytest.importorskip("envpool")
    record = RECORDS[path.stem.split("-")[-1]]
    assert in_main_table(record.identity)
    episodes = damper.evaluate(path, episodes=10, backend=record.identity["backend"]).episodes[0]
    # Rounding differs between a GPU and a CPU and grows along an episode; on Ant, with many
    # contacts, until episodes are as good as drawn anew.
    for name, tolerance in (("return", 0.01), ("sm", 0.03), ("mean_change", 0.03)):
        ours, theirs = (
            np.array([episode.record()[name] for episode in episodes]),
            np.array(record.episodes[name]),
        )
        noise = (
            3 * np.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / len(ours))
            if "Ant" in path.parts
            else 0.0
        )
        assert ours.mean() == pytest.approx(theirs.mean(), rel=tolerance, abs=noise), name


def test_kept_policies_are_small_enough_for_a_repository() -> None:
    sizes = [path.stat().st_size for path in KEPT]
    assert (
        KEPT and max(sizes) < 0.7e6 and sum(sizes) < 12e6
    )  # plain's and DAMPER's of the 12 pairs of a protocol, one seed each


def test_the_first_seed_s_policy_is_kept_and_is_the_one_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "in_main_table", lambda identity: True)  # whatever its budget
    request = Request(
        ("td3-table",), ("Pendulum",), ("plain",), seeds=2, steps=120, episodes=2, settings=TINY
    )
    reproduce(request, tmp_path / "results", tmp_path / "runs", progress=False)
    first, second = sorted(
        Store(tmp_path / "results"), key=lambda record: record.identity["seed"] != 178132
    )
    store = Store(tmp_path / "results")
    assert not store.policy_path(second.identity).exists()
    again = damper.evaluate(
        store.policy_path(first.identity), episodes=2, backend="gymnasium"
    ).episodes[0]
    assert [episode.record()["return"] for episode in again] == pytest.approx(
        first.episodes["return"]
    )
    other = Store(tmp_path / "other")
    other.merge(store)
    assert (
        other.policy_path(first.identity).read_bytes()
        == store.policy_path(first.identity).read_bytes()
    )


def test_the_main_tables_hold_published_settings_at_the_paper_s_budget() -> None:
    for experiment, wanted in (("td3-table", True), ("sac-table", True), ("pegrad", False)):
        for agent in agents_of(experiment, tasks=("Hopper",), seeds=1):
            method = agent.identity["method"]
            assert in_main_table(agent.identity) == (wanted or method == "damper"), method
    etas = {
        agent.identity["method_settings"]["eta"]: in_main_table(agent.identity)
        for agent in agents_of("eta-sweep", tasks=("Hopper",), seeds=1)
    }
    assert [eta for eta, stands in etas.items() if stands] == [1]
    short = agents_of("td3-table", tasks=("Hopper",), methods=("plain",), seeds=1, steps=1000)
    assert not any(in_main_table(agent.identity) for agent in short)


def test_a_record_s_file_does_not_hold_the_policy(tmp_path: Path) -> None:
    record = replace(
        invented(agents_of("td3-table", tasks=("Hopper",), seeds=1)[0]), policy=b"weights"
    )
    store = Store(tmp_path)
    assert read_record(store.add(record)).policy is None
    assert store.policy_path(record.identity).read_bytes() == b"weights"
