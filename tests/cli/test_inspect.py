"""``damper inspect`` as users type it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from damper.cli import main

DT = 0.02


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    time = np.arange(600) * DT
    slow = np.sin(2 * np.pi * time)
    shaking = slow + 0.5 * rng.standard_normal(600)
    path = tmp_path / "walk.csv"
    table = np.column_stack([time, slow, shaking, slow])
    np.savetxt(path, table, delimiter=",", header="t,hip,knee,q", comments="")
    return path


def test_table_json_and_picture(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    main(["inspect", str(log), "--observations", "q", "--low", "-2", "--high", "2"])
    shown = capsys.readouterr().out
    assert "quiet (hip): does not shake" in shown and "policy (knee)" in shown
    folder = log.with_name("walk.csv-inspection")
    assert (folder / "inspection.png").stat().st_size > 10_000
    saved = json.loads((folder / "inspection.json").read_text())["walk.csv"]
    hip, knee = saved["actions"]
    assert saved["period"] == pytest.approx(DT) and saved["above"] == pytest.approx(5.0)
    assert hip["dominant_frequency"] == pytest.approx(1.0) and hip["name"] == "hip"
    assert (
        knee["power_above"] > 0.1 and 0.0 < knee["saturation"] < 0.05 and hip["saturation"] == 0.0
    )


def test_two_logs_stand_side_by_side(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    after = log.with_name("after.csv")
    after.write_text(log.read_text())
    columns = ["--actions", "hip", "knee"]
    main(["inspect", str(log), str(after), *columns, "--out", str(log.with_name("both"))])
    shown = capsys.readouterr().out
    rows = [line.split()[1:4:2] for line in shown.splitlines() if ".csv" in line and "│" in line]
    assert rows == [
        [action, name] for action in ("hip", "knee") for name in ("walk.csv", "after.csv")
    ]
    saved = json.loads((log.with_name("both") / "inspection.json").read_text())
    assert list(saved) == ["walk.csv", "after.csv"]
    assert saved["walk.csv"] == saved["after.csv"]


def test_mistakes_get_one_sentence(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = log.with_name("other.csv")
    other.write_text("a\n1\n2\n3\n")
    mistakes = {
        ("none.csv",): "there is no such file",
        (str(log), "--above", "30"): "above must be a frequency between 0 and 25",
        (str(log), str(other)): "two logs must have the same actions",
        (str(log), str(log)): "was given twice",
        (str(log), "--actions", "knie"): "did you mean 'knee'?",
    }
    for words, sentence in mistakes.items():
        with pytest.raises(SystemExit) as stopped:
            main(["inspect", *words])
        assert stopped.value.code == 2
        assert sentence in capsys.readouterr().err
