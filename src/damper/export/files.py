"""The file formats: ONNX, written node by node, and PyTorch's exported program."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from damper.errors import DamperError, MissingExtraError
from damper.export.network import Array, Module, Network, Step
from damper.files import check_folder, write_bytes

EXPORT_SUFFIXES = (".onnx", ".pt2", ".pt")
INPUT, OUTPUT, BATCH = "observation", "action", "batch"
OPSET, IR_VERSION = (
    17,
    8,
)  # old enough for runtimes in the field, new enough for every operation here
CONTRACT = "damper_contract"
Runner = Callable[[NDArray[Any]], Array]


def write(network: Network, path: Path, contract: Mapping[str, Any]) -> str:
    """Write the format that the ending names; returns the content's SHA-256."""
    return write_bytes(
        path, (_onnx_bytes if path.suffix == ".onnx" else _torch_bytes)(network, contract)
    )


def check_target(path: Path, force: bool = False) -> None:
    """Raise for an unknown format, a folder that cannot be written, or a file there that no export wrote."""
    if path.suffix not in EXPORT_SUFFIXES:
        raise DamperError(
            f"the file must end in .onnx, .pt2 or .pt, but is {str(path)!r}: choose one of these."
        )
    check_folder("to", path.parent)
    for place in (path, contract_path(path)):
        if place.exists() and not (force or _exported(place)):
            raise DamperError(
                f"{place} already exists, and damper export did not write it: choose another name, "
                "or replace it "
                "with --force (force=True)."
            )


def contract_path(path: Path) -> Path:
    """The path of a policy file's contract: ``policy.onnx.json`` beside ``policy.onnx``."""
    return path.with_name(f"{path.name}.json")


def old_contract(path: Path) -> Path | None:
    """The contract of a policy file under the name that earlier versions gave it, ``policy.json``, if it is there."""
    old = path.with_suffix(".json")
    try:
        contract = json.loads(old.read_text(encoding="utf-8"))
        ours = contract["format"].startswith("damper-policy-") and contract["file"] == path.name
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return old if ours else None


def _exported(path: Path) -> bool:
    """Whether an export wrote this: a contract, or a policy file, which holds its contract as plain text."""
    return path.is_file() and b'"format": "damper-policy-' in path.read_bytes()


def open_file(path: Path) -> tuple[Runner, dict[str, Any]]:
    """A written policy as a function of observations ``[N, d]``, and its contract (empty where it carries none)."""
    if not path.is_file():
        raise DamperError(f"{path} does not exist: give a file that damper export wrote.")
    return _open_onnx(path) if path.suffix == ".onnx" else _open_torch(path)


# --- ONNX -----------------------------------------------------------------------------------------------------------


def _extra(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise MissingExtraError(
            f'ONNX files need {name}: pip install "damper-rl[onnx]".'
        ) from error


def _onnx_bytes(network: Network, contract: Mapping[str, Any]) -> bytes:
    onnx = _extra("onnx")
    helper, nodes, value = onnx.helper, [], INPUT
    constants: dict[str, Array] = {}
    for i, step in enumerate(network.steps):
        names = [f"{step.name.lower()}_{i}_{j}" for j in range(len(step.constants))]
        constants |= dict(zip(names, step.constants, strict=True))
        result = OUTPUT if i + 1 == len(network.steps) else f"value_{i}"
        nodes += _nodes(helper, step, value, names, result)
        value = result
    tensor = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(INPUT, tensor, [BATCH, network.inputs])],
        [helper.make_tensor_value_info(OUTPUT, tensor, [BATCH, network.outputs])],
        [onnx.numpy_helper.from_array(constant, name) for name, constant in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="damper"
    )
    model.ir_version = IR_VERSION
    helper.set_model_props(model, {CONTRACT: json.dumps(contract, sort_keys=True)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _nodes(helper: Any, step: Step, value: str, constants: list[str], result: str) -> list[Any]:
    if step.name != "Silu":
        return [helper.make_node(step.name, [value, *constants], [result])]
    gate = f"{result}_gate"
    return [
        helper.make_node("Sigmoid", [value], [gate]),
        helper.make_node("Mul", [value, gate], [result]),
    ]


def _open_onnx(path: Path) -> tuple[Runner, dict[str, Any]]:
    runtime = _extra("onnxruntime")
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no other common base
        raise DamperError(f"{path} is damaged or not an ONNX file: {error}") from error
    name, batch, size = _onnx_input(session, path)

    def run(obs: NDArray[Any]) -> Array:
        if isinstance(size, int) and np.shape(obs)[-1] != size:
            raise DamperError(
                f"{path} takes observations of {size} numbers, but the environment gives "
                f"{np.shape(obs)[-1]}: choose "
                "the one it was trained for."
            )
        rows = np.asarray(obs, np.float32)
        parts = np.split(rows, len(rows)) if batch == 1 else [rows]
        return np.concatenate([session.run(None, {name: part})[0] for part in parts])

    return run, json.loads(session.get_modelmeta().custom_metadata_map.get(CONTRACT, "{}"))


def _onnx_input(session: Any, path: Path) -> tuple[str, Any, Any]:
    """Name, batch size and width of the only input; a file of another exporter may fix the batch at one."""
    inputs = [(one.name, one.type, one.shape) for one in session.get_inputs()]
    name, kind, shape = inputs[0]
    if (
        len(inputs) > 1
        or kind != "tensor(float)"
        or len(shape) != 2
        or (isinstance(shape[0], int) and shape[0] != 1)
    ):
        given = ", ".join(f"{name} {shape} of {kind}" for name, kind, shape in inputs)
        raise DamperError(
            f"{path} must take observations [batch, d] in float32 and nothing else, but takes "
            f"{given}: export it that "
            "way, or give damper.evaluate a function that runs it."
        )
    return name, *shape


# --- PyTorch --------------------------------------------------------------------------------------------------------


def _torch_bytes(network: Network, contract: Mapping[str, Any]) -> bytes:
    example = (torch.zeros(2, network.inputs),)
    shapes = {INPUT: {0: torch.export.Dim(BATCH)}}
    program = torch.export.export(Module(network).eval(), example, dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={CONTRACT: json.dumps(contract, sort_keys=True)})
    return buffer.getvalue()


def _open_torch(path: Path) -> tuple[Runner, dict[str, Any]]:
    extra = {CONTRACT: ""}
    try:
        program = torch.export.load(io.BytesIO(path.read_bytes()), extra_files=extra).module()
    except (RuntimeError, ValueError, KeyError) as error:
        raise DamperError(
            f"{path} is damaged or not an exported PyTorch program: {error}"
        ) from error

    @torch.no_grad()
    def run(obs: NDArray[Any]) -> Array:
        return program(torch.from_numpy(np.asarray(obs, np.float32))).numpy()

    return run, json.loads(extra[CONTRACT] or "{}")
