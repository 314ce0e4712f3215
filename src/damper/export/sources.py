"""Open a policy from any source: a run, a policy file, an SB3 zip or model, an exported file."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray

from damper.engine.data.normalisation import Normaliser
from damper.engine.envs import EnvLike, Spec, env_spec_from_id, spec_of
from damper.engine.envs.env_spec_json import UNKNOWN
from damper.engine.envs.run_episodes import Act, check_fit
from damper.engine.run.folder import Run
from damper.engine.run.policy import Policy, Predictor
from damper.errors import DamperError, MissingOptionError
from damper.export.files import EXPORT_SUFFIXES, open_file
from damper.export.measure import beside, known_spec
from damper.export.network import Network, build
from damper.terminal import quoted


@dataclass(frozen=True)
class Source(Predictor):
    """A policy from any source, in the environment's own units, with Stable-Baselines3's ``predict``.

    Attributes:
        act: observations ``[N, d]`` to actions ``[N, A]``, as the original computes them.
        env: the environment, for ``damper.evaluate``; None if unknown.
        facts: what is known of its training.
        network: its operations; None for a file that is already exported, and where ``refusal``
            says why.
        low: the actions' lower bounds.
        high: the actions' upper bounds.
        obs_ranges: the observations' bounds, if the model has them.
        normaliser: statistics that ``act`` and ``network`` apply.
        smoothness: measures of the run's own evaluation, or those in an exported file.
        sizes: d and A where they are known.
        refusal: why a model can only act, not be exported.
        draw: like ``act``, but sampled from the policy's distribution; None if that is not
            available.
    """

    act: Act
    env: EnvLike | None
    facts: dict[str, Any] = field(default_factory=dict)
    network: Network | None = None
    low: ArrayLike = ()
    high: ArrayLike = ()
    obs_ranges: tuple[NDArray[Any], NDArray[Any]] | None = None
    normaliser: Normaliser | None = None
    smoothness: dict[str, Any] | None = None
    sizes: tuple[int, int] | None = None
    refusal: DamperError | None = None
    draw: Act | None = None

    def _about(self) -> tuple[int | None, str, str]:
        name = (
            self.env.id
            if isinstance(self.env, EnvSpec)
            else self.env
            if isinstance(self.env, str)
            else None
        )
        backbone = self.facts.get("backbone", "an unknown algorithm")
        return self.sizes[0] if self.sizes else None, name or "its environment", backbone

    def _act(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray(self.act(obs), np.float32)

    def _draw(self, obs: NDArray[Any]) -> NDArray[np.float32] | None:
        return None if self.draw is None else self.draw(obs)


def open_source(
    source: Any,
    agent: int | str = 0,
    env: EnvLike | None = None,
    vecnormalize: Any = None,
    trust: bool = False,
    backend: str = "gymnasium",
) -> Source:
    """Open a policy wherever it comes from.

    Args:
        source: a ``Run`` or ``Policy`` or its path, an SB3 model or its zip, an ONNX file.
        agent: which agent of a run, or "best": see ``best_agent``.
        env: the environment, if the source does not record it or another one is wanted.
        vecnormalize: SB3's ``VecNormalize``, or the file that its ``save`` wrote, which is a
            pickle.
        trust: allow unpickling what cannot be read otherwise; it runs whatever code the file
            carries.
        backend: the library that makes ``env``, "gymnasium" or "envpool".
    """
    wanted = spec_of(env, backend) if env is not None else None
    opened = _open(source, agent, wanted, _normaliser(vecnormalize, trust), trust)
    if opened.facts.get("steps") and opened.normaliser is not None and opened.normaliser.is_initial:
        raise DamperError(
            "VecNormalize must hold the statistics of training, but has seen no observation: give "
            "the file that its "
            "save() wrote (vecnormalize=), or the environment that VecNormalize.load(path, venv) "
            "returns."
        )
    if wanted is not None:
        check_fit(wanted, opened.sizes)
        return replace(opened, env=env)
    if isinstance(opened.env, EnvSpec) and (
        opened.env.id == UNKNOWN or not _fits(opened.env, opened.sizes)
    ):
        return replace(opened, env=None)
    return opened


def _fits(env: EnvSpec, sizes: tuple[int, int] | None) -> bool:
    """Whether the environment's sizes fit the policy: older files record only its id, without wrappers."""
    spec = known_spec(env) if sizes else None
    return spec is None or (spec.obs_dim, spec.act_dim) == sizes


