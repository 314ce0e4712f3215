from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import damper
from damper.engine.run.folder import Run
from damper.engine.run.lock import run_lock
from damper.engine.run.metrics_log import MetricsLog
from damper.errors import DamperError
from damper.interface import Loss
from damper.methods import METHODS, Method
from damper.policies.evaluate import evaluate
from damper.provenance import source_digest, versions
from paper.cli import main
from paper.experiments.catalogue import expand_request
from paper.experiments.identity import identity
from paper.experiments.population_plan import pack
from paper.experiments.records import unpack_trace
from paper.experiments.reproduce import Outcome, command, estimate, overview, reproduce
from paper.experiments.store import Store
from paper.runners.in_process import plan, record_run
from paper.runners.workers import AGENT_STEPS_PER_SECOND
from paper.tests.experiments.helpers import TINY, agents_of, invented, tiny


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))
    }


def numbers(folder: Path) -> dict[str, object]:
    return {record.digest: (record.episodes, record.trace) for record in Store(folder)}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    outcome = reproduce(tiny(), folder / "results", folder / "runs", progress=False)
    assert outcome == Outcome(wanted=2, there=0, added=2, left=0)
    return folder


def test_records_say_what_was_done(done: Path) -> None:
    records = list(Store(done / "results"))
    assert [record.identity for record in records] == [
        agent.identity
        for agent in sorted(
            expand_request(tiny()), key=lambda agent: str(Store(done).spool_path(agent.identity))
        )
    ]
    (run,) = (Run(path.parent) for path in done.rglob("manifest.json"))
    for record in records:
        assert len(record.episodes["return"]) == 10 and record.episodes["seed"][0] == 178132
        assert record.deviations["steps"] == 300
        assert record.curve["step"] == [100, 200, 300]
        assert record.trace is not None and record.trace["shape"] == [200, 1]
        assert record.run["agents"] == 2 and record.run["seconds"] == run.manifest["seconds"]
        assert record.run["steps_per_second"] == run.metrics()[-1]["steps_per_second"]
        assert str(done) not in record.text()
        assert (
            record.sources == [source_digest()] and record.versions["damper"] == damper.__version__
        )


def test_an_edited_loss_is_trained_anew_and_an_unedited_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, added = tiny(methods=("quiet",), seeds=1, steps=60, episodes=1), []
    places = tmp_path / "results", tmp_path / "runs"
    for loss in (
        lambda policy, batch, noise: policy(batch.obs).square().mean((-2, -1)),
        lambda policy, batch, noise: policy(batch.obs).abs().mean((-2, -1)),
    ):
        monkeypatch.setitem(METHODS, "quiet", Method("quiet", actor=Loss(loss)))
        for _ in range(2):
            added.append(reproduce(request, *places, progress=False).added)
    assert added == [1, 0, 1, 0]
    shutil.rmtree(tmp_path / "results")
    (run,) = (Run(job[1]) for job in plan(expand_request(request), tmp_path / "runs"))
    assert run.finished, "the run of today's code is recorded again, not trained"


def test_runs_of_a_method_that_is_not_known_here_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, places = (
        tiny(methods=("quiet",), seeds=1, steps=60, episodes=1),
        (tmp_path / "results", tmp_path / "runs"),
    )
    loss = Loss(lambda policy, batch, noise: policy(batch.obs).square().mean((-2, -1)))
    monkeypatch.setitem(METHODS, "quiet", Method("quiet", actor=loss))
    reproduce(request, *places, progress=False)
    monkeypatch.delitem(METHODS, "quiet")
    assert reproduce(replace(request, methods=("damper",)), *places, progress=False).added == 1


def test_each_record_holds_its_own_agent(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done / "runs", tmp_path / "runs")
    (run,) = (Run(path.parent) for path in tmp_path.rglob("manifest.json"))
    run.update_manifest(frozen={"1": 77})
    reproduce(tiny(), tmp_path / "results", tmp_path / "runs", progress=False)
    records = {record.identity["seed"]: record for record in Store(tmp_path / "results")}
    assert len({tuple(record.episodes["return"]) for record in records.values()}) == 2
    for index, agent in enumerate(run.agents):
        record, (episodes,) = records[agent["seed"]], evaluate(run.policy(index)).episodes
        assert record.episodes["return"] == pytest.approx(
            [episode.total for episode in episodes], rel=1e-5
        )
        assert record.episodes["sm"] == pytest.approx(
            [e.record()["sm"] for e in episodes], rel=1e-4
        )
        assert record.trace is not None
        np.testing.assert_allclose(unpack_trace(record.trace), episodes[0].executed, atol=1e-4)
        assert record.curve["cosine"] == pytest.approx(
            [line["cosine"][index] for line in run.metrics()], rel=1e-4
        )
        assert record.frozen == (77 if index == 1 else None)


