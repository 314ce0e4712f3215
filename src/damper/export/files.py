"""The file formats: ONNX, written node by node, and PyTorch's exported program."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from damper.errors import DamperError
from damper.export.network import Array, Module, Network, Step
from damper.files import check_folder, write_bytes
from damper.policies.exported import CONTRACT, EXPORT_SUFFIXES, import_onnx

INPUT, OUTPUT, BATCH = "observation", "action", "batch"
# Old enough for runtimes in the field, new enough for every operation here.
OPSET, IR_VERSION = 17, 8


def write(network: Network, path: Path, contract: Mapping[str, Any]) -> str:
    """Write the format that the ending names; returns the content's SHA-256."""
    to_bytes = _onnx_bytes if path.suffix == ".onnx" else _torch_bytes
    return write_bytes(path, to_bytes(network, json.dumps(contract, sort_keys=True)))


def check_target(path: Path, force: bool = False) -> None:
    """Raise for an unknown format, a folder that cannot be written, or another's file there."""
    if path.suffix not in EXPORT_SUFFIXES:
        raise DamperError(
            f"the file must end in {' or '.join(EXPORT_SUFFIXES)}, but is {str(path)!r}: choose "
            "one of these."
        )
    check_folder("to", path.parent)
    for place in (path, contract_path(path)):
        if place.exists() and not (force or _exported(place)):
            raise DamperError(
                f"{place} already exists, and damper export did not write it: choose another name, "
                "or replace it with --force (force=True)."
            )


def contract_path(path: Path) -> Path:
    """The path of a policy file's contract: ``policy.onnx.json`` beside ``policy.onnx``."""
    return path.with_name(f"{path.name}.json")


def _exported(path: Path) -> bool:
    """Whether an export wrote this: contracts are plain text, in their files and in policies."""
    return path.is_file() and b'"format": "damper-policy-' in path.read_bytes()


def _onnx_bytes(network: Network, contract: str) -> bytes:
    onnx = import_onnx("onnx")
    helper, nodes, value = onnx.helper, [], INPUT
    constants: dict[str, Array] = {}
    for i, step in enumerate(network.steps):
        names = [f"{step.name.lower()}_{i}_{j}" for j in range(len(step.constants))]
        constants |= dict(zip(names, step.constants, strict=True))
        result = OUTPUT if i + 1 == len(network.steps) else f"value_{i}"
        nodes += _nodes(helper, step, value, names, result)
        value = result
    tensor = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(INPUT, tensor, [BATCH, network.inputs])]
    outputs = [helper.make_tensor_value_info(OUTPUT, tensor, [BATCH, network.outputs])]
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="damper")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, {CONTRACT: contract})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _nodes(helper: Any, step: Step, value: str, constants: list[str], result: str) -> list[Any]:
    if step.name != "Silu":
        return [helper.make_node(step.name, [value, *constants], [result])]
    gate = f"{result}_gate"  # opset 17 has no Silu, which is x · sigmoid(x)
    sigmoid = helper.make_node("Sigmoid", [value], [gate])
    return [sigmoid, helper.make_node("Mul", [value, gate], [result])]


def _torch_bytes(network: Network, contract: str) -> bytes:
    example = (torch.zeros(2, network.inputs),)
    shapes = {INPUT: {0: torch.export.Dim(BATCH)}}
    program = torch.export.export(Module(network).eval(), example, dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={CONTRACT: contract})
    return buffer.getvalue()
