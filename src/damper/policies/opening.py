"""``damper.load``, and behind it the one place that tells what kind of source holds a policy."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from damper.engine.envs import EnvLike, spec_of
from damper.engine.envs.env_spec_json import UNKNOWN, to_json
from damper.engine.run.folder import Run
from damper.errors import DamperError
from damper.policies.episodes import check_fit
from damper.policies.exported import EXPORT_SUFFIXES
from damper.policies.loaded import LoadedPolicy, Request, from_policy
from damper.policies.policy import Policy
from damper.policies.recorded import known_spec, recorded_means
from damper.terminal import quoted

Reader = Callable[[Any, Request], list[LoadedPolicy]]


def _open_run(source: Run | Path, request: Request) -> list[LoadedPolicy]:
    """The policies of a run's agents, or of the one that is asked for."""
    run = source if isinstance(source, Run) else Run(source)
    rows = run.agents
    if request.agent is None:
        # At once, because an unfinished run's policies lie in one checkpoint.
        policies = dict(enumerate(run.policies()))
    else:
        index = _chosen_agent(run, request)
        policies = {index: run.policy(index)}
    manifest, opened = run.manifest, []
    frozen = manifest.get("frozen", {})
    for index, policy in policies.items():
        loaded = from_policy(policy)
        facts = loaded.facts | {"agent": index}
        if str(index) in frozen:
            facts["frozen_at_update"] = frozen[str(index)]
        if not run.finished:
            facts["budget"] = manifest["settings"]["steps"]
        means = _recorded(run, index, policy, request)
        opened.append(replace(loaded, facts=facts, agent=rows[index], smoothness=means))
    return opened


def _open_callable(act: Callable[..., Any], request: Request) -> list[LoadedPolicy]:
    """A user's function from observations to actions."""
    if isinstance(act, torch.nn.Module):
        raise DamperError(
            f"source must take and return arrays, but {type(act).__name__} is a module and takes "
            "tensors: wrap it, as in lambda obs: actor(torch.as_tensor(obs)).detach().numpy(), to "
            "return actions in the environment's units."
        )
    refusal = DamperError(
        "source must be a run, a policy, an SB3 model or a path to one, or an rsl_rl runner, to "
        f"be exported, not a {type(act).__name__}, whose layers are unknown."
    )
    return [LoadedPolicy(act, refusal=refusal)]


def _chosen_agent(run: Run, request: Request) -> int:
    """The index of an agent given as a number or as "best", by the run's own evaluation."""
    agent, last = request.agent, len(run.agents) - 1
    if isinstance(agent, int | Integral):
        return operator.index(agent)
    if agent != "best":
        raise DamperError(f"agent must be 0 to {last} or 'best', but {agent!r} was given.")
    if last == 0:
        return 0
    means = [_recorded(run, i, policy, request) for i, policy in enumerate(run.policies())]
    returns = [record["return"] for record in means if record is not None]
    if len(returns) < len(means):
        raise DamperError(
            f"agent='best' needs an up-to-date evaluation of all agents, but {run.path} has none: "
            f"run damper evaluate {quoted(run.path)} first, or choose an agent from 0 to {last}."
        )
    # For argmax NaN would be the highest.
    return int(np.argmax(np.nan_to_num(returns, nan=-np.inf)))


def _recorded(run: Run, index: int, policy: Policy, request: Request) -> dict[str, Any] | None:
    """Means of an agent's episodes in the run's own evaluation in the environment asked for."""
    env = _in_recorded_wrappers(request, policy.env_spec)
    if not isinstance(env, EnvSpec):
        env = request.spec.env_spec if request.spec else policy.env_spec
    return recorded_means(run.path, index, env, policy.info.steps)


class Kind(NamedTuple):
    """A kind of source.

    Readers of other rooms are named ``module:function``, because SB3, rsl_rl and onnxruntime may be
    missing.
    """

    matches: Callable[[Any], bool]  # whether a source is of this kind; a path exists when asked
    reader: Reader | str
    several: bool = False  # may hold several agents
    statistics: bool = False  # ``vecnormalize`` can belong to it


def _has(*attributes: str) -> Callable[[Any], bool]:
    return lambda source: all(hasattr(source, attribute) for attribute in attributes)


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda source: isinstance(source, kind)


def _is_file(*suffixes: str) -> Callable[[Any], bool]:
    return lambda source: isinstance(source, Path) and source.suffix in suffixes


def _is_run(source: Any) -> bool:
    return isinstance(source, Run) or (isinstance(source, Path) and source.is_dir())


def _is_rsl_rl(source: Any) -> bool:
    """Whether it is an rsl_rl runner, algorithm or actor."""
    # By attributes, as SB3's models below: asking for a class would import the library.
    algorithm = getattr(source, "alg", source)
    return _has("obs_groups", "obs_normalizer")(getattr(algorithm, "actor", algorithm))


# The first that matches opens the source, so what is most particular stands first: our policies
# are callable too, and a path with any other suffix is taken for a policy file.
KINDS = (
    Kind(_is_run, _open_run, several=True),
    Kind(_is_file(".zip"), "damper.sb3.archive:open_zip", statistics=True),
    Kind(_is_file(*EXPORT_SUFFIXES), "damper.policies.exported:open_exported"),
    Kind(_is(Path), lambda path, _: [from_policy(Policy.load(path))]),
    Kind(_is(Policy), lambda policy, _: [from_policy(policy)]),
    Kind(_is(LoadedPolicy), lambda policy, _: [policy]),
    Kind(_has("policy", "predict"), "damper.sb3.convert:open_model", statistics=True),
    Kind(_is_rsl_rl, "damper.rsl_rl.convert:open_runner"),
    Kind(callable, _open_callable),
)