def test_running_twice_changes_nothing(done: Path) -> None:
    before = contents(done)
    with patch(
        "paper.runners.in_process.run_settings",
        side_effect=AssertionError("nothing is to be trained"),
    ):
        assert reproduce(tiny(), done / "results", done / "runs", progress=False).there == 2
    assert contents(done) == before


def test_deleted_records_are_filled_from_runs_that_are_still_there(
    done: Path, tmp_path: Path
) -> None:
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    next((tmp_path / "results").rglob("*.json")).unlink()
    with patch.object(MetricsLog, "write", side_effect=AssertionError("nothing is to be trained")):
        assert reproduce(tiny(), tmp_path / "results", tmp_path / "runs", progress=False).added == 1
    assert numbers(tmp_path / "results") == numbers(done / "results")


def test_deleted_records_are_trained_again_to_the_same_numbers(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done / "results", tmp_path / "results")
    next((tmp_path / "results").rglob("*.json")).unlink()
    assert reproduce(tiny(), tmp_path / "results", tmp_path / "runs", progress=False) == Outcome(
        2, 1, 1, 0
    )
    assert [len(Run(path.parent).agents) for path in tmp_path.rglob("manifest.json")] == [1]
    before, after = (
        {r.digest: r.episodes for r in Store(folder / "results")} for folder in (done, tmp_path)
    )
    assert before.keys() == after.keys()
    for who, episodes in before.items():
        # Trained alone, not as one of two: the same up to rounding.
        assert after[who]["return"] == pytest.approx(episodes["return"], rel=1e-3)
        assert after[who]["sm"] == pytest.approx(episodes["sm"], rel=1e-2)


class KilledError(Exception):
    pass


def test_a_killed_run_is_gone_on_with_even_if_more_is_asked_for(tmp_path: Path) -> None:
    write = MetricsLog.write

    def killed(log: MetricsLog, line: dict[str, Any]) -> None:
        if line["step"] == 300:
            raise KilledError
        write(log, line)

    with patch.object(MetricsLog, "write", killed), pytest.raises(KilledError):
        reproduce(tiny(), tmp_path / "results", tmp_path / "runs", progress=False)
    Run(next(tmp_path.rglob("manifest.json")).parent).update_manifest(source="another code")
    more = tiny(seeds=3)
    jobs = plan(expand_request(more), tmp_path / "runs")
    assert sorted(len(job.wanted) for job, _ in jobs) == [1, 2]
    assert reproduce(more, tmp_path / "results", tmp_path / "runs", progress=False).added == 3
    begun = [
        Run(path.parent)
        for path in tmp_path.rglob("manifest.json")
        if len(Run(path.parent).agents) == 2
    ]
    assert [run.manifest["resumed"][0]["step"] for run in begun] == [200]
    sources = [record.sources for record in Store(tmp_path / "results")]
    assert sorted(sources) == sorted(
        [["another code", source_digest()]] * 2 + [[source_digest()]]
    ), "what other code began says so"


def test_another_process_at_the_same_run_is_left_alone(tmp_path: Path) -> None:
    (job,) = pack(expand_request(tiny()))
    with run_lock(job.folder(tmp_path / "runs")):
        outcome = reproduce(tiny(), tmp_path / "results", tmp_path / "runs", progress=False)
    assert outcome == Outcome(wanted=2, there=0, added=0, left=2)


def test_other_physics_are_another_cell(done: Path) -> None:
    with patch("paper.experiments.catalogue.versions", return_value={"gymnasium": "9.9.9"}):
        rows = overview(tiny(), done / "results")
    assert [(row.done, row.elsewhere, row.populations) for row in rows] == [(0, 2, 1)]
    assert rows[0].platforms == {
        f"--backend gymnasium (gymnasium {versions()['gymnasium']} installed)": 2
    }


