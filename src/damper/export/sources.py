"""Anything that acts, opened: a run, a policy file, an SB3 zip or model, an exported file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from damper.engine.envs import spec_of
from damper.engine.policy import Policy
from damper.engine.run import Run
from damper.errors import DamperError
from damper.export.files import open_file
from damper.export.measure import beside, sizes_of
from damper.export.network import Network, Normaliser, build

Act = Callable[[NDArray[Any]], NDArray[np.float32]]


@dataclass(frozen=True)
class Source:
    """A deterministic policy in the environment's own units.

    Attributes:
        act: observations ``[N, d]`` to actions ``[N, A]``, as the original computes them.
        env: the environment's id, or None where nothing tells it.
        facts: what is known of its training.
        network: its operations; None for a file that already is an export, and where ``refusal`` tells why.
        low: the actions' lower bounds.
        high: the actions' upper bounds.
        obs_ranges: the observations' bounds where the model tells them.
        normaliser: statistics that ``act`` and ``network`` apply.
        smoothness: measures of an evaluation beside it, or those that an exported file carries.
        refusal: why a model can only act, not be exported.
    """

    act: Act
    env: str | None
    facts: dict[str, Any] = field(default_factory=dict)
    network: Network | None = None
    low: ArrayLike = ()
    high: ArrayLike = ()
    obs_ranges: tuple[NDArray[Any], NDArray[Any]] | None = None
    normaliser: Normaliser | None = None
    smoothness: dict[str, Any] | None = None
    refusal: DamperError | None = None


def open_source(
    source: Any, agent: int = 0, env: str | None = None, vecnormalize: Any = None, trust: bool = False
) -> Source:
    """Open a policy wherever it comes from.

    Args:
        source: a ``Run`` or ``Policy`` or its path, an SB3 model or its zip, an ONNX file.
        agent: which agent of a run.
        env: the environment's id, where the source does not tell it.
        vecnormalize: SB3's ``VecNormalize``, or the file that its ``save`` wrote, which is a pickle.
        trust: allow unpickling what cannot be read otherwise; it runs whatever code the file carries.
    """
    opened = _open(source, agent, env, _normaliser(vecnormalize, trust), trust)
    if env and opened.network:
        _check_fit(opened.network, env)
    elif opened.env and opened.network and sizes_of(opened.env) not in (None, opened.network.sizes):
        return replace(opened, env=None)  # wrappers made another environment of the one whose id it carries
    return opened


def find_path(path: str | Path) -> Path:
    """The path, or where it has no such file but ``path.zip`` exists that one, as SB3's ``load`` does."""
    path = Path(path)
    zipped = Path(f"{path}.zip")
    return zipped if not path.exists() and zipped.is_file() else path


def _open(source: Any, agent: int, env: str | None, normaliser: Normaliser | None, trust: bool) -> Source:
    if isinstance(source, str | Path):
        path = find_path(source)
        if path.suffix in (".onnx", ".pt", ".pt2"):
            return _exported(path, env, normaliser, trust)
        if path.suffix == ".zip":
            return _zip(path, env, normaliser, trust)
        source = Run(path) if path.is_dir() else Policy.load(path)
    if isinstance(source, Run):
        return _policy(source.policy(agent), env, normaliser, beside(source.path / "evaluation", agent))
    if isinstance(source, Policy):
        return _policy(source, env, normaliser)
    if hasattr(source, "policy") and hasattr(source, "predict"):
        return _model(source, env, normaliser)
    raise DamperError(
        f"source must be a run, a policy, an SB3 model or a path to one, not {type(source).__name__}: save it first."
    )


def _check_fit(network: Network, env: str) -> None:
    """Refuse an environment that the policy was not made for."""
    spec = spec_of(env)
    has, needs = (spec.obs_dim, spec.act_dim), network.sizes
    if has != needs:
        raise DamperError(
            f"env must have the policy's {needs[0]} observations and {needs[1]} actions, but {env!r} has {has[0]} and "
            f"{has[1]}: name the environment it was trained for."
        )


def _policy(
    policy: Policy, env: str | None, normaliser: Normaliser | None, measured: dict[str, Any] | None = None
) -> Source:
    info = policy.info
    layers = [(w[0].numpy(), b[0, 0].numpy()) for name, (w, b) in policy.weights.items() if _acts(name)]
    network = build(layers, info.activation, info.low, info.high, normaliser=normaliser)
    facts = {"backbone": info.backbone, "method": info.method, "seed": info.seed, "steps": info.steps}
    facts |= {"settings": info.settings, "versions": info.versions}
    act: Act = policy if normaliser is None else lambda obs: policy(normaliser(obs))
    known = env or (info.env if info.env != "unknown" else None)
    return Source(act, known, facts, network, info.low, info.high, normaliser=normaliser, smoothness=measured)


