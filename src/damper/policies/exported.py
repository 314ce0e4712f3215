"""Exported files: ONNX by onnxruntime, PyTorch's programs by torch."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from damper.errors import DamperError, MissingExtraError, MissingOptionError
from damper.policies.loaded import LoadedPolicy, Request

EXPORT_SUFFIXES = (".onnx", ".pt2")
CONTRACT = "damper_contract"  # the key of the contract inside a file
Runner = Callable[[NDArray[Any]], NDArray[np.float32]]


def open_exported(path: Path, request: Request) -> list[LoadedPolicy]:
    """The policy in a file that an export wrote, or in another's ONNX file."""
    if path.suffix != ".onnx" and not request.trust:
        raise MissingOptionError(
            f"{path} may hold pickles, and unpickling runs whatever code the file carries: give "
            "the ONNX file, or, if you trust its author, add --trust (trust=True)."
        )
    run, contract = open_file(path)
    refusal = DamperError(
        f"{path} is already an exported file: export the run or model it came from."
    )
    policy = LoadedPolicy(run, refusal=refusal)
    if not contract:
        return [policy]
    action, env_spec, training = contract["action"], contract["env_spec"], contract["training"]
    seed = training.get("seed")
    complete = replace(
        policy,
        env=EnvSpec.from_json(env_spec) if env_spec else None,
        facts=training,
        agent={"seed": -1 if seed is None else seed},
        low=action["low"],
        high=action["high"],
        smoothness=contract["smoothness"],
        sizes=(contract["observation"]["shape"][1], action["shape"][1]),
    )
    return [complete]


def open_file(path: Path) -> tuple[Runner, dict[str, Any]]:
    """A policy as a function of observations ``[N, d]``, and its contract (empty without one)."""
    if not path.is_file():
        raise DamperError(f"{path} does not exist: give a file that damper export wrote.")
    return _open_onnx(path) if path.suffix == ".onnx" else _open_torch(path)


def import_onnx(name: str) -> Any:
    """``onnx`` or ``onnxruntime``, or what to install."""
    try:
        return __import__(name)
    except ImportError as error:
        fix = 'pip install "damper-rl[onnx]"'
        raise MissingExtraError(f"ONNX files need {name}: {fix}.") from error


def _open_onnx(path: Path) -> tuple[Runner, dict[str, Any]]:
    runtime = import_onnx("onnxruntime")
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no other common base
        raise DamperError(f"{path} is damaged or not an ONNX file: {error}") from error
    name, batch, size = _onnx_input(session, path)

    def run(obs: NDArray[Any]) -> NDArray[np.float32]:
        if isinstance(size, int) and np.shape(obs)[-1] != size:
            raise DamperError(
                f"{path} takes observations of {size} numbers, but the environment gives "
                f"{np.shape(obs)[-1]}: choose the one it was trained for."
            )
        # Other exporters may have fixed the batch at one row.
        rows = np.asarray(obs, np.float32)
        parts = np.split(rows, len(rows)) if batch == 1 else [rows]
        return np.concatenate([session.run(None, {name: part})[0] for part in parts])

    return run, json.loads(session.get_modelmeta().custom_metadata_map.get(CONTRACT, "{}"))


def _onnx_input(session: Any, path: Path) -> tuple[str, Any, Any]:
    """Name, batch size and width of the only input; other exporters may fix the batch at one."""
    inputs = [(entry.name, entry.type, entry.shape) for entry in session.get_inputs()]
    name, kind, shape = inputs[0]
    fixed = len(shape) == 2 and isinstance(shape[0], int) and shape[0] != 1
    if len(inputs) > 1 or kind != "tensor(float)" or len(shape) != 2 or fixed:
        given = ", ".join(f"{name} {shape} of {kind}" for name, kind, shape in inputs)
        raise DamperError(
            f"{path} must take observations [batch, d] in float32 and nothing else, but takes "
            f"{given}: export it that way, or give damper.evaluate a function that runs it."
        )
    return name, *shape


def _open_torch(path: Path) -> tuple[Runner, dict[str, Any]]:
    extra = {CONTRACT: ""}  # torch fills it in
    try:
        program = torch.export.load(io.BytesIO(path.read_bytes()), extra_files=extra).module()
    except (RuntimeError, ValueError, KeyError) as error:
        what = "damaged or not an exported PyTorch program"
        raise DamperError(f"{path} is {what}: {error}") from error

    @torch.no_grad()
    def run(obs: NDArray[Any]) -> NDArray[np.float32]:
        return program(torch.from_numpy(np.asarray(obs, np.float32))).numpy()

    return run, json.loads(extra[CONTRACT] or "{}")
