"""The command as users type it: results, exit codes, one sentence for a mistake."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest

import damper
from damper.cli import main
from damper.cli.options import given, parse
from damper.cli.options.training import EngineOptions

TINY = [
    "--net-arch",
    "16",
    "16",
    "--learning-starts",
    "50",
    "--batch-size",
    "16",
    "--log-every",
    "100",
]


def call(*words: str) -> None:
    main([str(word) for word in words])


def failure(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        call(*words)
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    call(
        "train",
        "Pendulum-v1",
        "--eta",
        "0",
        "1",
        "--seeds",
        "2",
        "--steps",
        "250",
        "--out",
        out,
        *TINY,
    )
    return out


def test_train_makes_one_population_of_the_product(run):
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["finished"]
    assert manifest["agents"] == [{"eta": e, "seed": s} for e in (0.0, 1.0) for s in (0, 1)]
    assert sorted(path.name for path in (run / "policies").iterdir()) == [
        f"agent-000{i}.safetensors" for i in range(4)
    ]


def test_the_same_command_again_changes_nothing(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    call(
        "train",
        "Pendulum-v1",
        "--eta",
        "0",
        "1",
        "--seeds",
        "2",
        "--steps",
        "250",
        "--out",
        run,
        *TINY,
    )
    assert {path: path.read_bytes() for path in before} == before
    assert f"{run} is already finished: nothing is trained.\n" in capsys.readouterr().out


def test_evaluate_writes_records_traces_and_a_picture(run, tmp_path, capsys):
    call("evaluate", run, "--episodes", "2", "--out", tmp_path / "e")
    assert {path.name for path in (tmp_path / "e").iterdir()} == {
        "episodes.json",
        "traces.safetensors",
        "traces.png",
    }
    printed = capsys.readouterr().out
    assert "eta=0" in printed
    assert "eta=1" in printed
    assert "other initial states" not in " ".join(printed.split())


def test_evaluate_says_that_another_simulator_starts_elsewhere(run, tmp_path, capsys):
    pytest.importorskip("envpool")
    policy = run / "policies" / "agent-0000.safetensors"
    for source in (run, policy):
        call("evaluate", source, "--episodes", "1", "--out", tmp_path / "e", "--backend", "envpool")
        printed = " ".join(capsys.readouterr().out.split())
        assert "evaluated with envpool, where the same seeds give other initial states" in printed
    call("evaluate", policy, "--episodes", "1", "--out", tmp_path / "e")
    assert "other initial states" not in " ".join(capsys.readouterr().out.split())
    old = damper.Policy.load(policy)
    damper.Policy(replace(old.info, backend=None), old.flat_params).save(
        tmp_path / "old.safetensors"
    )
    call(
        "evaluate",
        tmp_path / "old.safetensors",
        "--episodes",
        "1",
        "--out",
        tmp_path / "e",
        "--backend",
        "envpool",
    )
    assert "other initial states" not in " ".join(capsys.readouterr().out.split())
    call(
        "evaluate",
        run,
        "--episodes",
        "1",
        "--out",
        tmp_path / "e",
        "--backend",
        "envpool",
        "--env",
        "Pendulum-v1",
    )
    assert "other initial states" not in " ".join(capsys.readouterr().out.split()), (
        "the environment was chosen anew"
    )


def test_evaluate_takes_a_run_of_a_method_that_only_its_author_has(run, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(run, own)
    manifest = json.loads((own / "manifest.json").read_text())
    manifest["settings"]["method"] = "mine"
    (own / "manifest.json").write_text(json.dumps(manifest))
    call("evaluate", own, "--episodes", "1", "--out", tmp_path / "e")
    assert (tmp_path / "e" / "traces.png").exists()


def test_evaluate_with_a_filter_shows_raw_smoothness(run, capsys):
    call("evaluate", run, "--episodes", "1", "--filter", "slew-rate:0.01")
    assert "raw sm" in capsys.readouterr().out
    assert (run / "evaluation-slew-rate-0.01" / "episodes.json").exists()


@pytest.fixture
def filmed(monkeypatch):
    """What a video would show, by name."""
    shown: dict[str, damper.Evaluation] = {}
    monkeypatch.setattr(
        "damper.cli.evaluate.film_evaluations",
        lambda named, path, steps: shown.update(named) or path,
    )
    return shown


def test_sources_beside_it_have_names_that_differ(run, tmp_path, capsys, filmed):
    policy = run / "policies" / "agent-0000.safetensors"
    others = [tmp_path / folder / policy.name for folder in ("a/x", "b/x")]
    for other in others:
        other.parent.mkdir(parents=True)
        shutil.copy(policy, other)
    words = (
        "evaluate",
        policy,
        "--episodes",
        "1",
        "--out",
        tmp_path / "e",
        "--video",
        tmp_path / "film.gif",
    )
    call(*words, "--beside", *others)
    name = policy.name
    assert list(filmed) == [f"run/policies/{name}", f"a/x/{name}", f"b/x/{name}"]
    assert f"but {policy} was given twice: leave one out" in failure(
        capsys, *words, "--beside", policy
    )


def test_statistics_and_trust_are_for_the_first_source_alone(run, tmp_path, capsys, filmed):
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    from damper.sb3 import TD3

    arguments = {
        "policy_kwargs": {"net_arch": [8]},
        "buffer_size": 100,
        "learning_starts": 5,
        "seed": 0,
    }
    env = vec_env.VecNormalize(vec_env.DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    TD3("MlpPolicy", env, **arguments).learn(10).save(tmp_path / "normalised.zip")
    env.save(tmp_path / "statistics.pkl")
    TD3("MlpPolicy", "Pendulum-v1", **arguments).save(tmp_path / "bare.zip")
    given = (
        "--vecnormalize",
        tmp_path / "statistics.pkl",
        "--trust",
        "--video",
        tmp_path / "film.gif",
    )
    words = (
        "evaluate",
        tmp_path / "normalised.zip",
        "--episodes",
        "1",
        "--out",
        tmp_path / "e",
        *given,
        "--beside",
    )
    call(*words, tmp_path / "bare.zip")
    alone = damper.evaluate(tmp_path / "bare.zip", episodes=1).records()
    assert filmed["bare"].records() == alone
    shutil.copy(tmp_path / "normalised.zip", tmp_path / "other.zip")
    assert "other.zip needs one: export it to ONNX first" in failure(
        capsys, *words, tmp_path / "other.zip"
    )


def test_compare_gives_each_method_its_own_settings(tmp_path, capsys):
    words = (
        "compare Pendulum-v1 --methods plain damper --eta 0.5 --seeds 1 --steps 250 --episodes 1"
    )
    call(*words.split(), "--out", tmp_path, *TINY)
    assert {"table.md", "traces.png", "curves.png", "plain", "damper"} <= {
        path.name for path in tmp_path.iterdir()
    }
    manifest = json.loads((tmp_path / "damper" / "manifest.json").read_text())
    assert manifest["settings"]["method_settings"]["eta"] == 0.5
    printed = capsys.readouterr().out
    assert "plain" in printed
    assert "mean |Δa|" in printed


def test_seeds_follow_the_protocol_and_can_be_named(tmp_path):
    call(
        "train",
        "Pendulum-v1",
        "--protocol",
        "pave",
        "--seeds",
        "2",
        "--steps",
        "60",
        "--out",
        tmp_path / "a",
        *TINY,
    )
    assert [
        a["seed"] for a in json.loads((tmp_path / "a" / "manifest.json").read_text())["agents"]
    ] == [178132, 410580]
    call(
        "train",
        "Pendulum-v1",
        "--seed-list",
        "7",
        "9",
        "--steps",
        "60",
        "--out",
        tmp_path / "b",
        *TINY,
    )
    assert [
        a["seed"] for a in json.loads((tmp_path / "b" / "manifest.json").read_text())["agents"]
    ] == [7, 9]


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (
            ("--auxiliary", "grad-caps", "--rule", "damper", "--critic", "pave"),
            "damper+grad-caps+pave",
        ),
        (("--auxiliary", "caps"), "damper+caps"),
        (("--critic", "pave"), "damper+pave"),
        (("--method", "caps", "--rule", "damper"), "damper+caps"),
        (("--method", "caps", "--critic", "pave"), "caps+pave"),
        (("--method", "pave", "--rule", "pcgrad"), "pcgrad+pave"),
        (("--method", "damper+caps+pave", "--rule", "bloop"), "bloop+caps+pave"),
    ],
)
def test_parts_replace_the_method_s_own(tmp_path, words, method):
    call("train", "Pendulum-v1", *words, "--steps", "55", "--out", tmp_path / "run", *TINY)
    assert (
        json.loads((tmp_path / "run" / "manifest.json").read_text())["settings"]["method"] == method
    )


def test_a_composed_method_s_parts_have_their_own_settings(tmp_path):
    words = "train Pendulum-v1 --method caps+pave --sigma 0.3 --critic-sigma 0.02 0.05 --steps 55"
    call(*words.split(), "--out", tmp_path / "run", *TINY)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["settings"]["method_settings"]["sigma"] == 0.3
    assert [agent["critic_sigma"] for agent in manifest["agents"]] == [0.02, 0.05]


def test_temperatures_are_a_population_too(tmp_path):
    call("train", "Pendulum-v1", "--backbone", "sac", "--ent-coef", "0.1", "0.2", "--steps", "55",
         "--out", tmp_path / "run", *TINY)  # fmt: skip
    agents = json.loads((tmp_path / "run" / "manifest.json").read_text())["agents"]
    assert [agent["ent_coef"] for agent in agents] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "Pendulum-v1", "--eta", "1.5"), "eta must be in [0, 1], but 1.5"),
        (("train", "Pendulum-v1", "--method", "damperr"), "did you mean 'damper'"),
        (("train", "Pendulum-v1", "--method", "plain", "--eta", "1"), "eta is not a setting"),
        (("train", "CartPole-v1", "--steps", "10"), "continuous"),
        (("train", "Pendulum-v9", "--steps", "10"), "Pendulum-v1"),
        (("train", "MountainCarContinuous-v0"), "steps must be given"),
        (
            ("train", "--sedes", "5"),
            "--sedes is not an option of damper train: did you mean '--seeds'?",
        ),
        (("train", "Hoper-v5", "--steps", "100"), "did you mean 'Hopper-v5'?"),
        (("train", "--env", "Pendulum-v1"), "--env is not an option of damper train"),
        (("train", "Pendulum-v1", "--tf32"), "tf32 must be off on a CPU"),
        (("compare", "Pendulum-v1", "--tf32"), "tf32 must be off on a CPU"),
        (("train", "Pendulum-v1", "--device", "cuda"), "0 CUDA devices were found"),
        (
            ("train", "Pendulum-v1", "--ent-coef", "much", "--backbone", "sac"),
            "ent_coef must be a number in [0, 1e+06], or 'auto' for all agents, but 'much' was",
        ),
        (
            ("train", "Pendulum-v1", "--method", "plain", "--critic", "pave"),
            "use method 'pave', or name an auxiliary",
        ),
        (
            ("train", "Pendulum-v1", "--steps", "9", "--eta"),
            "--eta must have at least one value, but none was given",
        ),
        (
            ("train", "Pendulum-v1", "--seed", "--steps", "9"),
            "--seed-list must have at least one value, but none was",
        ),
        (
            ("evaluate", ".", "--seed"),
            "--seed-list must have at least one value, but none was given: leave it out",
        ),
        (("train", "Pendulum-v1", "--overlap"), "--overlap is not an option of damper train: "),
        (
            ("train", "Pendulum-v1", "--seeds", "2", "--seed", "3"),
            "seeds must be left out when --seed names them",
        ),
        (("evaluate", "nowhere"), "nowhere does not exist: give a run's folder"),
        (
            ("evaluate", "run", "--out", "e", "--beside", "other"),
            "beside needs --video, which shows the sources",
        ),
        (("evaluate", "."), ". is not a run: it has no manifest.json"),
        (("compare", "Pendulum-v1", "--methods", "plain", "nothing"), "method must be one of"),
        (
            ("compare", "Pendulum-v1", "--methods", "--steps", "100"),
            "methods must name one or more of plain, damper",
        ),
    ],
)
def test_a_mistake_ends_with_code_2_and_one_sentence(
    capsys, monkeypatch, tmp_path, words, sentence
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    message = failure(capsys, *words)
    assert sentence in message
    assert message.startswith("damper: ")
    assert "Traceback" not in message and "nothing is learned" not in message
    assert not list(tmp_path.iterdir())


def test_a_deleted_working_directory_is_one_sentence(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "os.getcwd", lambda: (_ for _ in ()).throw(FileNotFoundError(2, "No such file"))
    )
    assert "the working directory must exist, but was deleted" in failure(
        capsys, "train", "Pendulum-v1"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "Pendulum-v1", "--backend", "envpol"), "did you mean 'envpool'?"),
        (
            ("train", "Pendulum-v1", "--activation", "elu"),
            "--activation: must be one of silu, relu",
        ),
    ],
)
def test_a_misspelt_choice_is_answered_with_the_closest(capsys, words, sentence):
    assert sentence in " ".join(failure(capsys, *words).replace("│", " ").split())


def test_a_run_that_cannot_begin_is_not_told_that_nothing_is_learned(caplog, tmp_path):
    with pytest.raises(damper.DamperError, match="did you mean 'Pendulum-v1'"):
        damper.train("Pendulum-v9", steps=10, out=tmp_path / "run")
    assert caplog.text == ""


@pytest.mark.parametrize(
    "words",
    [("Walker2d-v4",), ("HalfCheetah",), ("json:Mass-v0",), ("Own", "--backend", "envpool")],
)
def test_an_id_that_may_exist_is_left_to_whoever_makes_it(monkeypatch, words):
    seen = []
    monkeypatch.setattr("damper.cli.train.run", lambda options: seen.append(options.env))
    call("train", *words)
    assert seen == [words[0]]


WRITING = {
    "train": ("Pendulum-v1", "--steps", "10"),
    "evaluate": (".",),
    "compare": ("Pendulum-v1", "--steps", "10"),
}


@pytest.mark.parametrize("command", WRITING)
def test_out_must_be_a_folder_that_can_be_written(run, capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(run)
    (tmp_path / "file").touch()
    before = sorted(run.iterdir())
    words = (command, *WRITING[command], "--out")
    for place in ("file", "file/below"):
        assert f"out needs a folder, but {tmp_path}/file is a file" in failure(
            capsys, *words, tmp_path / place
        )
    monkeypatch.setattr(
        "os.access", lambda *_: False
    )  # whoever runs the tests may have every right
    message = failure(capsys, *words, tmp_path / "new" / "folder")
    assert (
        f"out needs a writable folder, but {tmp_path} is not writable: choose another." in message
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and sorted(
        run.iterdir()
    ) == before


def test_a_file_that_the_system_refuses_is_no_traceback(run, capsys, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "their.png")

    monkeypatch.setattr("damper.cli.evaluate.draw_traces", refuse)
    message = failure(capsys, "evaluate", run, "--episodes", "1", "--out", tmp_path)
    assert message == "damper: their.png: Permission denied.\n"


def test_a_run_is_evaluated_and_exported_from_its_own_folder(run, monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(run)
    call("evaluate", ".", "--episodes", "1", "--filter", "low-pass:0.5")
    assert (run / "evaluation-low-pass-0.5" / "episodes.json").exists()
    call("export", ".", "--agent", "0", "--to", tmp_path / "policy.onnx", "--episodes", "0")
    assert (tmp_path / "policy.onnx").exists()


def test_a_wrong_agent_is_one_sentence(run, capsys, tmp_path):
    for source, told in (
        (run, "0 to 3 or 'best'"),
        (run / "policies" / "agent-0000.safetensors", "left out"),
    ):
        message = failure(
            capsys, "export", source, "--to", tmp_path / "policy.onnx", "--agent", "wurst"
        )
        assert (
            message.startswith(f"damper: agent must be {told}") and "'wurst' was given" in message
        )
        assert "damper export --help" in message and not list(tmp_path.iterdir())


def test_files_of_one_name_have_a_folder_each(run, tmp_path):
    names = ["policy.safetensors", "policy.onnx"]
    pytest.importorskip("onnxruntime")
    (tmp_path / names[0]).write_bytes((run / "policies" / "agent-0000.safetensors").read_bytes())
    call("export", tmp_path / names[0], "--to", tmp_path / names[1], "--episodes", "0")
    for name in names:
        call("evaluate", tmp_path / name, "--episodes", "1")
        assert (tmp_path / f"{name}-evaluation" / "episodes.json").is_file()


@pytest.mark.parametrize(
    ("words", "compile"), [([], None), (["--compile"], True), (["--no-compile"], False)]
)
def test_compile_is_a_choice_only_where_it_was_made(words: list[str], compile: bool | None) -> None:
    assert given(parse(EngineOptions, "damper", words)).get("compile") == compile


def test_lines_in_a_pipe_are_whole_and_paths_are_quoted(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    out = tmp_path / ("a long name " * 8).strip()
    call("train", "Pendulum-v1", "--steps", "55", "--out", out, *TINY)
    assert f"1 policy in '{out}'; next: damper evaluate '{out}'\n" in capsys.readouterr().out
    call("evaluate", out, "--episodes", "1")
    assert (
        f"records, traces and picture in '{out}/evaluation' (traces.png)\n"
        in capsys.readouterr().out
    )


def test_one_seed_and_one_episode_have_no_spread(run, capsys, tmp_path):
    call(
        "evaluate",
        run / "policies" / "agent-0000.safetensors",
        "--episodes",
        "1",
        "--out",
        tmp_path,
    )
    assert capsys.readouterr().out.count("(–; –)") == 5


def test_a_narrow_terminal_leaves_out_columns_and_cuts_none(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "60")
    call("evaluate", run, "--episodes", "2", "--out", tmp_path)
    shown = capsys.readouterr().out
    table = [line for line in shown.splitlines() if line[:1] in "┏┃┡│└"]
    assert "return" in table[1] and all(len(line) <= 60 for line in table) and "…" not in shown
    assert "length" not in "".join(table)
    assert "not shown at 60 columns: " in shown and "length" in shown


def test_without_matplotlib_tables_and_records_count(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    call("evaluate", run, "--episodes", "1", "--out", tmp_path / "e")
    assert 'pip install "damper-rl[plot]"' in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "e").iterdir()} == {
        "episodes.json",
        "traces.safetensors",
    }
    words = "compare Pendulum-v1 --methods plain --seeds 1 --steps 55 --episodes 1"
    call(*words.split(), "--out", tmp_path / "c", *TINY)
    assert 'pip install "damper-rl[plot]"' in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"plain", "table.md"}


def test_compare_has_a_folder_per_environment_and_settings(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ("compare", "Pendulum-v1", "--seeds", "1", "--steps", "55", "--episodes", "1", *TINY)
    call(*words, "--methods", "plain")
    call(*words, "--methods", "plain", "caps")  # joins the first
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("compare-Pendulum-v1-td3-")
    assert {"plain", "caps"} < {path.name for path in folder.iterdir()}
    call(*words, "--methods", "caps", "--sigma", "0.3")
    call(*words, "--methods", "plain", "--gamma", "0.9")
    assert len(list(Path("runs").iterdir())) == 3


def test_steps_in_which_nothing_is_learned_are_told(caplog, tmp_path):
    caplog.set_level(
        logging.WARNING, logger="damper"
    )  # whatever other tests made of the root logger
    few = ("train", "Pendulum-v1", "--learning-starts", "1e2", "--net-arch", "8", "--steps")
    call(*few, "100", "--out", tmp_path / "a")
    assert "nothing is learned in 100 steps: with learning_starts=100" in caplog.text
    caplog.clear()
    call(*few, "101", "--out", tmp_path / "b")
    assert not caplog.text


def test_settings_that_the_backbone_does_not_have_are_told(caplog, tmp_path):
    few = ("train", "Pendulum-v1", "--steps", "20", *TINY, "--out")
    call(*few, tmp_path / "a", "--backbone", "sac", "--action-noise", "0.3", "--policy-delay", "1")
    assert "backbone 'sac' does not use policy_delay and action_noise: leave out" in caplog.text
    caplog.clear()
    call(*few, tmp_path / "b", "--ent-coef", "0.3")
    assert "backbone 'td3' does not use ent_coef: leave out" in caplog.text
    caplog.clear()
    call(*few, tmp_path / "c", "--action-noise", "0.3")
    assert "does not use" not in caplog.text


def test_who_steps_the_environments_is_told_where_it_is_not_gymnasium(tmp_path, capsys):
    pytest.importorskip("envpool")
    for backend, told in (("gymnasium", False), ("envpool", True)):
        call(
            "train",
            "Pendulum-v1",
            "--steps",
            "10",
            "--backend",
            backend,
            "--out",
            tmp_path / backend,
            *TINY,
        )
        assert (
            "EnvPool steps the environments; --backend gymnasium" in capsys.readouterr().out
        ) == told


def test_usual_names_are_read_too(tmp_path):
    call(
        "train",
        "Pendulum-v1",
        "--total-timesteps",
        "55",
        "--seed",
        "7",
        "--out",
        tmp_path / "run",
        *TINY,
    )
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["settings"]["steps"] == 55 and manifest["agents"] == [{"seed": 7}]