def _acts(layer: str) -> bool:
    """Whether a layer is on the way to the deterministic action."""
    return layer == "mu" or layer.startswith("trunk.")


def _zip(path: Path, env: str | None, normaliser: Normaliser | None, trust: bool) -> Source:
    from damper.sb3.archive import load_zip, read_zip, saved_versions

    if trust:
        opened = _model(load_zip(path), env, normaliser)
    else:
        spec = spec_of(env) if env else None
        opened = _policy(read_zip(path, (spec.low, spec.high) if spec else None, env), env, normaliser)
    return replace(opened, facts={**opened.facts, "versions": saved_versions(path)})


def _model(model: Any, env: str | None, normaliser: Normaliser | None) -> Source:
    """An SB3 model as it predicts; its network if it is made of linear layers."""
    from damper.sb3.convert import env_id, method_name, method_settings, read_actor

    inside = getattr(model, "_vec_normalize_env", None)
    if normaliser is None and inside is not None and inside.norm_obs:
        normaliser = Normaliser.of(inside)
    space, seen = model.action_space, model.observation_space
    low, high = np.ravel(space.low), np.ravel(space.high)
    network, refusal = None, None
    try:
        actor = read_actor(model)
    except DamperError as error:
        refusal = error  # it can still act
    else:
        layers = [(w.T.numpy(), b.numpy()) for name, (w, b) in actor.layers.items() if _acts(name)]
        network = build(layers, actor.activation, low, high, actor.clip_mean, normaliser)

    def act(obs: NDArray[Any]) -> NDArray[np.float32]:
        actions: NDArray[np.float32] = model.predict(normaliser(obs) if normaliser else obs, deterministic=True)[0]
        return actions

    facts: dict[str, Any] = {"backbone": "sac" if hasattr(model, "ent_coef") else "td3", "method": method_name(model)}
    facts |= {"seed": model.seed, "steps": model.num_timesteps, "settings": method_settings(model)}
    named = env or env_id(model)
    known = named if named != "unknown" else None
    ranges = (seen.low, seen.high)
    return Source(act, known, facts, network, low, high, ranges, normaliser, refusal=refusal)


def _exported(path: Path, env: str | None, normaliser: Normaliser | None, trust: bool) -> Source:
    if path.suffix != ".onnx" and not trust:
        raise DamperError(
            f"{path} may hold pickles, and unpickling runs whatever code the file carries: give the ONNX file, or, if "
            "you trust its author, add --trust (trust=True)."
        )
    if normaliser is not None:
        raise DamperError(f"vecnormalize must not be given with {path}: an exported file holds its statistics already.")
    act, contract = open_file(path)
    facts = contract.get("training", {})
    return Source(act, env or contract.get("env"), facts, smoothness=contract.get("smoothness"))


def _normaliser(vecnormalize: Any, trust: bool) -> Normaliser | None:
    if vecnormalize is None:
        return None
    if isinstance(vecnormalize, str | Path):
        if not trust:
            raise DamperError(
                f"{vecnormalize} is a pickle, and unpickling runs whatever code the file carries: if you trust its "
                "author, add --trust (trust=True)."
            )
        from stable_baselines3.common.save_util import load_from_pkl

        import damper.sb3  # noqa: F401, which says what to install where SB3 is missing

        try:
            with Path(vecnormalize).open("rb") as file:
                vecnormalize = load_from_pkl(file)
        except FileNotFoundError as error:
            raise DamperError(f"{vecnormalize} does not exist: give what VecNormalize's save() wrote.") from error
        except Exception as error:  # unpickling raises whatever the file makes it raise
            raise DamperError(f"{vecnormalize} cannot be unpickled: give what VecNormalize's save() wrote.") from error
    if not hasattr(vecnormalize, "norm_obs"):
        raise DamperError(
            f"vecnormalize must be SB3's VecNormalize, but is a {type(vecnormalize).__name__}: give what its save() "
            "wrote."
        )
    if not vecnormalize.norm_obs:
        return None
    if isinstance(vecnormalize.obs_rms, dict):
        raise DamperError("vecnormalize must hold statistics of one vector, but holds a Dict's: flatten observations.")
    return Normaliser.of(vecnormalize)