def open_policies(source: Any, request: Request) -> list[LoadedPolicy]:
    """The policies in any source, one per agent asked for, in the environment asked for."""
    if isinstance(source, str | Path):
        source = find_path(source)
    kind = next((kind for kind in KINDS if kind.matches(source)), None)
    if kind is None:
        raise DamperError(
            "source must be a run, a policy, an SB3 model, an rsl_rl runner, a path to one or a "
            f"callable, not {type(source).__name__}: save it first."
        )
    if not kind.several and request.agent not in (None, 0, "best"):
        raise DamperError(
            f"agent must be left out for a source with one policy, but {request.agent!r} was given."
        )
    if not kind.statistics and request.vecnormalize is not None:
        raise DamperError(
            "vecnormalize must be left out here: only a Stable-Baselines3 model or zip needs it, "
            "and other policies hold their statistics."
        )
    reader = kind.reader
    if isinstance(reader, str):
        module, _, name = reader.partition(":")
        reader = getattr(import_module(module), name)
    policies: list[LoadedPolicy] = reader(source, request)
    env = _env(policies[0], request)  # agents of one run have the same
    return [replace(policy, env=env) for policy in policies]


def open_policy(
    source: Any,
    agent: int | str = "best",
    env: EnvLike | None = None,
    vecnormalize: Any = None,
    trust: bool = False,
) -> LoadedPolicy:
    """One policy of a source; the arguments are those of ``load``, and ``source`` may be any."""
    spec = None if env is None else spec_of(env)
    return open_policies(source, Request(agent, env, spec, vecnormalize, trust))[0]


def load(
    path: str | Path,
    agent: int | str = "best",
    env: EnvLike | None = None,
    vecnormalize: Any = None,
    trust: bool = False,
) -> Policy | LoadedPolicy:
    """The policy in a run's folder, a policy file, a Stable-Baselines3 zip or an exported file.

    Weights give a ``Policy``; what acts by somebody else's program (an exported file, an unpickled
    model) gives a ``LoadedPolicy``. Both have Stable-Baselines3's ``predict``, and
    ``damper.evaluate`` takes both.

    Args:
        path: its path; a zip with or without its ending.
        agent: which agent of a run; "best" is the only one, or of several the one with the highest
            mean return in the run's own evaluation (``damper evaluate RUN``), which must exist.
        env: the environment, if a zip does not record its action bounds.
        vecnormalize: for a zip, SB3's ``VecNormalize`` or its file (a pickle: needs ``trust``).
        trust: allow unpickling what cannot be read otherwise; it runs whatever code the file
            contains.
    """
    loaded = open_policy(find_path(path), agent, env, vecnormalize, trust)
    return loaded if loaded.weights is None else loaded.weights


def find_path(path: str | Path) -> Path:
    """The path, or ``path.zip`` if only that exists, as in SB3's ``load``."""
    if not isinstance(path, str | os.PathLike):
        raise DamperError(
            f"path must be a file or folder, but a {type(path).__name__} was given: it is already "
            "loaded."
        )
    for existing in (Path(path), Path(f"{path}.zip")):
        if existing.exists():
            return existing
    raise DamperError(  # before a reader asks for a package that is missing
        f"{path} does not exist: give a run's folder, a policy file, a Stable-Baselines3 zip or an "
        "exported file."
    )


def _env(policy: LoadedPolicy, request: Request) -> EnvLike | None:
    """The environment that was asked for, or the policy's own if that fits it."""
    recorded = policy.env
    if request.spec is not None:
        env = _in_recorded_wrappers(request, recorded)
        if missing := _missing_wrappers(request, recorded):
            what = "is put into the wrappers that the policy was trained in"
            if env is request.env:
                what = (
                    "is without the changes, not recorded in full, that the policy was trained with"
                )
            names = ", ".join(f"{wrapper.name} ({wrapper.entry_point})" for wrapper in missing)
            fix = (
                "In Python, env can be a function that makes exactly the environment that is meant"
            )
            logging.getLogger("damper").warning("env=%r %s: %s. %s.", request.env, what, names, fix)
        check_fit(request.spec if env is request.env else spec_of(env), policy.sizes)
        return env
    if isinstance(recorded, EnvSpec) and recorded.id == UNKNOWN:
        return None
    # A zip may record the id alone, of an environment with other sizes here.
    spec = known_spec(recorded) if policy.sizes else None
    return recorded if spec is None or (spec.obs_dim, spec.act_dim) == policy.sizes else None


def _in_recorded_wrappers(request: Request, recorded: EnvLike | None) -> Any:
    """An id in the wrappers that the policy was trained in; a spec or a function as it is."""
    missing = _missing_wrappers(request, recorded)
    # All or none: a frame stack without the wrapper below it may not even fit the policy.
    if not missing or any(wrapper.kwargs is None for wrapper in missing):
        return request.env
    assert request.spec is not None
    spec = request.spec.env_spec
    wrapped = replace(spec, additional_wrappers=(*spec.additional_wrappers, *missing))
    return EnvSpec.from_json(to_json(wrapped))


def _missing_wrappers(request: Request, recorded: EnvLike | None) -> list[WrapperSpec]:
    """The recorded wrappers that the environment asked for by its id alone does not have."""
    if request.spec is None or not isinstance(request.env, str):
        return []
    # Some ids are registered with wrappers, which would otherwise be there twice.
    present = request.spec.env_spec.additional_wrappers
    wrappers = recorded.additional_wrappers if isinstance(recorded, EnvSpec) else ()
    return [wrapper for wrapper in wrappers if wrapper not in present]
