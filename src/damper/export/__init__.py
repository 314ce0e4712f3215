"""Trained policies as files that run anywhere: everything inside, a contract beside, checked against the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from damper.engine.files import write_json
from damper.errors import DamperError
from damper.export.check import compare
from damper.export.contract import make_contract
from damper.export.files import open_file, write
from damper.export.sources import Source, open_source

__all__ = ["Source", "export", "open_file", "open_source"]


def export(
    source: Any,
    to: str | Path,
    agent: int = 0,
    env: str | None = None,
    vecnormalize: Any = None,
    check: bool = True,
    trust: bool = False,
) -> dict[str, Any]:
    """Write a policy to ONNX (``.onnx``) or as PyTorch's exported program (``.pt2``), with its contract beside it.

    Tanh, the action's range and VecNormalize's statistics are inside: observations go in as the environment gives
    them, ``[batch, d]`` in float32, and actions come out in the environment's units, without noise.

    Args:
        source: a ``Run``, ``Policy``, SB3 model, or a path to a run, a policy file or an SB3 zip.
        to: the file to write; the contract gets the same name ending in ``.json``.
        agent: which agent of a run.
        env: the environment's id, where the source does not tell it.
        vecnormalize: SB3's ``VecNormalize`` or its file (a pickle: needs ``trust``).
        check: run the written file on thousands of observations and compare with the original.
        trust: allow unpickling what cannot be read otherwise.

    Returns:
        The contract.
    """
    opened, path = open_source(source, agent, env, vecnormalize, trust), Path(to)
    if opened.network is None:
        already = DamperError(f"{source} is an exported file already: export the run or model it came from.")
        raise opened.refusal or already
    contract = make_contract(opened, opened.network)
    contract["sha256"] = write(opened.network, path, contract)
    try:
        contract |= {"check": compare(opened, opened.network, path)} if check else {}
    except DamperError:
        path.unlink()  # nobody must find a wrong policy under a good name
        raise
    write_json(path.with_suffix(".json"), {"file": path.name, **contract})
    return contract
