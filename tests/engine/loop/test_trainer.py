"""The training loop: true transitions, the published schedule, what is refused and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from damper.engine import train as train_module
from damper.engine.gradients import CriticGradient, Given
from damper.engine.loop import memory
from damper.engine.loop import trainer as module
from damper.engine.loop.memory import needed_memory
from damper.engine.loop.trainer import Trainer
from damper.engine.run.folder import Run
from damper.engine.settings import resolve
from damper.engine.train import run_settings
from damper.errors import DamperError
from tests.engine import small
from tests.engine.diary import Diary, Poisoned

TINY: dict[str, Any] = {
    "net_arch": (8, 8),
    "batch_size": 8,
    "learning_starts": 20,
    "log_every": 100,
}


def count_at_updates(trainer: Trainer) -> list[int]:
    """How many steps each update could sample from."""
    seen: list[int] = []
    update, replay = trainer.learner.update, trainer.learner.replay
    trainer.learner.update = lambda: (seen.append(int(replay.sampleable_on_device)), update())[1]  # type: ignore[method-assign]
    return seen


# --- transitions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer_size", [900, 100_000])
def test_no_false_transition(tmp_path: Path, buffer_size: int) -> None:
    seeds, steps = (0, 1, 2), 2000
    # Logs and checkpoints look in between, at steps that begin an episode too.
    own = {"buffer_size": buffer_size, "train_freq": 40, "gradient_steps": 1}
    own |= {"log_every": 7, "checkpoint_every": 650}
    trainer = Trainer(
        resolve(Diary, "td3", "grad-caps", seeds, steps, **{**TINY, **own}), tmp_path / "run"
    )
    seen = count_at_updates(trainer)
    trainer.train()
    assert seen == list(range(40, steps + 1, 40)), "an update sees every step before it"
    replay = trainer.learner.replay
    assert replay.stored == steps and replay.capacity == min(steps, buffer_size)
    oldest = steps - replay.capacity
    index = (torch.arange(oldest, steps) % replay.capacity).expand(3, -1)
    batch = replay.gather(index, previous_obs=True)
    tag, episode, t, length, falls = batch.obs.unbind(-1)
    assert torch.equal(tag, torch.tensor(seeds)[:, None].expand_as(tag).float())
    assert torch.equal(batch.next_obs, batch.obs + torch.tensor([0.0, 0, 1, 0, 0])), (
        "no pair crosses a reset"
    )
    torch.testing.assert_close(batch.reward, batch.action[..., 0], rtol=0, atol=1e-6)
    ended = t + 1 == length
    assert torch.equal(batch.terminated, (ended & (falls > 0)).float()), (
        "running out of time is not an end"
    )
    assert (ended & (falls > 0)).sum() > 200 and (ended & (falls == 0)).sum() > 200
    assert not torch.equal(ended[0], ended[1]), "agents reset at different times"
    # Entries follow each other as the episodes went, none left out.
    assert torch.equal(t[:, 1:], torch.where(ended, 0.0, t + 1)[:, :-1])
    assert torch.equal(episode[:, 1:], (episode + ended)[:, :-1])
    before = batch.obs - torch.tensor([0.0, 0, 1, 0, 0])
    lost = t == 0
    lost[:, 0] = True  # the oldest entry's predecessor has been written over
    assert torch.equal(batch.previous_obs, torch.where(lost[..., None], batch.obs, before))


def test_episodes_are_told_as_they_were(tmp_path: Path) -> None:
    trainer = Trainer(resolve(Diary, "td3", "plain", (0, 1), 600, **TINY), tmp_path / "run")
    lines: list[dict[str, Any]] = []
    trainer.metrics_writers = (lines.append,)
    run = trainer.train()
    assert run.metrics() == lines and [line["step"] for line in lines] == [
        100,
        200,
        300,
        400,
        500,
        600,
    ]
    assert [line["updates"] for line in lines] == [80, 180, 280, 380, 480, 580]
    batch = trainer.learner.replay.gather(torch.arange(600).expand(2, -1))
    for j in (0, 1):
        t, length = batch.obs[j, :, 2], batch.obs[j, :, 3]
        for k, line in enumerate(lines):
            ends = (t + 1 == length)[: 100 * (k + 1)].nonzero()[:, 0]
            recent = ends[ends >= 100 * k]
            lengths = length[recent]
            totals = [
                batch.reward[j, end + 1 - int(n) : end + 1].sum()
                for end, n in zip(recent, lengths, strict=True)
            ]
            assert line["length"][j] == pytest.approx(lengths.mean().item())
            assert line["return"][j] == pytest.approx(torch.stack(totals).mean().item(), abs=1e-6)


# --- schedule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("train_freq", "gradient_steps"), [(1, 1), (50, 50), (3, 2)])
def test_updates_begin_after_the_random_steps_and_keep_their_rhythm(
    tmp_path: Path, train_freq: int, gradient_steps: int
) -> None:
    own = {"train_freq": train_freq, "gradient_steps": gradient_steps, "learning_starts": 50}
    trainer = Trainer(small.settings(steps=160, **own), tmp_path / "run")
    at = count_at_updates(trainer)
    trainer.train()
    due = [step for step in range(51, 161) if step % train_freq == 0 for _ in range(gradient_steps)]
    assert at == due and int(trainer.learner.state()["updates"]) == len(due)


@pytest.mark.parametrize("ahead", [False, True])
def test_what_can_be_done_while_the_environments_step_is_done_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    trainer, order = Trainer(small.settings(steps=23), tmp_path / "run"), []
    learner = trainer.learner
    monkeypatch.setattr(learner, "newest_sampled", lambda *_: not ahead)
    parts = [
        (learner, "update"),
        (trainer.acting, "start"),
        (trainer.acting, "actions"),
        (trainer.pool, "send"),
    ]
    for part, name in [*parts, (trainer.episodes, "step"), (trainer.pool, "receive")]:
        original = getattr(part, name)
        monkeypatch.setattr(
            part, name, lambda *a, name=name, call=original: (order.append(name), call(*a))[1]
        )
    trainer.train()
    # What a step brought is taken into the episodes' sums ("step") while the environments do the
    # next; the last one's for the log. A gradient step waits for the environments only where its
    # batch holds their step.
    after = ["start", "actions", "send", "step", "receive", "update"]
    beside = ["start", "actions", "send", "update", "step", "receive"]
    assert order[-13:] == [*(beside if ahead else after) * 2, "step"]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(("policy_delay", "gradient_steps"), [(1, 1), (3, 1), (2, 3)])
def test_the_newest_actor_acts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: bool,
    policy_delay: int,
    gradient_steps: int,
) -> None:
    rhythm = {"policy_delay": policy_delay, "gradient_steps": gradient_steps}
    trainer = Trainer(
        small.settings(steps=60, learning_starts=10, action_noise=0.0, **rhythm), tmp_path / "run"
    )
    learner, learned, acted = trainer.learner, {}, {}
    networks, actions, update = learner.networks, trainer.acting.actions, learner.update

    def watched_actions() -> Any:
        chosen = actions()
        acted[trainer.step] = (
            torch.from_numpy(trainer.obs.copy()),
            torch.from_numpy(chosen.buffer.copy()),
        )
        return chosen

    def updated() -> None:
        update()
        learned[int(learner.replay.sampleable_on_device)] = learner.state()["actor"].clone()

    monkeypatch.setattr(learner, "newest_sampled", lambda *_: not ahead)
    monkeypatch.setattr(trainer.acting, "actions", watched_actions)
    monkeypatch.setattr(learner, "update", updated)
    trainer.train()
    assert sorted(learned) == list(range(11, 61)) and sorted(acted) == list(range(60))
    for step in range(11, 60):
        obs, action = acted[step]
        actor = networks.actor(networks.actor_layout.unflatten(learned[step]))
        torch.testing.assert_close(actor(obs.unsqueeze(1)).squeeze(1), action, rtol=0, atol=1e-6)
    assert (
        len({tuple(rows.flatten().tolist()) for rows in learned.values()}) >= 50 // policy_delay
    ), "they move"


# --- what is logged -------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_each_line_holds_the_means_since_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbone: str
) -> None:
    made = small.settings(
        backbone, "damper", steps=80, log_every=40, learning_starts=10, policy_delay=3, eta=0.5
    )
    trainer, losses, at = Trainer(made, tmp_path / "run"), [], []
    gradients = trainer.learner.gradients
    combined, of_critics = small.watch_rule(trainer.learner), gradients.of_critics

    def watched(given: Given) -> CriticGradient:
        result = of_critics(given)
        losses.append(result.logs["critic_loss"].detach().clone())
        return result

    monkeypatch.setattr(gradients, "of_critics", watched)
    trainer.metrics_writers = (lambda line: at.append((len(losses), len(combined))),)
    lines = trainer.train().metrics()
    assert at == ([(30, 10), (70, 23)] if backbone == "td3" else [(30, 30), (70, 70)])
    cosine = torch.stack(
        [torch.cosine_similarity(step.primary, step.auxiliary) for step in combined]
    )
    ratio = torch.stack(
        [step.auxiliary.norm(dim=1) / step.primary.norm(dim=1) for step in combined]
    )
    expected = {"cosine": cosine, "conflict": (cosine < 0).float(), "norm_ratio": ratio}
    expected["weight"] = ratio.clamp(max=1.0) ** 0.5
    begin = (0, 0)
    for line, end in zip(lines, at, strict=True):
        assert line["critic_loss"] == pytest.approx(
            torch.stack(losses[begin[0] : end[0]]).mean(0).tolist(), rel=1e-5
        )
        for name, values in expected.items():
            found = values[begin[1] : end[1]].mean(0).tolist()
            assert line[name] == pytest.approx(found, rel=1e-4, abs=1e-6), name
        begin = end
    rates = torch.tensor([line["conflict"] for line in lines])
    assert ((rates > 0) & (rates < 1)).any(), "some pairs conflict, some agree"


# --- what went wrong is told ----------------------------------------------------------------------


def test_a_frozen_agent_is_reported_and_changes_no_other(tmp_path: Path) -> None:
    runs, rows = {}, {}
    for env in (Diary, Poisoned):
        trainer = Trainer(
            resolve(env, "td3", "damper", (0, 1, 2), 500, **TINY), tmp_path / env.__name__
        )
        runs[env], rows[env] = trainer.train(), trainer.learner.state()["actor"]
    for j in (0, 2):
        assert torch.equal(rows[Diary][j], rows[Poisoned][j])
    frozen = runs[Poisoned].manifest["frozen"]
    assert runs[Diary].manifest["frozen"] == {} and list(frozen) == ["1"] and 0 < frozen["1"] <= 480
    told = [line["frozen"] for line in runs[Poisoned].metrics()]
    assert told[0] == [-1, -1, -1] and told[-1] == [-1, frozen["1"], -1]
    for clean, line in zip(runs[Diary].metrics(), runs[Poisoned].metrics(), strict=True):
        for name in ("return", "critic_loss", "cosine"):
            assert [line[name][j] for j in (0, 2)] == [clean[name][j] for j in (0, 2)]
    assert runs[Poisoned].metrics()[-1]["critic_loss"][1] is None, "JSON has no NaN"
    assert "NaN" not in (runs[Poisoned].path / "metrics.jsonl").read_text()
    assert rows[Poisoned][1].isfinite().all(), "its last good parameters are kept"


# --- folders --------------------------------------------------------------------------------------


def test_a_finished_run_returns_at_once_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = small.settings(steps=60)
    folder = tmp_path / "run"
    run = Trainer(made, folder).train()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "step-000000000050.json").write_text(
        "{}"
    )  # of a kill between the last two writes
    with pytest.raises(AssertionError, match="a finished run is opened, not trained"):
        Trainer(made, folder)
    for name in ("Trainer", "Progress"):
        monkeypatch.setattr(
            train_module, name, lambda *_, **__: pytest.fail("a finished run needs nothing")
        )
    again = run_settings(made, folder)
    assert again == run and again.finished
    assert "is already finished: nothing is trained." in " ".join(capsys.readouterr().out.split())
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_same_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Trainer(small.settings(steps=60), folder).train()
    for other, was, now in (
        ("gamma", 0.99, 0.9),
        ("steps", 60, 70),
        ("method", "plain", "caps"),
        ("seeds", r"\[0, 1\]", r"\[2\]"),
    ):
        given = {
            "steps": 60,
            other: {"gamma": 0.9, "steps": 70, "method": "caps", "seeds": (2,)}[other],
        }
        with pytest.raises(
            DamperError,
            match=rf"other settings: {other} was '?{was}'?, now '?{now}'?; choose another",
        ):
            run_settings(small.settings(**given), folder)
    assert run_settings(small.settings(steps=60, log_every=7, checkpoint_every=9), folder).finished


def test_a_folder_with_other_files_is_refused_and_one_of_a_killed_start_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DamperError, match="out must be a new or empty folder, or a run"):
        Trainer(small.settings(), tmp_path)
    (tmp_path / "notes.txt").unlink()
    (tmp_path / ".manifest.json.123.tmp").write_text("{")
    Trainer(small.settings(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_what_cannot_be_trained_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DamperError, match="seeds must be one whole number from 0"):
        Trainer(small.settings(seeds=(-1,)), tmp_path / "run")
    with pytest.raises(DamperError, match="env must be an id"):
        Trainer(resolve("Pendulun-v1", steps=10), tmp_path / "run")
    monkeypatch.setattr(memory, "memory_available", lambda device: 7 * 2**30)
    monkeypatch.setattr(
        module, "Learner", lambda *_: pytest.fail("refused before anything is allocated")
    )
    told = (
        r"buffer_size=100000000 with 2 agents needs about 7\.5 GiB on cpu, but 7\.0 GiB are free: "
        "lower buffer_size"
    )
    with pytest.raises(DamperError, match=told):
        Trainer(small.settings(steps=100_000_000, buffer_size=100_000_000), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("backbone", "method"), [("td3", "plain"), ("sac", "damper"), ("td3", "asap"), ("sac", "asap")]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_needed_memory_is_what_is_allocated(backbone: str, method: str, dtype: str) -> None:
    made = small.settings(backbone, method, dtype=dtype, ent_coef=0.2, buffer_size=100)
    learner = small.learner(made)
    state = {
        name: value
        for name, value in learner.state().items()
        if value.ndim == 2 and name != "diagnostics"
    }
    assert needed_memory(made, 3, 1) == sum(
        value.nbytes for value in (*state.values(), learner.replay.rows)
    )


def test_a_run_tells_what_it_is(tmp_path: Path) -> None:
    run = Trainer(
        small.settings("sac", "damper", eta=(0.0, 1.0), steps=60), tmp_path / "run"
    ).train()
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["settings"]["net_arch"] == [12, 10] and manifest["settings"]["method_settings"][
        "eta"
    ] == [0.0, 1.0]
    assert run.agents == [{"eta": eta, "seed": seed} for eta in (0.0, 1.0) for seed in (0, 1)]
    assert {"torch", "gymnasium", "numpy", "python"} <= set(manifest["versions"])
    assert (
        manifest["finished"] and manifest["resumed"] == [] and manifest["hardware"]["threads"] == 1
    )
    assert len(list((run.path / "policies").iterdir())) == 4
    # Also what nobody gave: a default of the method, in the manifest and in every policy's header.
    assert manifest["settings"]["method_settings"]["mask_terminal"] is True
    headers = [run.policy(agent).info.settings for agent in range(4)]
    assert [(own["eta"], own["mask_terminal"]) for own in headers] == [
        (0, True),
        (0, True),
        (1, True),
        (1, True),
    ]
    with pytest.raises(DamperError, match="agent must be 0 to 3"):
        run.policy(4)
    with pytest.raises(DamperError, match="is not a run"):
        _ = Run(tmp_path).manifest
    (run.path / "manifest.json").write_text("{")
    with pytest.raises(DamperError, match=r"manifest\.json is damaged"):
        _ = run.manifest
