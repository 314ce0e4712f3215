"""Policies as files that run anywhere: everything inside, a contract beside, checked on writing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from damper.engine.envs import EnvLike
from damper.export.check import check_agreement, check_finite
from damper.export.contract import make_contract
from damper.export.files import check_target, contract_path, write
from damper.export.network import build
from damper.files import disk_error, write_json
from damper.policies.evaluate import evaluate, warn_of_constant_action
from damper.policies.loaded import LoadedPolicy
from damper.policies.opening import open_policy
from damper.policies.recorded import known_spec, mean_record

__all__ = ["export"]

EPISODES = 3  # tell a smooth policy from a shaking one; ``damper evaluate`` runs the protocol's ten


def export(
    source: Any,
    to: str | Path,
    agent: int | str = "best",
    env: EnvLike | None = None,
    vecnormalize: Any = None,
    check: bool = True,
    trust: bool = False,
    episodes: int = EPISODES,
    force: bool = False,
) -> dict[str, Any]:
    """Write a policy to ONNX (``.onnx``) or PyTorch's exported program (``.pt2``), with a contract.

    Tanh, the action's range and VecNormalize's statistics are inside: observations go in as the
    environment gives them, ``[batch, d]`` in float32, and actions come out in the environment's
    units, without noise.

    Args:
        source: a ``Run``, ``Policy``, SB3 model, or a path to a run, a policy file or an SB3 zip.
        to: the file to write; the contract's name is the same with ``.json`` behind it:
            ``policy.onnx.json``.
        agent: which agent of a run; "best" is the only one, or of several the one with the highest
            mean return in the run's own evaluation, which must exist, as in ``damper.load``.
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
    policy = open_policy(source, agent, env, vecnormalize, trust)
    if policy.refusal is not None:
        raise policy.refusal
    network = build(policy)
    check_finite(network)
    contract = make_contract(policy, network, _smoothness(policy, episodes))
    # Temporary names until all checks pass, so that a wrong file never replaces a good one.
    file = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    beside = file.with_suffix(".json")
    try:
        contract["sha256"] = write(network, file, contract)
        if check:
            contract["check"] = check_agreement(policy, network, file, path)
        write_json(beside, {"file": path.name, **contract})
        os.replace(file, path)
        os.replace(beside, contract_path(path))
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        for temporary in (file, beside):
            with suppress(OSError):
                temporary.unlink()
    return contract


def _smoothness(policy: LoadedPolicy, episodes: int) -> dict[str, Any] | None:
    """Means of the run's own evaluation, or of episodes now; None where no environment is known."""
    if policy.smoothness is not None:
        if policy.smoothness["constant_action"]:
            warn_of_constant_action(policy)
        return policy.smoothness
    if episodes == 0 or known_spec(policy.env) is None:
        return None
    evaluation = evaluate(policy, episodes=episodes)
    return mean_record(evaluation.env, evaluation.records())
