from __future__ import annotations

import multiprocessing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from damper.errors import DamperError
from damper.metrics import smoothness
from damper.policies.episodes import Episode
from paper.experiments.records import curve, pack_trace, unpack_trace
from paper.experiments.store import Store, read_record
from paper.experiments.timings import read_timings, write_timing
from paper.tests.experiments.helpers import TIMING, agents_of, invented

AGENTS = agents_of("td3-table", tasks=("Pendulum", "Ant"), methods=("plain", "damper"))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_record_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    store, record = Store(tmp_path), invented(AGENTS[0], 12.5)
    path = store.add(record)
    back = read_record(path)
    assert back.text() == record.text()
    assert asdict(back) == asdict(record)
    assert path.relative_to(tmp_path).parts[:3] == ("spool", "pave", "Pendulum")
    assert [other.digest for other in store] == [AGENTS[0].digest]
    assert store.has(AGENTS[0].identity) and not store.has(AGENTS[1].identity)


def test_a_record_that_is_there_is_not_changed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(invented(AGENTS[0], 1.0))
    before = contents(tmp_path)
    store.add(invented(AGENTS[0], 2.0))
    assert contents(tmp_path) == before


def test_nobody_is_told_to_delete_a_file_that_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "spool" / "plain" / "evaluation").mkdir(parents=True)
    (tmp_path / "spool" / "plain" / "evaluation" / "episodes.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"is not a complete record .*: move it elsewhere"):
        assert list(Store(tmp_path)) == []


@pytest.mark.parametrize("damage", ["", "{", '{"identity": {}}', "[1, 2]"])
def test_a_damaged_record_is_named_left_out_and_replaced(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    path = store.add(invented(AGENTS[0]))
    good = path.read_bytes()
    path.write_text(damage)
    with pytest.warns(UserWarning, match="is not a complete record"):
        assert list(store) == []
    with pytest.warns(UserWarning, match="delete it"):
        store.add(invented(AGENTS[0]))
    assert path.read_bytes() == good


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    path = Store(tmp_path).add(invented(AGENTS[0]))
    moved = path.rename(path.with_name("td3-plain-1-00000000000000000000.json"))
    with pytest.raises(DamperError, match="does not match its name"):
        read_record(moved)


def test_folding_moves_the_spool_into_a_file_per_task_sorted_by_digest(tmp_path: Path) -> None:
    store, plain = Store(tmp_path), [invented(agent) for agent in AGENTS]
    for record in plain[:5]:
        store.add(record)
    before = {record.digest: asdict(record) for record in store}
    assert store.fold() == 5 and {r.digest: asdict(r) for r in Store(tmp_path)} == before
    assert not list(tmp_path.rglob("*.json"))
    lines = [
        line for path in tmp_path.glob("pave/*.jsonl") for line in path.read_text().split("\n")
    ]
    assert len([line for line in lines if line]) == 5
    for record in plain:
        assert store.has(record.identity) == (record.digest in before)
        store.add(record)
    store.add(replace(plain[0], commit="another"))
    assert len(list(tmp_path.rglob("*.json"))) == len(plain) - 5, "what is folded is not added"
    kept = contents(tmp_path)
    assert len(list(store)) == len(plain) and store.fold() == len(plain) - 5
    assert store.fold() == 0
    for path in tmp_path.glob("pave/*.jsonl"):
        digests = [line[11:31] for line in path.read_text().splitlines()]
        assert digests == sorted(digests)
    assert kept.keys() & contents(tmp_path).keys()
    assert {r.digest for r in Store(tmp_path) if r.trace} == {r.digest for r in plain if r.trace}


def test_a_fold_that_was_killed_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    for agent in AGENTS:
        store.add(invented(agent))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        store.fold()
    monkeypatch.undo()
    assert len(list(Store(tmp_path))) == len(AGENTS)
    assert Store(tmp_path).fold() == 0
    assert len(list(Store(tmp_path))) == len(AGENTS) and not list(tmp_path.rglob("*-*.json"))


def test_a_damaged_line_is_named_and_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for agent in AGENTS:
        store.add(invented(agent))
    store.fold()
    (path, *_) = sorted(tmp_path.glob("pave/*.jsonl"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(["{}\n", *lines[1:]]))
    with pytest.warns(UserWarning, match=rf"{path.name}, line 1 is not a complete record"):
        assert len(list(Store(tmp_path))) == len(AGENTS) - 1


def test_merging_adds_what_is_missing_and_keeps_what_is_there(tmp_path: Path) -> None:
    mine, theirs = Store(tmp_path / "a"), Store(tmp_path / "b")
    for agent in AGENTS[:3]:
        mine.add(invented(agent))
    for agent in AGENTS[1:5]:
        theirs.add(invented(agent))
    mine.fold()
    theirs.spool_path(AGENTS[2].identity).write_text(invented(AGENTS[2], 9.0).text())
    merged = mine.merge(theirs)
    assert (merged.added, merged.same, len(merged.different)) == (2, 1, 1)
    assert {record.digest for record in mine} == {agent.digest for agent in AGENTS[:5]}
    assert max(mine.find(AGENTS[2].identity).episodes["return"]) < 1.0
    before = contents(tmp_path)
    assert mine.merge(theirs).added == 0
    assert contents(tmp_path) == before
    with pytest.raises(DamperError, match="merge must name a folder"):
        mine.merge(Store(tmp_path / "c"))


def test_merging_brings_the_policies_of_records_that_are_the_same(tmp_path: Path) -> None:
    mine, theirs = Store(tmp_path / "a"), Store(tmp_path / "b")
    here, other, damaged, new = (agent.identity for agent in AGENTS[:4])
    for agent in AGENTS[:3]:
        mine.add(invented(agent, policy=b"mine" if agent is AGENTS[2] else None))
    for agent in AGENTS[:4]:
        theirs.add(invented(agent, 9.0 if agent is AGENTS[1] else 0.0, policy=b"theirs"))
    mine.spool_path(damaged).write_text("{")
    with pytest.warns(UserWarning, match="not a complete record"):
        mine.merge(theirs)
    assert not mine.policy_path(other).exists(), (
        "it is not the one that the record here was made with"
    )
    assert {mine.policy_path(identity).read_bytes() for identity in (here, damaged, new)} == {
        b"theirs"
    }


def test_merging_brings_update_times_too(tmp_path: Path) -> None:
    mine, theirs = Store(tmp_path / "a"), Store(tmp_path / "b")
    kept = write_timing(mine.folder, replace(TIMING, milliseconds=0.4))
    write_timing(theirs.folder, TIMING)
    write_timing(theirs.folder, replace(TIMING, method="damper"))
    merged = mine.merge(theirs)
    assert (merged.added, merged.same) == (1, 0)
    assert merged.different == ["-".join(TIMING.key)]
    assert {t.method: t.milliseconds for t in read_timings(mine.folder)} == {
        "plain": 0.4,
        "damper": 0.5,
    }
    assert mine.merge(theirs).added == 0
    kept.write_text("{\n")
    with pytest.warns(UserWarning, match="not a complete timing"):
        assert mine.merge(theirs).added == 2, "a damaged one is replaced"
    assert {t.method: t.milliseconds for t in read_timings(mine.folder)} == {
        "plain": 0.5,
        "damper": 0.5,
    }


def _fill(folder: str) -> None:
    for agent in AGENTS:
        Store(Path(folder)).add(invented(agent))


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(str(tmp_path),)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert {record.digest for record in Store(tmp_path)} == {agent.digest for agent in AGENTS}
    assert all(name.endswith(".json") for name in contents(tmp_path))


def test_records_are_small() -> None:
    # 1,000 records of the widest task, two in five with a trace of 1,000 noisy steps, stay below 50
    # MB.
    noise = np.random.default_rng(0).uniform(-1, 1, (1000, 8)).astype(np.float32)
    bound = np.ones(8, np.float32)
    trace = pack_trace(Episode(1, 0.0, False, noise, noise, -bound, bound))
    full = {
        name: [0.12345] * 100
        for name in ("step", "return", "sm", "cosine", "conflict", "norm_ratio", "weight")
    }
    traced, untraced = (
        len(replace(invented(AGENTS[0]), trace=t, curve=full).text()) for t in (trace, None)
    )
    assert 400 * traced + 600 * untraced < 50e6 / 2


def test_traces_come_back_to_half_a_level() -> None:
    noise = np.random.default_rng(1).uniform(-2, 2, (201, 3)).astype(np.float32)
    noise[:2] = [[-2] * 3, [2] * 3]
    high = np.full(3, 2, np.float32)
    back = unpack_trace(pack_trace(Episode(1, 0.0, False, noise, noise, -high, high)))
    assert np.abs(back - noise).max() <= 4 / 65534 / 2 + 1e-9
    assert smoothness(back) == pytest.approx(smoothness(noise), rel=1e-3)


def test_curves_are_means_between_the_steps_they_name() -> None:
    lines = [
        {"step": i, "return": [None, float(i)], "sm": [1.0, float("nan")]} for i in range(1, 251)
    ]
    ours, other = curve(lines, 1), curve(lines, 0)
    assert ours["step"][-1] == 250 and len(ours["step"]) == 100
    assert ours["return"][0] == 2.0  # steps 1, 2 and 3
    assert "sm" not in ours and "return" not in other
    assert curve(lines[:3], 1)["return"] == [1.0, 2.0, 3.0]
    assert curve([], 0) == {"step": []}
