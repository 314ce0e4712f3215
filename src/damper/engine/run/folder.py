"""A run's folder: manifest, metrics, checkpoints while it trains, at its end one policy each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from damper.engine.run.checkpoint import Checkpoint, CheckpointStore
from damper.engine.run.lock import LOCK
from damper.engine.run.metrics_log import read_metrics
from damper.engine.settings import EXECUTION, Settings
from damper.errors import DamperError
from damper.files import write_json
from damper.policies.policy import Policy, PolicyInfo
from damper.provenance import code_version, hardware, versions


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not."""

    path: Path

    def __init__(self, path: str | Path) -> None:
        object.__setattr__(self, "path", Path(path))

    @property
    def manifest(self) -> dict[str, Any]:
        """All settings, seeds, versions, hardware and the code that ran, and what happened."""
        try:
            manifest: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        except FileNotFoundError as error:
            inside = sorted(other.parent.name for other in self.path.glob("*/manifest.json"))
            hint = f"; give one of the runs in it: {', '.join(inside)}" if inside else ""
            sentence = f"{self.path} is not a run: it has no manifest.json{hint}."
            raise DamperError(sentence) from error
        except ValueError as error:
            raise DamperError(
                f"{self.path / 'manifest.json'} is damaged ({error}): use a copy of the run, or "
                "delete the folder to train it again."
            ) from error
        return manifest

    @property
    def agents(self) -> list[dict[str, Any]]:
        """One row per agent: its seed, and its value of every setting in which agents differ."""
        return self.manifest["agents"]

    @property
    def finished(self) -> bool:
        """Whether training is complete."""
        return (self.path / "manifest.json").exists() and bool(self.manifest.get("finished"))

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any((self.path / "checkpoints").glob("step-*.json"))

    def policy_path(self, agent: int, best: bool = False) -> Path:
        """Path of an agent's last or best policy."""
        return self.path / "policies" / f"{'best' if best else 'agent'}-{agent:04d}.safetensors"

    def policy(self, agent: int = 0, best: bool = False) -> Policy:
        """An agent's last policy, or the best that evaluations found (``eval_every``).

        For an unfinished run, the policy at the newest checkpoint.
        """
        if not 0 <= agent < len(self.agents):
            last = len(self.agents) - 1
            raise DamperError(f"agent must be 0 to {last} in {self.path}, but {agent} was given.")
        if best:
            return self._best(agent)
        return self._load(agent) if self.finished else self.policies()[agent]

    def _load(self, agent: int, best: bool = False) -> Policy:
        try:
            return Policy.load(self.policy_path(agent, best))
        except DamperError as error:
            raise DamperError(
                f"{self.path} is finished, but this version of damper finds no intact policy in "
                f"{self.policy_path(agent, best).name}: use the version that trained it or a copy "
                "of the run, or delete the folder to train it again."
            ) from error

    def _best(self, agent: int) -> Policy:
        if self.finished and str(agent) in self.manifest.get("best", {}):
            return self._load(agent, best=True)
        checkpoint = None if self.finished else self._newest_checkpoint()
        best = checkpoint.facts.get("evaluations", {}).get("best", {}) if checkpoint else {}
        if checkpoint is None or str(agent) not in best:
            raise DamperError(
                f"{self.path} holds no best policy of agent {agent}: train with eval_every to keep "
                "one."
            )
        info = PolicyInfo(**best[str(agent)]["info"])
        return Policy(info, checkpoint.tensors[f"best.{agent}"])

    def _newest_checkpoint(self) -> Checkpoint | None:
        return CheckpointStore(self.path / "checkpoints").newest(with_rows=False)

    def policies(self) -> list[Policy]:
        """The last policy of every agent."""
        manifest = self.manifest
        if manifest.get("finished"):
            return [self.policy(agent) for agent in range(len(manifest["agents"]))]
        checkpoint = self._newest_checkpoint()
        if checkpoint is None or "policies" not in checkpoint.facts:
            raise DamperError(f"{self.path} is not finished: run the same command again.")
        policies = zip(checkpoint.facts["policies"], checkpoint.tensors["policies"], strict=True)
        return [Policy(PolicyInfo(**info), row.clone()) for info, row in policies]

    def metrics(self) -> list[dict[str, Any]]:
        """Training metrics, one row per logging interval."""
        return read_metrics(self.path / "metrics.jsonl")

    def evaluations(self) -> list[dict[str, Any]]:
        """Evaluations during training (``eval_every``), one row each."""
        return read_metrics(self.path / "evaluations.jsonl")

    def extend(self, steps: int) -> None:
        """Record a larger budget, so that the run is unfinished again; ignores a smaller one."""
        manifest = self.manifest
        settings, before = manifest["settings"], manifest["settings"]["steps"]
        if steps > before:
            extended = [*manifest.get("extended", []), {"from": before, "to": steps}]
            settings = {**settings, "steps": steps}
            self.update_manifest(settings=settings, finished=False, extended=extended)

    def update_manifest(self, **facts: Any) -> None:
        """Add facts to the manifest."""
        write_json(self.path / "manifest.json", {**self.manifest, **facts})