def find_path(path: str | Path) -> Path:
    """The path, or ``path.zip`` if only that exists, as in SB3's ``load``."""
    if not isinstance(path, str | os.PathLike):
        raise DamperError(
            f"path must be a file or folder, but a {type(path).__name__} was given: it is already "
            "loaded."
        )
    path = Path(path)
    zipped = Path(f"{path}.zip")
    return zipped if not path.exists() and zipped.is_file() else path


def find_source(path: str | Path) -> Run | Policy | Path:
    """The run in a folder or the policy in a file; a zip and an exported file stay paths."""
    path = find_path(path)
    if path.is_dir():
        return Run(path)
    if not path.exists():  # before a reader asks for an extra
        raise DamperError(
            f"{path} does not exist: give a run's folder, a policy file, a Stable-Baselines3 zip "
            "or an exported file."
        )
    return path if path.suffix in (".zip", *EXPORT_SUFFIXES) else Policy.load(path)


def is_model(source: Any) -> bool:
    """Whether it is a Stable-Baselines3 model."""
    return hasattr(source, "policy") and hasattr(source, "predict")


def best_agent(run: Run, env: EnvSpec | None = None) -> int:
    """The agent with the highest mean return in the run's own evaluation, which a single agent does not need.

    Args:
        run: a run that ``damper evaluate`` has evaluated.
        env: in which environment; by default the one it was trained in.
    """
    policies = run.policies()
    if len(policies) == 1:
        return 0
    where, folder = env or policies[0].env_spec, run.path / "evaluation"
    found = [
        beside(folder, agent, where, policy.info.steps) for agent, policy in enumerate(policies)
    ]
    if None in found:
        raise DamperError(
            f"agent='best' needs an up-to-date evaluation of all agents, but {run.path} has none: "
            "run damper evaluate "
            f"{quoted(run.path)} first, or choose an agent from 0 to {len(policies) - 1}."
        )
    returns = [measures["return"] for measures in found if measures]
    return int(np.argmax(np.nan_to_num(returns, nan=-np.inf)))


def chosen_agent(run: Run, agent: int | str, env: EnvSpec | None = None) -> int:
    """The index of an agent given as a number or as "best"."""
    if isinstance(agent, int | Integral):
        return operator.index(agent)
    if agent != "best":
        raise DamperError(
            f"agent must be 0 to {len(run.agents) - 1} or 'best', but {agent!r} was given."
        )
    return best_agent(run, env)


def _open(
    source: Any, agent: int | str, wanted: Spec | None, normaliser: Normaliser | None, trust: bool
) -> Source:
    if isinstance(source, str | Path):
        source = find_source(source)
    if not isinstance(source, Run) and agent not in (0, "best"):
        raise DamperError(
            f"agent must be left out for a source with one policy, but {agent!r} was given."
        )
    if isinstance(source, Path):
        if source.suffix == ".zip":
            return _zip(source, wanted, normaliser, trust)
        return _exported(source, normaliser, trust)
    if isinstance(source, Run):
        agent = chosen_agent(source, agent, wanted.env_spec if wanted else None)
        policy = source.policy(agent)
        where = wanted.env_spec if wanted else policy.env_spec
        opened = _policy(
            policy, normaliser, beside(source.path / "evaluation", agent, where, policy.info.steps)
        )
        frozen = source.manifest.get("frozen", {}).get(str(agent))
        return replace(
            opened,
            facts={
                **opened.facts,
                "agent": agent,
                **({"frozen_at_update": frozen} if frozen else {}),
            },
        )
    if isinstance(source, Policy):
        return _policy(source, normaliser)
    if isinstance(source, Source):
        if normaliser is not None:
            raise DamperError(
                "vecnormalize must be given when a policy is loaded, but this one is already "
                "loaded."
            )
        return source
    if is_model(source):
        return _model(source, normaliser)
    if (actor := _rsl_rl_actor(source)) is not None:
        return _rsl_rl(source, actor, normaliser)
    raise DamperError(
        "source must be a run, a policy, an SB3 model or a path to one, or an rsl_rl runner, not "
        f"{type(source).__name__}: save it first."
    )


