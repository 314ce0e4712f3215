"""``python -m paper bench`` as users type it."""

from __future__ import annotations

import json
import shlex
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from damper.cli.options import parse
from damper.engine.update.learner import Learner
from paper.bench.interleaved_timing import CLOCKS
from paper.bench.result import Measurement, read
from paper.cli import main
from paper.cli.bench import _command
from paper.cli.options.bench import Bench
from paper.experiments.timings import read_timings

pytestmark = pytest.mark.serial
SMALL = [
    "--backbones",
    "td3",
    "--methods",
    "plain",
    "damper",
    "--iterations",
    "4",
    "--rounds",
    "2",
    "--task",
    "Pendulum",
]


@pytest.mark.usefixtures("ticking")
def test_update_writes_table_plot_json_and_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "bench",
        "update",
        *SMALL,
        "--out",
        str(tmp_path / "an o"),
        f"--results={tmp_path / 'an r'}",
    ]
    monkeypatch.setattr("sys.argv", ["pytest", "--of-another-program"])
    main(words)
    content = json.loads((tmp_path / "an o" / "update.json").read_text())
    rows = {row["method"]: row for row in content["rows"]}
    assert (rows["plain"]["× plain"], rows["damper"]["paper's × plain"]) == (1.0, 1.45)
    # A turn of two iterations takes one second.
    assert [rows["damper"][column] for column in ("ms", "median ms", "× plain")] == [
        500.0,
        500.0,
        1.0,
    ]
    assert (
        content["hardware"]["cpu"]
        and content["versions"]["torch"]
        and content["how"]["iterations"] == 4
    )
    timings = {timing.method: timing for timing in read_timings(tmp_path / "an r")}
    assert set(timings) == {"plain", "damper"}
    assert (timings["damper"].milliseconds, timings["damper"].rounds) == (500.0, [500.0, 500.0])
    assert timings["damper"].setting == timings["plain"].setting
    assert (
        timings["damper"].command
        == content["command"]
        == " ".join(["python -m paper bench update --device cpu", *SMALL])
    )
    assert "paper's" in capsys.readouterr().out


def test_a_measurement_names_the_command_that_makes_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Bench(
        "floor", "cpu", tf32=False, task="floor", steps=600, sizes=(1, 5), methods=("my method",)
    )
    monkeypatch.setattr("sys.argv", ["pytest"])
    words = "--no-tf32 --methods 'my method' --sizes 1 5 --task floor"
    assert _command(found, "floor") == f"python -m paper bench floor --device cpu {words}"
    again = parse(Bench, "python -m paper bench", shlex.split(_command(found, "floor"))[4:])
    assert again == found


@pytest.mark.parametrize(
    ("gpu", "words", "chosen"), [(0, [], "cpu"), (1, [], "cuda"), (1, ["--device", "cpu"], "cpu")]
)
def test_a_gpu_is_measured_where_there_is_one(
    gpu: int,
    words: list[str],
    chosen: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "damper.engine.settings.devices._fastest_device", lambda: "cuda" if gpu else "cpu"
    )
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpu)
    seen: list[str] = []
    monkeypatch.setattr(
        "paper.cli.bench._measure", lambda options, part: seen.append(options.device)
    )
    main(["bench", "update", *words])
    assert seen == [chosen]
    assert (f"Measuring on {chosen};" in capsys.readouterr().out) == (not words)


def measured(what: str, out: Path, *words: str) -> Measurement:
    main(["bench", what, *SMALL, *words, "--out", str(out), "--clock", "processor"])
    found = read(out / f"{what}.json")
    assert found.how["clock"] == "processor"
    return found


@pytest.mark.usefixtures("ticking")
def test_whole_updates_are_timed_beside_others(tmp_path: Path) -> None:
    rows = measured("peers", tmp_path).rows
    assert {row["implementation"] for row in rows} >= {
        "damper engine plain",
        "damper engine damper",
    }
    assert {(row["ms"], row["× faster"]) for row in rows} == {(500.0, 1.0)}


@pytest.mark.usefixtures("ticking")
def test_scaling_tells_what_an_agent_costs(tmp_path: Path) -> None:
    rows = measured("scaling", tmp_path, "--sizes", "1", "2").rows
    assert [(row["agents"], row["ms"], row["µs per agent"]) for row in rows] == [
        *[(1, 500.0, 500_000.0)] * 2,
        *[(2, 500.0, 250_000.0)] * 2,
    ]
    assert rows[2]["state MiB"] == pytest.approx(2 * rows[0]["state MiB"], rel=1e-3)


def test_no_update_is_faster_than_the_machine(tmp_path: Path) -> None:
    rows = measured("floor", tmp_path, "--sizes", "1", "2").rows
    by_size = {(row["method"], row["agents"]): row for row in rows}
    assert by_size["damper", 2]["Mflop"] == pytest.approx(2 * by_size["damper", 1]["Mflop"])
    assert all(row["× limit"] > 0.5 for row in rows)