def test_the_overview_counts_and_estimates(done: Path) -> None:
    (row,) = overview(tiny(seeds=4), done / "results")
    assert (row.done, row.total, row.elsewhere, row.populations) == (2, 4, 0, 1)
    records = list(Store(done / "results"))
    assert row.seconds == pytest.approx(300 / records[0].run["steps_per_second"])
    assert estimate(pack(agents_of("pegrad")), records) == (
        0.0,
        ("LunarLander", "Hopper", "Walker"),
    )


def test_the_estimate_takes_the_most_similar_runs() -> None:
    plain, damper = (
        agents_of("td3-table", tasks=("Ant",), methods=(m,)) for m in ("plain", "damper")
    )
    records = [invented(agent, run={"agents": 5, "steps_per_second": 50.0}) for agent in plain]
    records += [invented(agent, run={"agents": 5, "steps_per_second": 200.0}) for agent in damper]
    assert estimate(pack(damper), records)[0] == pytest.approx(1_000_000 / 200)
    assert estimate(pack(agents_of("td3-table", tasks=("Ant",), methods=("pave",))), records)[
        0
    ] == pytest.approx(8000)


def test_the_estimate_is_of_the_device_and_of_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents = agents_of("td3-table", tasks=("Ant", "Walker"))
    on_gpu = {"device": "cuda:0", "agents": 5, "steps_per_second": 500.0}
    records = [invented(agent, run=on_gpu) for agent in agents if agent.identity["task"] == "Ant"]
    assert estimate(pack(agents), records) == (0.0, ("Ant", "Walker")), (
        "an H200's speed is no CPU's"
    )
    gpu = [replace(job, settings=replace(job.settings, device="cuda")) for job in pack(agents)]
    assert estimate(gpu, records) == (7 * 2000.0, ("Walker",))
    assert estimate(gpu, records, workers=5) == (pytest.approx(7 * 2000.0 / 5), ("Walker",))
    assert estimate(gpu, records, workers=10)[0] == 2000.0, "the longest is waited for"
    assert estimate(gpu, records, workers=0)[0] == 7 * 2000.0
    alone = [replace(record, run={**on_gpu, "device": "cpu", "agents": 1}) for record in records]
    assert estimate(pack(agents[:5]), alone)[0] == pytest.approx(10_000), (
        "on a CPU five agents take five times as long"
    )


def test_no_estimate_is_faster_than_a_gpu_ever_was() -> None:
    agents = agents_of(
        "scalarization-sweep", tasks=("Hopper", "Walker"), methods=("scalarization",)
    )
    on_gpu = {"device": "cuda:0", "agents": 5, "steps_per_second": 1000.0}
    records = [invented(agent, run=on_gpu) for agent in agents[::100]]
    hopper, walker = (
        replace(job, settings=replace(job.settings, device="cuda")) for job in pack(agents)
    )
    least = 100 * 1_000_000 / AGENT_STEPS_PER_SECOND
    assert estimate([hopper], records)[0] == pytest.approx(least), (
        "not 1,000 steps of a hundred agents in a second"
    )
    assert estimate([hopper, walker], records, workers=2)[0] == pytest.approx(2 * least)
    five = replace(walker, wanted=walker.wanted[:5])
    assert estimate([hopper, five], records, workers=1)[0] == pytest.approx(least + 1000), (
        "one after the other"
    )


def test_the_list_says_under_which_options_records_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("damper.engine.settings.resolving._envpool_has", lambda task: True)
    monkeypatch.setenv("COLUMNS", "200")
    gpu = {"device": "cuda", "tf32": True}
    store = Store(tmp_path)
    for agent in agents_of(
        "one-eta", backbones=("td3",), tasks=("Ant",), settings=gpu, trained_here=False
    ):
        store.add(invented(agent, run={"device": "cuda", "agents": 5, "steps_per_second": 500.0}))
    words = [
        "reproduce",
        "one-eta",
        "--backbones",
        "td3",
        "--tasks",
        "Ant",
        "Walker",
        "--list",
        "--results",
        str(tmp_path),
    ]
    main(words)
    told = capsys.readouterr().out
    assert "on cpu with --backend gymnasium," in told and "unknown yet" in told
    assert numbers_of("one-eta", told) == ["5 of 10", "0", "10"], (
        "what is there first, then what of it is asked for"
    )
    assert "They count with --backend envpool --tf32 (envpool" in told
    assert "No speed is on record on cpu for Ant, Walker." in told
    main([*words, "--tf32", "--device", "cuda"])
    told = capsys.readouterr().out
    assert "on cuda with --backend envpool --tf32," in told and "They count" not in told
    assert numbers_of("one-eta", told) == ["5 of 10", "5", "5"]
    main([*words, "--seeds", "6", "--tf32", "--device", "cuda", "--workers", "3"])
    told = capsys.readouterr().out
    assert (
        "5 of 12" in told
        and "≥ 33 min" in told
        and "No speed is on record on cuda for Walker." in told
    )
    assert (
        "with --workers 2 (2 populations at once, no more than 57,000 agent steps per second in "
        "total" in told
    )
    with pytest.raises(SystemExit):
        main([*words, "--workers", "0"])
    assert "workers must be at least 1, but 0 was given: leave it out" in " ".join(
        capsys.readouterr().err.split()
    )