def _policy(
    policy: Policy, normaliser: Normaliser | None, measured: dict[str, Any] | None = None
) -> Source:
    info, own = policy.info, policy.normaliser
    if own is not None and normaliser is not None:
        raise DamperError(
            "vecnormalize must be left out for a policy that has its own statistics (norm_obs)."
        )
    layers = [
        (w[0].numpy(), b[0, 0].numpy()) for name, (w, b) in policy.weights.items() if _acts(name)
    ]
    network = build(
        layers,
        info.activation,
        info.low,
        info.high,
        normaliser=own or normaliser,
        squash=info.squash,
    )
    facts: dict[str, Any] = {
        "backbone": info.backbone,
        "method": info.method,
        "seed": info.seed if info.seed >= 0 else None,
        "steps": info.steps,
    }
    facts |= {"settings": info.settings, "versions": info.versions}
    seen = normaliser or np.asarray
    return Source(
        lambda obs: policy(seen(obs)),
        policy.env_spec,
        facts,
        network,
        info.low,
        info.high,
        normaliser=own or normaliser,
        smoothness=measured,
        sizes=policy.sizes,
        draw=lambda obs: policy.predict(seen(obs), deterministic=False)[0],
    )


def _acts(layer: str) -> bool:
    """Whether the deterministic action depends on a layer."""
    return layer == "mu" or layer.startswith("trunk.")


def _zip(path: Path, wanted: Spec | None, normaliser: Normaliser | None, trust: bool) -> Source:
    from damper.sb3.archive import load_zip, read_zip, saved_norm_obs, saved_versions

    normalised = saved_norm_obs(path)
    if normalised and normaliser is None:
        raise MissingOptionError(
            f"{path} was trained on observations that VecNormalize normalised: give its statistics "
            "with --vecnormalize "
            "(vecnormalize=), or the policy sees observations unlike those of training."
        )
    if normalised is False and normaliser is not None:
        raise DamperError(
            f"vecnormalize must be left out for {path}, which was trained on observations that "
            "were not normalised: "
            "with statistics the policy sees observations unlike those of training."
        )
    if trust:
        opened = _model(load_zip(path), normaliser)
    else:
        opened = _policy(read_zip(path, (wanted.low, wanted.high) if wanted else None), normaliser)
    return replace(opened, facts={**opened.facts, "versions": saved_versions(path)})


def _model(model: Any, normaliser: Normaliser | None) -> Source:
    """An SB3 model with its own ``predict``, and its network if it consists of linear layers."""
    from damper.sb3.convert import (
        backbone,
        check_boxes,
        env_spec,
        method_name,
        method_settings,
        read_actor,
        statistics,
    )

    check_boxes(model)
    if normaliser is None:
        normaliser = statistics(model)
    space, seen = model.action_space, model.observation_space
    low, high = np.ravel(space.low), np.ravel(space.high)
    network, refusal = None, None
    try:
        actor = read_actor(model)
    except DamperError as error:
        refusal = error  # it can still act, but not be exported
    else:
        layers = [(w.T.numpy(), b.numpy()) for name, (w, b) in actor.layers.items() if _acts(name)]
        network = build(
            layers, actor.activation, low, high, actor.clip_mean, normaliser, actor.squash
        )

    def act(obs: NDArray[Any], deterministic: bool = True) -> NDArray[np.float32]:
        inputs = normaliser(obs) if normaliser else obs
        actions: NDArray[np.float32]
        actions, memory = model.predict(
            inputs.reshape(-1, *seen.shape), deterministic=deterministic
        )
        if memory is not None:
            raise DamperError(
                f"the model must act on one observation alone, but {type(model.policy).__name__} "
                "carries a memory from "
                "step to step: evaluate it with SB3's evaluate_policy."
            )
        return actions.reshape(len(obs), -1)

    facts: dict[str, Any] = {"backbone": backbone(model), "method": method_name(model)}
    facts |= {"seed": model.seed, "steps": model.num_timesteps, "settings": method_settings(model)}
    ranges, sizes = (seen.low, seen.high), (int(np.prod(seen.shape)), low.size)
    known: dict[str, Any] = {
        "sizes": sizes,
        "refusal": refusal,
        "draw": partial(act, deterministic=False),
    }
    return Source(act, env_spec(model), facts, network, low, high, ranges, normaliser, **known)


