"""Logs are read from CSV and NPZ files; a bad file gets one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from damper.errors import DamperError
from damper.inspection import read_log


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_all_columns_are_actions_unless_named_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "t,hip,knee,q\n0,1,2,3\n0.02,4,5,6\n0.04,7,8,9\n")
    log = read_log(path)
    assert log.action_names == ("hip", "knee", "q") and log.period == pytest.approx(0.02)
    log = read_log(path, observations=["q"], period=0.01)
    assert log.action_names == ("hip", "knee") and log.observation_names == ("q",)
    assert log.period == 0.01 and log.actions.tolist() == [[1, 2], [4, 5], [7, 8]]
    log = read_log(path, actions=["knee"], observations=["q", "hip"])
    assert log.observations.tolist() == [[3, 1], [6, 4], [9, 7]]
    log = read_log(path, actions=["hip"], time="q")
    assert log.period == 3.0


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_tables_without_names_and_with_other_separators(tmp_path: Path, separator: str) -> None:
    rows = [[1.0, -2e-3], [3.0, 4.0], [5.0, 6.0]]
    text = "\n".join(separator.join(map(str, row)) for row in rows)
    log = read_log(write(tmp_path / "log.csv", text))
    assert log.actions.tolist() == rows and log.action_names == ("column 0", "column 1")
    assert log.period is None


def test_words_matter_only_in_columns_that_are_used(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "a,mode\n1,walk\n2,walk\n3,run\n")
    assert read_log(path, actions=["a"]).actions[:, 0].tolist() == [1, 2, 3]
    with pytest.raises(DamperError, match=r"column 'mode' of .* must be numbers"):
        read_log(path)


def test_arrays_of_an_npz_file(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    rng = np.random.default_rng(0)
    actions, observed = rng.standard_normal((5, 2)), rng.standard_normal((5, 3))
    np.savez(path, actions=actions, observations=observed, time=np.arange(5) * 0.1)
    log = read_log(path, ["actions"], ["observations"])
    assert np.array_equal(log.actions, actions) and np.array_equal(log.observations, observed)
    assert log.action_names == ("actions[0]", "actions[1]") and log.period == pytest.approx(0.1)
    one = read_log(path, ["actions[1]"])
    assert np.array_equal(one.actions[:, 0], actions[:, 1])


BAD = {
    "empty.csv": ("", "must have a row per step, but is empty"),
    "short.csv": ("a,b\n1,2\n3,4\n", "must have at least three steps, but has 2"),
    "ragged.csv": ("a,b\n1,2\n3\n", "every row of .* must have 2 values, but row 2 .* has 1"),
    "twice.csv": ("a,a\n1,2\n3,4\n5,6\n", "must have different names"),
    "hole.csv": ("a\n1\nnan\n3\n", "column 'a' .* not finite at step 1"),
    "clock.csv": ("t,a\n0,1\n0,2\n1,3\n", "the times of .* must grow at every step"),
    "only.csv": ("t\n0\n1\n2\n", "must have a column of actions"),
    "notes.md": ("a\n1\n2\n3\n", "must be a CSV or NPZ file, but ends in .md"),
    "fake.npz": ("no archive", "must be an NPZ file of arrays of numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_gets_one_sentence(tmp_path: Path, name: str) -> None:
    text, sentence = BAD[name]
    with pytest.raises(DamperError, match=sentence):
        read_log(write(tmp_path / name, text))


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(DamperError, match="there is no such file"):
        read_log(tmp_path / "none.csv")
    path = write(tmp_path / "log.csv", "ankle,knee\n1,2\n3,4\n5,6\n")
    with pytest.raises(DamperError, match="has no column 'ankel': did you mean 'ankle'"):
        read_log(path, ["ankel"])
    with pytest.raises(DamperError, match="dt must be a positive number of seconds, but -1"):
        read_log(path, period=-1.0)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(128, 256)))
    with pytest.raises(DamperError, match="must be text"):
        read_log(binary)


def test_archives_are_not_unpickled_and_hold_one_length(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    np.savez(path, a=np.array([object()] * 4, dtype=object))
    with pytest.raises(DamperError, match="must be an NPZ file of arrays of numbers"):
        read_log(path)
    np.savez(path, a=np.zeros(4), b=np.zeros(5))
    with pytest.raises(DamperError, match="one length T, but has lengths 4, 5"):
        read_log(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamperError, match="must be an NPZ file"):
        read_log(path)
