"""Checkpoints: complete, appended to, and never trusted when damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from damper.engine.data.replay import Replay
from damper.engine.run import checkpoint as checkpoint_module
from damper.engine.run.checkpoint import CheckpointStore, join_arrays, split_arrays
from damper.errors import DamperError
from damper.files import write_tensors

P, OBS, ACT = 2, 3, 1
WIDTH = Replay.width(OBS, ACT)


def empty(capacity: int) -> Replay:
    return Replay(capacity, P, OBS, ACT, torch.device("cpu"), torch.float32)


def store_steps(replay: Replay, count: int) -> None:
    for _ in range(count):
        replay.add(torch.full((P, WIDTH), float(replay.stored + 1)))


def tensors(step: int) -> dict[str, torch.Tensor]:
    return {"learner.actor": torch.full((P, 5), float(step)), "learner.updates": torch.tensor(step)}


def saved(folder: Path, capacity: int = 100, steps: tuple[int, ...] = (10, 20, 30)) -> Replay:
    """A run that wrote checkpoints at these steps."""
    replay, store = empty(capacity), CheckpointStore(folder)
    for step in steps:
        store_steps(replay, step - replay.stored)
        store.save(step, {"step": step}, tensors(step), replay)
    return replay


def names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [100, 25, 10, 7])
def test_the_newest_comes_back_whole(tmp_path: Path, capacity: int) -> None:
    replay = saved(tmp_path, capacity)
    store, restored = CheckpointStore(tmp_path), empty(capacity)
    checkpoint = store.newest()
    assert checkpoint is not None and checkpoint.facts == {"step": 30}
    assert torch.equal(checkpoint.tensors["learner.actor"], tensors(30)["learner.actor"])
    store.load_rows(restored, checkpoint)
    assert torch.equal(restored.rows, replay.rows)
    assert restored.stored == int(restored.stored_on_device) == 30
    # And the resumed run's own checkpoints go on from there.
    for ring in (replay, restored):
        store_steps(ring, 12)
    store.save(42, {"step": 42}, tensors(42), restored)
    third = empty(capacity)
    other = CheckpointStore(tmp_path)
    newest = other.newest()
    assert newest is not None and newest.facts == {"step": 42}
    other.load_rows(third, newest)
    assert torch.equal(third.rows, replay.rows) and third.stored == 42


def test_facts_by_agent_come_back_from_ten_agents_on(tmp_path: Path) -> None:
    # As numbers 2 sorts before 10, as JSON's keys after it.
    facts = {"best": {agent: {"return": float(agent)} for agent in range(12)}}
    CheckpointStore(tmp_path).save(10, facts, tensors(10), empty(10))
    checkpoint = CheckpointStore(tmp_path).newest()
    assert checkpoint is not None and checkpoint.facts["best"] == {
        str(n): {"return": float(n)} for n in range(12)
    }


def test_only_new_rows_are_written(tmp_path: Path) -> None:
    replay, store, written = empty(100), CheckpointStore(tmp_path), []
    for step in (10, 20, 30):
        store_steps(replay, 10)
        store.save(step, {}, {}, replay)
        written.append((tmp_path / "rows-000000000000-000000000010.safetensors").stat().st_ino)
    assert len(set(written)) == 1, "the first rows' file is never replaced"
    assert names(tmp_path, "rows-*") == [
        f"rows-{a:012d}-{a + 10:012d}.safetensors" for a in (0, 10, 20)
    ]
    sizes = [len((tmp_path / name).read_bytes()) for name in names(tmp_path, "rows-*")]
    assert max(sizes) < 10 * P * WIDTH * 4 + 200, "ten rows and a header each"


@pytest.mark.parametrize("capacity", [100, 25, 10, 7])
def test_many_rows_are_written_a_few_at_a_time(
    tmp_path: Path, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "SEGMENT_BYTES", 4 * P * WIDTH * 4)
    replay = saved(tmp_path, capacity, steps=(10, 31))
    spans = [
        tuple(map(int, name.split(".")[0].split("-")[1:])) for name in names(tmp_path, "rows-*")
    ]
    assert max(end - start for start, end in spans) == 4, (
        "a row is P times WIDTH numbers of 4 bytes"
    )
    store, restored = CheckpointStore(tmp_path), empty(capacity)
    checkpoint = store.newest()
    assert checkpoint is not None and checkpoint.facts == {"step": 31}
    store.load_rows(restored, checkpoint)
    assert torch.equal(restored.rows, replay.rows) and restored.stored == 31


def test_a_kill_between_two_files_of_rows_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "SEGMENT_BYTES", 4 * P * WIDTH * 4)
    replay, store = saved(tmp_path, capacity=22, steps=(10, 20)), CheckpointStore(tmp_path)
    assert store.newest() is not None
    store_steps(replay, 10)

    def killed(path: Path, content: Any) -> str:
        if path.name.startswith("rows-000000000024"):
            raise KeyboardInterrupt
        return write_tensors(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "write_tensors", killed)
        with pytest.raises(KeyboardInterrupt):
            store.save(30, {"step": 30}, tensors(30), replay)
    assert "rows-000000000020-000000000024.safetensors" in names(tmp_path), (
        "one of three files was written"
    )
    again, restored = CheckpointStore(tmp_path), empty(22)
    checkpoint = again.newest()
    assert checkpoint is not None and checkpoint.facts == {"step": 20}
    again.load_rows(restored, checkpoint)
    assert restored.stored == 20 and torch.equal(restored.rows[:20, 0, 0], torch.arange(1.0, 21))
    store_steps(restored, 3)
    again.save(23, {"step": 23}, tensors(23), restored)
    assert "rows-000000000020-000000000024.safetensors" not in names(tmp_path), (
        "what was left behind is swept"
    )
    newest = CheckpointStore(tmp_path).newest()
    assert newest is not None and newest.facts == {"step": 23}


def test_two_checkpoints_are_kept_and_nothing_that_they_do_not_need(tmp_path: Path) -> None:
    (tmp_path / ".step-000000000010.json.99.tmp").write_text("half")
    saved(tmp_path, capacity=15, steps=(10, 20, 30, 40, 50))
    kept = ["step-000000000040", "step-000000000050"]
    expected = [f"{name}{suffix}" for name in kept for suffix in (".json", ".safetensors")]
    # The last 15 rows before step 40 begin with row 25: the segments from 20 on.
    expected += [f"rows-{a:012d}-{a + 10:012d}.safetensors" for a in (20, 30, 40)]
    assert names(tmp_path) == sorted(expected)


def test_a_new_folder_has_none(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "none").newest() is None


def test_clear_removes_all(tmp_path: Path) -> None:
    saved(tmp_path / "checkpoints")
    CheckpointStore(tmp_path / "checkpoints").clear()
    CheckpointStore(tmp_path / "checkpoints").clear()
    assert names(tmp_path) == []


# --- what is refused ------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))


def vacate(path: Path) -> None:
    path.write_bytes(b"")


def alter_fact(path: Path) -> None:
    written = json.loads(path.read_text())
    written["content"]["facts"]["step"] += 1
    path.write_text(json.dumps(written))


def replace_by_list(path: Path) -> None:
    path.write_text("[1, 2]")


DAMAGES = [
    *(
        ("step-000000000030.json", damage)
        for damage in (cut, flip, vacate, alter_fact, replace_by_list)
    ),
    *(("step-000000000030.safetensors", damage) for damage in (cut, flip, vacate, Path.unlink)),
    *(
        ("rows-000000000020-000000000030.safetensors", damage)
        for damage in (cut, flip, vacate, Path.unlink)
    ),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_used(
    tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    replay = saved(tmp_path, capacity=22, steps=(10, 20, 30))
    damage(tmp_path / name)
    store, restored = CheckpointStore(tmp_path), empty(22)
    with pytest.warns(
        UserWarning,
        match="checkpoint step-000000000030 is damaged .* refused. The one before it is used",
    ):
        checkpoint = store.newest()
    assert checkpoint is not None and checkpoint.facts == {"step": 20}
    store.load_rows(restored, checkpoint)
    assert restored.stored == 20 and torch.equal(
        restored.rows[:20], torch.arange(1.0, 21)[:, None, None].expand(20, P, WIDTH)
    )
    # The run goes on, at another rhythm, and its next checkpoint is the newest again.
    store_steps(restored, 5)
    store.save(25, {"step": 25}, tensors(25), restored)
    again = CheckpointStore(tmp_path).newest()
    assert again is not None and again.facts == {"step": 25}
    assert names(tmp_path, "step-*.json") == ["step-000000000020.json", "step-000000000025.json"]
    assert replay.stored == 30


def test_rows_that_both_need_spoil_both(tmp_path: Path) -> None:
    saved(tmp_path)
    flip(tmp_path / "rows-000000000000-000000000010.safetensors")
    none_whole = r"no checkpoint in .* is intact: delete"
    with (
        pytest.warns(UserWarning, match="is damaged") as told,
        pytest.raises(DamperError, match=none_whole),
    ):
        CheckpointStore(tmp_path).newest()
    for warning, step in zip(told, ("step-000000000030", "step-000000000020"), strict=True):
        assert f"{step} is damaged (rows-000000000000-000000000010.safetensors was altered)" in str(
            warning.message
        )
    assert ["The one before it is used" in str(warning.message) for warning in told] == [
        True,
        False,
    ]


def test_a_kill_before_the_facts_are_written_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "step-000000000030.json").unlink()
    checkpoint = CheckpointStore(tmp_path).newest()
    assert checkpoint is not None and checkpoint.facts == {"step": 20}


# --- nested values --------------------------------------------------------------------------------


def test_arrays_are_split_off_and_joined_again() -> None:
    tree = {
        "random": [None, {"state": {"state": 2**127 + 1, "inc": 5}, "has_uint32": 0}],
        "actions": np.zeros((0, 2, 1), np.float64),
        "began": np.array([3, 0]),
        "nested": {"flags": np.array([True, False]), "text": "a", "pair": (1, 2.5)},
        "number": np.float64(0.25),
    }
    arrays: dict[str, torch.Tensor] = {}
    facts = json.loads(json.dumps(split_arrays(tree, "host", arrays)))
    assert set(arrays) == {"host.actions", "host.began", "host.nested.flags"}
    joined = join_arrays(facts, arrays)
    assert joined["random"] == tree["random"] and joined["number"] == 0.25
    assert joined["nested"]["text"] == "a" and joined["nested"]["pair"] == [1, 2.5]
    for ours, theirs in ((joined["actions"], tree["actions"]), (joined["began"], tree["began"])):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)