def _rsl_rl_actor(source: Any) -> Any:
    """The actor of an rsl_rl runner, algorithm or model; None for anything else."""
    algorithm = getattr(source, "alg", source)
    actor = getattr(algorithm, "_raw_actor", getattr(algorithm, "actor", algorithm))
    return actor if hasattr(actor, "obs_groups") and hasattr(actor, "obs_normalizer") else None


def _rsl_rl(source: Any, actor: Any, given: Normaliser | None) -> Source:
    """An rsl_rl actor with its normaliser inside; observations are the concatenated groups."""
    from damper.rsl_rl.convert import act, facts, read_actor

    if given is not None:
        raise DamperError(
            "vecnormalize must be left out for an rsl_rl policy, which already holds its "
            "statistics."
        )
    found = read_actor(actor)
    normaliser = Normaliser(*found.statistics, np.inf) if found.statistics else None
    low, high = np.full(found.actions, -np.inf), np.full(found.actions, np.inf)
    network = build(found.layers, found.activation, low, high, normaliser=normaliser, squash=False)
    sizes = network.inputs, network.outputs
    return Source(
        act(actor), None, facts(source, actor), network, low, high, None, normaliser, sizes=sizes
    )


def _exported(path: Path, normaliser: Normaliser | None, trust: bool) -> Source:
    if path.suffix != ".onnx" and not trust:
        raise MissingOptionError(
            f"{path} may hold pickles, and unpickling runs whatever code the file carries: give "
            "the ONNX file, or, if "
            "you trust its author, add --trust (trust=True)."
        )
    if normaliser is not None:
        raise DamperError(
            f"vecnormalize must be left out for {path}: an exported file already holds its "
            "statistics."
        )
    act, contract = open_file(path)
    facts, recorded, name = (
        contract.get("training", {}),
        contract.get("env_spec"),
        contract.get("env"),
    )
    env = EnvSpec.from_json(recorded) if recorded else env_spec_from_id(name) if name else None
    shapes = [contract[part]["shape"][1] for part in ("observation", "action") if part in contract]
    sizes = (shapes[0], shapes[1]) if shapes else None
    low, high = (contract.get("action", {}).get(name) or () for name in ("low", "high"))
    return Source(
        act, env, facts, low=low, high=high, smoothness=contract.get("smoothness"), sizes=sizes
    )


def _normaliser(vecnormalize: Any, trust: bool) -> Normaliser | None:
    if vecnormalize is None:
        return None
    if isinstance(vecnormalize, str | Path):
        if not trust:
            raise MissingOptionError(
                f"{vecnormalize} is a pickle, and unpickling runs whatever code the file carries: "
                "if you trust its "
                "author, add --trust (trust=True)."
            )
        from stable_baselines3.common.save_util import load_from_pkl

        import damper.sb3  # noqa: F401, which says what to install where SB3 is missing

        try:
            with Path(vecnormalize).open("rb") as file:
                vecnormalize = load_from_pkl(file)
        except FileNotFoundError as error:
            raise DamperError(
                f"{vecnormalize} does not exist: give what VecNormalize's save() wrote."
            ) from error
        except Exception as error:  # unpickling raises whatever the file makes it raise
            raise DamperError(
                f"{vecnormalize} cannot be unpickled: give what VecNormalize's save() wrote."
            ) from error
    if not hasattr(vecnormalize, "norm_obs"):
        raise DamperError(
            f"vecnormalize must be SB3's VecNormalize, but is a {type(vecnormalize).__name__}: "
            "give what its save() "
            "wrote."
        )
    if not vecnormalize.norm_obs:
        return None
    if isinstance(vecnormalize.obs_rms, dict):
        raise DamperError(
            "vecnormalize must hold the statistics of one vector, but holds a Dict's: flatten the "
            "observations."
        )
    return Normaliser.from_vecnormalize(vecnormalize)