def numbers_of(name: str, told: str) -> list[str]:
    """On record, under these options, left."""
    (line,) = (line for line in told.splitlines() if f" {name} " in line)
    return [cell.strip() for cell in line.strip("│").split("│")[1:4]]


def test_a_folder_that_does_not_exist_is_said_to_be_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "pegrad", "--list", "--seeds", "1", "--results"]
    main([*words, str(tmp_path / "nowhere")])
    assert (
        "nowhere does not exist, so nothing is on record: name the folder"
        in capsys.readouterr().out.replace("\n", " ")
    )
    main([*words, str(tmp_path)])
    assert "does not exist" not in capsys.readouterr().out


def test_tf32_is_refused_where_no_gpu_multiplies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DamperError, match=r"tf32 must be off on a CPU, .* but True was given"):
        reproduce(
            tiny(settings={**TINY, "tf32": True}),
            tmp_path / "results",
            tmp_path / "runs",
            progress=False,
        )
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_the_same_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tiny(
        "td3-table",
        "eta-sweep",
        seeds=(5, 7),
        episodes=3,
        settings={**TINY, "tf32": True, "gamma": 0.9},
    )
    monkeypatch.chdir(tmp_path)
    with patch("paper.cli.reproduce.reproduce", return_value=Outcome(0, 0, 0, 0)) as called:
        main(command(asked).split()[3:])
    again = called.call_args.args[0]
    assert [agent.digest for agent in expand_request(again)] == [
        agent.digest for agent in expand_request(asked)
    ]
    assert again.experiments == asked.experiments


def test_the_list_and_mistakes_on_the_command_line(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["reproduce", "--list", "--results", str(done / "results")])
    listed = capsys.readouterr().out
    assert "scalarization-sweep" in listed and "0 of 630" in listed
    assert "update-time" in listed and "0 of 14" in listed
    monkeypatch.setenv("COLUMNS", "80")
    main(["reproduce", "--list", "--results", str(done / "results"), "--device", "cuda:7"])
    listed = capsys.readouterr().out
    assert "0 of 630" in listed, "also on a machine without that device"
    assert "not shown at 80 columns: populations, what" in listed, "what matters is"
    for arguments, sentence in (
        (["reproduce"], "experiments must name"),
        (["reproduce", "x"], "experiment must be"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, "--results", str(tmp_path)])
        assert stopped.value.code == 2
        assert sentence in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(DamperError, match="measured, not trained"):
        reproduce(tiny("update-time"), tmp_path)


def test_a_manifest_gives_the_identity_that_was_asked_for(done: Path) -> None:
    (run,) = (Run(path.parent) for path in done.rglob("manifest.json"))
    agents = expand_request(tiny())
    manifest = run.manifest
    found = [
        identity(manifest["settings"], row, agents[0].identity["physics"], 10)
        for row in manifest["agents"]
    ]
    assert found == [agent.identity for agent in agents]


def test_agents_whose_code_is_not_the_asking_process_s_are_refused(done: Path) -> None:
    (run,) = (Run(path.parent) for path in done.rglob("manifest.json"))
    ((job, _),) = plan(expand_request(tiny()), done / "elsewhere")
    assert len(record_run(run, job, "damper")) == 2
    with (
        patch.object(Run, "manifest", {**run.manifest, "custom_code": {"env": "mine:Other 00"}}),
        pytest.raises(
            DamperError,
            match=r"must hold the 2 agents asked for, but 0 match: .* the same code on every",
        ),
    ):
        record_run(run, job, "damper")