def left_to_train(run: Run, settings: Settings) -> bool:
    """Whether the run is new, unfinished, or has a checkpoint and is given a larger budget."""
    if not run.finished:
        return True
    return run.has_checkpoint and settings.steps > run.manifest["settings"]["steps"]


def open_run(path: Path, settings: Settings) -> Run:
    """Open the run in this folder, new or to be continued; raise if the folder holds another run.

    A run with a checkpoint may be continued with a larger budget.
    """
    run = Run(path)
    record, code = json.loads(json.dumps(settings.record(), default=str)), settings.custom_code()
    if (path / "manifest.json").exists():
        _check_same(run, record, code)
        if not run.finished:
            _remove_temporary_files(path, "**/.*.tmp")
        return run
    _remove_temporary_files(path, ".manifest.json.*.tmp")
    if path.exists() and any(other.name != LOCK for other in path.iterdir()):
        raise DamperError(
            f"out must be a new or empty folder, or a run, but {str(path)!r} holds other files."
        )
    facts = {
        "settings": record,
        "custom_code": code,
        "agents": settings.agents(),
        "versions": versions(),
        "hardware": hardware(settings.device),
        **code_version(),
        "finished": False,
        "resumed": [],
    }
    write_json(path / "manifest.json", facts)
    return run


def _check_same(run: Run, record: Mapping[str, Any], code: Mapping[str, str]) -> None:
    """Raise if a run was trained with other settings or other code of the user.

    Settings of execution may differ, and with a checkpoint a run may get a larger budget.
    """
    manifest = run.manifest
    now, before = {**record}, {**manifest["settings"]}
    now |= {f"code of {part}": identity for part, identity in code.items()}
    before |= {f"code of {part}": c for part, c in manifest["custom_code"].items()}
    longer = record["steps"] > before["steps"]
    for name in dict.fromkeys([*now, *before]):
        free = name in EXECUTION or (name == "steps" and longer and run.has_checkpoint)
        if free or now.get(name) == before.get(name):
            continue
        more = ""
        if name == "steps" and longer:
            more = " Only a run with a checkpoint (keep_checkpoint) can be extended."
        if name.startswith("code of"):
            more = " The whole file that defines it counts."
        raise DamperError(
            f"out={str(run.path)!r} holds a run with other settings: {name} was "
            f"{before.get(name)!r}, now {now.get(name)!r}; choose another folder, or repeat the "
            f"settings to continue it.{more}"
        )


def record_env(run: Run, env_spec: str) -> None:
    """Note the environment of a new run (``to_json``); raise if a run's has changed."""
    recorded = run.manifest.get("env_spec")
    if recorded is None:
        run.update_manifest(env_spec=env_spec)
        return
    before, now = json.loads(recorded), json.loads(env_spec)
    for name in ("kwargs", "max_episode_steps", "additional_wrappers"):
        if before[name] != now[name]:
            raise DamperError(
                f"out={str(run.path)!r} holds a run in another environment: {name} of {now['id']} "
                f"was {before[name]!r}, now {now[name]!r}; choose another folder, or register it "
                "as it was to continue."
            )


def open_finished(path: Path, settings: Settings) -> Run:
    """Open a run with nothing left to train; raise if its settings are different."""
    run = open_run(path, settings)
    if not run.manifest.get("kept_checkpoint"):
        # Left if the run was killed between writing the manifest and deleting the checkpoints.
        CheckpointStore(path / "checkpoints").clear()
    return run


def _remove_temporary_files(path: Path, pattern: str) -> None:
    """Remove what a run that was killed during a write left."""
    for leftover in path.glob(pattern):
        leftover.unlink()
