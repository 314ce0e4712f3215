"""Trained policies as files that run anywhere: everything inside, a contract beside, checked against the original."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from damper.engine.envs import EnvLike
from damper.errors import DamperError
from damper.export.check import check_agreement, check_finite, check_statistics
from damper.export.contract import make_contract
from damper.export.files import check_target, contract_path, old_contract, open_file, write
from damper.export.load import load
from damper.export.measure import EPISODES, measure_smoothness, warn_of_constant_action
from damper.export.sources import Source, find_path, open_source
from damper.files import disk_error, write_json

__all__ = ["Source", "export", "find_path", "load", "open_file", "open_source"]


def export(
    source: Any,
    to: str | Path,
    agent: int | str = 0,
    env: EnvLike | None = None,
    vecnormalize: Any = None,
    check: bool = True,
    trust: bool = False,
    episodes: int = EPISODES,
    force: bool = False,
) -> dict[str, Any]:
    """Write a policy to ONNX (``.onnx``) or as PyTorch's exported program (``.pt2``), with its contract beside it.

    Tanh, the action's range and VecNormalize's statistics are inside: observations go in as the
    environment gives them, ``[batch, d]`` in float32, and actions come out in the environment's
    units, without noise.

    Args:
        source: a ``Run``, ``Policy``, SB3 model, or a path to a run, a policy file or an SB3 zip.
        to: the file to write; the contract's name is the same with ``.json`` behind it:
            ``policy.onnx.json``.
        agent: which agent of a run; "best" is the one with the highest mean return in the run's own
            evaluation.
        env: the environment to measure the contract's smoothness in; by default the one that the
            source records.
        vecnormalize: SB3's ``VecNormalize`` or its file (a pickle: needs ``trust``).
        check: run the written file on thousands of observations and compare with the original.
        trust: allow unpickling what cannot be read otherwise.
        episodes: episodes for measuring smoothness, if the source has no evaluation; 0 for none.
        force: overwrite files of these names even if no export wrote them.

    Returns:
        The contract.
    """
    path = Path(to)
    check_target(path, force)
    opened = open_source(source, agent, env, vecnormalize, trust)
    if opened.network is None:
        already = DamperError(
            f"{source} is already an exported file: export the run or model it came from."
        )
        raise opened.refusal or already
    network = opened.network
    check_finite(network)
    check_statistics(opened)
    measured = opened.smoothness or measure_smoothness(
        opened.act, opened.env, episodes, (opened.low, opened.high)
    )
    if measured and measured["constant_action"]:
        warn_of_constant_action({"seed": opened.facts.get("seed")}, opened.facts.get("method"))
    contract = make_contract(opened, network, measured)
    # Temporary names until all checks pass, so that a wrong file never replaces a good one.
    file, beside = (
        path.with_name(f".{path.stem}.{os.getpid()}{ending}") for ending in (path.suffix, ".json")
    )
    try:
        contract["sha256"] = write(network, file, contract)
        contract |= {"check": check_agreement(opened, network, file, path)} if check else {}
        write_json(beside, {"file": path.name, **contract})
        os.replace(file, path)
        os.replace(beside, contract_path(path))
        if old := old_contract(path):
            old.unlink()  # it describes the file that was just replaced
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        for temporary in (file, beside):
            with suppress(OSError):
                temporary.unlink()
    return contract
