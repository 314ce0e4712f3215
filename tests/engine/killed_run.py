"""One run in a process of its own that kills itself at a chosen moment.

``python -m tests.engine.killed_run FOLDER CASE [CALL NUMBER]``: train CASE into FOLDER and die at
the NUMBER-th CALL. A run that lives to its end prints sums of everything it has learned and stored.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from damper import files
from damper.engine.loop.trainer import Trainer
from damper.engine.run import metrics_log
from damper.engine.run.folder import Run, left_to_train
from damper.engine.settings import Settings
from damper.engine.train import run_settings
from tests.engine import small

COMMON: dict[str, Any] = {
    "steps": 600,
    "log_every": 90,
    "checkpoint_every": 70,
    "batch_size": 8,
    "net_arch": (8, 8),
}
CASES: dict[str, dict[str, Any]] = {
    # A ring that wraps, several values per agent, predecessors, and checkpoints where every episode
    # has just ended.
    "td3": {
        "backbone": "td3",
        "method": "damper+grad-caps",
        "eta": (0.0, 1.0),
        "buffer_size": 150,
        "checkpoint_every": 50,
    },
    # A rule with memory, a learned temperature, updates in blocks.
    "sac": {
        "backbone": "sac",
        "method": "metabalance",
        "train_freq": 20,
        "gradient_steps": 20,
        "steps": 300,
    },
    # A second head with its average, an actor that moves at every third update, and as many
    # checkpoints as steps.
    "often": {
        "backbone": "td3",
        "method": "asap",
        "policy_delay": 3,
        "checkpoint_every": 1,
        "steps": 120,
        "seeds": (3,),
    },
}


def settings(case: str) -> Settings:
    return small.settings(**{**COMMON, **CASES[case]})


def interrupt(made: Settings, out: Path, step: int) -> None:
    """Train in this process until the first metrics line from that step on, then break off."""

    def break_off(line: dict[str, Any]) -> None:
        if line["step"] >= step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(made, out, (break_off,)).train()


def sums(trainer: Trainer) -> dict[str, str]:
    """SHA-256 of every tensor that a run ends with."""
    held = {**trainer.learner.state(), "replay": trainer.learner.replay.rows}
    return {
        name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        for name, tensor in sorted(held.items())
    }


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Half:
    """A file that writes half of what it is given, and dies."""

    def __init__(self, *args: Any) -> None:
        self.file = builtins.open(*args)  # noqa: SIM115

    def __enter__(self) -> Half:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    def write(self, content: Any) -> None:
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        die()


def arm(call: str, number: int) -> None:
    """Die just before the number-th step or ``os.<call>``, or half-way through a file or line."""
    calls = iter(range(1, 1_000_000))

    def watched(original: Any, deadly: Any, counts: Any = lambda *args: True) -> Any:
        return lambda *args: (deadly if counts(*args) and next(calls) == number else original)(
            *args
        )

    if call == "step":
        Trainer.begin_step = watched(Trainer.begin_step, die)  # type: ignore[method-assign]
    elif call in ("file", "line"):
        module: Any = files if call == "file" else metrics_log
        module.open = watched(builtins.open, Half, lambda path, mode: mode != "rb")
    else:
        setattr(os, call, watched(getattr(os, call), die))


def main(folder: str, case: str, call: str = "", number: str = "0") -> None:
    torch.set_num_threads(1)
    if call:
        arm(call, int(number))
    made, out = settings(case), Path(folder)
    if not left_to_train(Run(out), made):  # killed after its last step
        run_settings(made, out)
        print(json.dumps(None))
        return
    trainer = Trainer(made, out)
    trainer.train()
    print(json.dumps(sums(trainer)))


if __name__ == "__main__":
    main(*sys.argv[1:])
