"""CUDA's multi-process service (MPS): kernels of several processes run at once on one GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"


@contextmanager
def multi_process_service(enabled: bool = True) -> Iterator[bool]:
    """Let processes started inside the context share a GPU through MPS; yields whether they do.

    A running service is used and left running. Otherwise one is started for this process's
    children, with pipes and logs in a temporary folder, and stopped at the end.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if not enabled or control is None:
        yield False
        return
    if _ask(control, "get_server_list", os.environ):
        yield True
        return
    with tempfile.TemporaryDirectory(prefix="damper-mps-") as folder:
        folders = {PIPES: str(Path(folder, "pipes")), LOGS: str(Path(folder, "logs"))}
        for path in folders.values():
            Path(path).mkdir()
        env = {**os.environ, **folders}
        if subprocess.run([control, "-d"], env=env, capture_output=True, check=False).returncode:
            yield False
            return
        before = {name: os.environ.get(name) for name in folders}
        os.environ.update(folders)
        try:
            yield True
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
            _ask(control, "quit", env)


def _ask(control: str, command: str, env: Mapping[str, str]) -> bool:
    """Send a command to the control daemon; False if none is running."""
    answer = subprocess.run(
        [control], input=f"{command}\n", text=True, env=env, capture_output=True, check=False
    )
    return answer.returncode == 0