@pytest.mark.usefixtures("ticking")
def test_our_sb3_classes_by_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    monkeypatch.setitem(CLOCKS, "wall", lambda: pytest.fail("the wall clock was read"))
    rows = measured("sb3", tmp_path).rows
    assert [(row["backbone"], row["method"]) for row in rows] == [
        ("TD3", "plain"),
        ("TD3", "damper"),
    ]
    assert {(row["ms"], row["× SB3's plain"]) for row in rows} == {(500.0, 1.0)}


def test_ppo_is_measured_beside_sb3_s_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--backbones", "ppo", "--methods", "damper", "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        main(["bench", "scaling", *words])
    assert "backbones must be td3 or sac here, but ppo was given" in capsys.readouterr().err
    main(["bench", "sb3", *words])
    assert [(row["backbone"], row["method"]) for row in read(tmp_path / "sb3.json").rows] == [
        ("PPO", "damper")
    ]


@pytest.mark.usefixtures("ticking")
def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--device", "cpu", "--out", str(tmp_path)]
    monkeypatch.setattr("paper.bench.peers.has_sbx", lambda: False)
    main(["bench", "peers", *words])
    assert (
        'peers without SBX, which is not installed: pip install "damper-rl[peers]"'
        in capsys.readouterr().out
    )
    monkeypatch.setattr("paper.bench.peers.has_sb3", lambda: False)
    main(["bench", "update", *words])
    assert (
        'without Stable-Baselines3, which is not installed: pip install "damper-rl[sb3]"'
        in capsys.readouterr().out
    )
    for part in ("peers", "sb3"):
        with pytest.raises(SystemExit):
            main(["bench", part, *words])
        told = f'damper: bench {part} needs Stable-Baselines3: pip install "damper-rl[{part}]".'
        assert told in capsys.readouterr().err


def test_end_to_end_shares_add_up(tmp_path: Path) -> None:
    words = ["--tasks", "Pendulum", "--backbones", "td3", "--methods", "damper", "--steps", "72"]
    main(["bench", "end-to-end", *words, "--out", str(tmp_path)])
    rows = read(tmp_path / "end-to-end.json").rows
    assert {(row["backbone"], row["method"]) for row in rows} == {("TD3", "damper")}
    for row in rows:
        parts = [row["stepping %"], row["acting %"], row["updating %"]]
        assert min(parts) > 0 and 50 < sum(parts) <= 100
        assert row["updating %"] == max(parts)


def test_end_to_end_is_timed_where_updates_seldom_wait_for_the_step_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[int] = []
    update_ahead = Learner.update_ahead
    monkeypatch.setattr(
        Learner, "update_ahead", lambda self: (ahead.append(self.replay.stored), update_ahead(self))
    )
    # Read once at every second step, and before and after the simulator's.
    monkeypatch.setattr(
        "paper.bench.end_to_end.time", SimpleNamespace(perf_counter=map(float, count()).__next__)
    )
    words = ["--tasks", "Pendulum", "--backbones", "td3", "--methods", "plain", "--steps", "24"]
    main(["bench", "end-to-end", *words, "--out", str(tmp_path)])
    rows = read(tmp_path / "end-to-end.json").rows
    assert len(ahead) > 20 * len(rows) and min(ahead) >= 100_000
    assert {(row["steps/s"], row["simulator µs"]) for row in rows} == {(2.0, 1e6)}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--mode", "graph"], "mode must be eager or compile on a CPU"),
        (["--mode", "graph", "--device", "auto"], "mode must be eager or compile on a CPU"),
        (["--tf32"], "tf32 must be off on a CPU"),
        (["--device", "cuda:99"], "device must be"),
        (["--iterations", "0"], "iterations and rounds must be at least 1"),
        (["--methods", "dmaper"], "did you mean 'damper'?"),
    ],
)
def test_mistakes_end_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "update", "--task", "Pendulum", *words])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")


def test_a_measurement_comes_back_and_reads_as_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"name": "a", "ms": 1234.5}, {"name": "b", "ms": 0.01234, "more": None}]
    found = Measurement("x", "X", "scope", rows, ("ms",), {"device": "cpu"})
    found.save(tmp_path, "python -m paper bench x")
    assert read(tmp_path / "x.json") == found
    assert found.markdown().splitlines()[1:] == [
        "| --- | ---: | --- |",
        "| a | 1,234 |  |",
        "| b | 0.0123 |  |",
    ]
    main(["bench", "--show", str(tmp_path / "x.json")])
    assert found.markdown() in capsys.readouterr().out


def test_a_file_that_is_no_measurement_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--show", str(tmp_path / "x.json")])
    assert stopped.value.code == 2
    assert "x.json" in capsys.readouterr().err
