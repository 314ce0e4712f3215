"""Convert policies between the engine and Stable-Baselines3: the same weights, the same actions."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.save_util import load_from_pkl
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecMonitor,
    VecNormalize,
    VecVideoRecorder,
)
from torch import Tensor

from damper.activations import NAME_BY_MODULE, known_modules
from damper.engine.device.precision import device_context
from damper.engine.envs.env_spec_json import (
    UNKNOWN,
    env_spec_from_id,
    to_json,
    with_unknown_wrapper,
)
from damper.engine.networks.layout import Layout
from damper.errors import DamperError, MissingOptionError
from damper.policies.loaded import LinearActor, LoadedPolicy, Request, acts, unknown_statistics
from damper.policies.normaliser import Normaliser
from damper.policies.policy import Policy, PolicyInfo
from damper.provenance import versions

# By name, because sb3-contrib, which the last is of, need not be installed.
ACTOR_MODULES = (
    "stable_baselines3.td3.policies",
    "stable_baselines3.sac.policies",
    "sb3_contrib.tqc.policies",
)
FLATTEN = (
    "train it in gymnasium.wrappers.FlattenObservation(env), or evaluate it with SB3's "
    "evaluate_policy."
)


class Actor(NamedTuple):
    """An SB3 actor made of linear layers: by name, weights ``[out, in]`` and biases.

    With ``squash`` tanh bounds the action, as in TD3 and SAC; without, it is the mean cut to its
    range, as in PPO. ``clip_mean`` is gSDE's bound on the mean.
    """

    layers: dict[str, tuple[Tensor, Tensor]]
    activation: str
    clip_mean: float | None = None
    squash: bool = True


def read_layers(state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """An SB3 actor's layers by the engine's names, from its policy's state dict.

    TD3 keeps all layers in ``mu``; SAC keeps the trunk in ``latent_pi``, and two heads, ``mu`` and
    ``log_std``; PPO keeps the trunk in ``mlp_extractor.policy_net``, and the mean in
    ``action_net``.
    """
    if any(key.startswith("action_net.") for key in state):
        valued = ("value_net.", "mlp_extractor.value_net.", "vf_features_extractor.", "log_std")
        acting = [key for key in state if not key.startswith(valued)]
        linear = r"(mlp_extractor\.policy_net\.\d+|action_net)\.(weight|bias)"
    else:  # gSDE's log_std is a parameter, not a layer
        acting = [key for key in state if key.startswith("actor.") and key != "actor.log_std"]
        linear = r"actor\.((mu|latent_pi)\.\d+|mu|log_std)\.(weight|bias)"
    for key in acting:
        between = key.endswith("weight") and state[key].ndim != 2
        if between or not re.fullmatch(linear, key):
            others = "others between them, such as " if between else ""
            raise DamperError(
                "the actor must be made of SB3's linear layers alone, but has "
                f"{others}{key!r}: a features extractor or a custom network cannot be converted."
            )
    names = [key.removesuffix(".weight") for key in acting if key.endswith(".weight")]
    heads = [name for name in names if name in ("action_net", "actor.mu", "actor.log_std")]
    heads = heads or names[-1:]
    trunk = [name for name in names if name not in heads]
    titles = [f"trunk.{i}" for i in range(len(trunk))] + ["mu", "log_std"][: len(heads)]
    return {
        title: (state[f"{name}.weight"], state[f"{name}.bias"])
        for title, name in zip(titles, trunk + heads, strict=True)
    }


def backbone(model: Any) -> str:
    """A model's algorithm, by its class or its base classes."""
    names = [kind.__name__ for kind in type(model).__mro__]
    known = ("PPO", "TQC", "SAC", "DDPG", "TD3")
    return next((name.lower() for name in known if name in names), "unknown")


def read_actor(model: Any) -> Actor:
    """A model's actor as layers; raises for an actor that is more than linear layers."""
    policy, space = model.policy, model.observation_space
    on_policy = type(policy) is ActorCriticPolicy and type(policy.mlp_extractor) is MlpExtractor
    actor: Any = policy if on_policy else getattr(policy, "actor", None)
    kind = type(actor)
    plain = on_policy or (kind.__name__ == "Actor" and kind.__module__ in ACTOR_MODULES)
    if not plain or not isinstance(actor.features_extractor, FlattenExtractor):
        extractor = type(getattr(actor, "features_extractor", None)).__name__
        raise DamperError(
            "the actor must be SB3's own, without a features extractor, but is "
            f"{kind.__name__} on {extractor}: others cannot be converted."
        )
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise DamperError(
            f"the observation space must be a Box of shape (n,), but is {space}: only such "
            "policies can be converted."
        )
    module = getattr(actor, "activation_fn", None)
    if module not in NAME_BY_MODULE:
        raise DamperError(
            f"activation_fn must be {known_modules()}, but is {module}: others cannot be converted."
        )
    clip = getattr(actor, "clip_mean", 0.0) if getattr(actor, "use_sde", False) else 0.0
    state = {name: tensor.detach().to("cpu") for name, tensor in policy.state_dict().items()}
    squash = not on_policy or actor.squash_output
    return Actor(read_layers(state), NAME_BY_MODULE[module], clip if clip > 0 else None, squash)


# Vectorised wrappers that do not change the environment for the policy; VecNormalize's statistics
# are read separately.
_TRANSPARENT = (VecNormalize, VecMonitor, VecCheckNan, VecVideoRecorder)


def env_spec(model: Any) -> EnvSpec:
    """Gymnasium's spec of the model's environment, or without one the spec saved in its zip."""
    env = model.get_env()
    if env is None:
        if recorded := getattr(model, "env_spec", None):
            return EnvSpec.from_json(recorded)
        return env_spec_from_id(getattr(model, "env_id", UNKNOWN))
    specs = [spec or EnvSpec(UNKNOWN) for spec in _specs(env)]
    # Compared as JSON: copies of a lambda are different objects, and comparing arrays gives no
    # single truth value.
    alike = len(set(map(to_json, specs))) == 1
    spec = specs[0] if alike else EnvSpec(UNKNOWN)
    while isinstance(env, VecEnvWrapper):
        if type(env) not in _TRANSPARENT:
            spec = with_unknown_wrapper(spec, env)
        env = env.venv
    return EnvSpec.from_json(to_json(spec))


def _specs(env: VecEnv) -> list[EnvSpec | None]:
    """The environments' specs; ``[None]`` if they have none, or none that can be sent."""
    asked: Any = _UnpicklableSpec()
    stays = isinstance(env.unwrapped, SubprocVecEnv) and any(env.env_is_wrapped(asked))
    return [None] if stays or not env.has_attr("spec") else env.get_attr("spec")


class _UnpicklableSpec:
    """In place of a class in ``env_is_wrapped``: asks whether an environment's spec pickles.

    A lambda in it, for example, would end the environment's process in ``SubprocVecEnv``, and the
    training with it.
    """

    def __instancecheck__(self, env: Any) -> bool:
        try:
            ForkingPickler.dumps(env.spec)
        except Exception:  # pickling raises whatever an object's own code does
            return True
        return False


def norm_obs(model: Any) -> bool:
    """Whether the model learned from VecNormalize's observations.

    Our models record it: one loaded into another environment still needs those statistics. Of
    SB3's own classes: whether it sees such observations now.
    """
    recorded = getattr(model, "norm_obs", None)
    return sees_normalised(model) if recorded is None else bool(recorded)


def sees_normalised(model: Any) -> bool:
    """Whether the model's environment, if it has one, normalises observations by VecNormalize."""
    inside = model.get_vec_normalize_env()
    return inside is not None and bool(inside.norm_obs)


def statistics(model: Any) -> Normaliser | None:
    """The normaliser of the observations that the model learned from; None if there was none."""
    if not norm_obs(model):
        return None
    if not sees_normalised(model):
        raise MissingOptionError(
            "the model was trained on observations that VecNormalize normalised, but comes without "
            "their statistics: give them with --vecnormalize (vecnormalize=), or give it that "
            "environment with set_env."
        )
    return _normaliser(model.get_vec_normalize_env())


def read_vecnormalize(vecnormalize: Any, trust: bool) -> Normaliser | None:
    """The statistics in a ``VecNormalize`` or its file; None if it does not normalise."""
    if vecnormalize is None:
        return None
    if isinstance(vecnormalize, str | Path):
        vecnormalize = _unpickle_vecnormalize(Path(vecnormalize), trust)
    if not hasattr(vecnormalize, "norm_obs"):
        raise DamperError(
            f"vecnormalize must be SB3's VecNormalize, but is a {type(vecnormalize).__name__}: "
            "give what its save() wrote."
        )
    if not vecnormalize.norm_obs:
        return None
    if isinstance(vecnormalize.obs_rms, dict):
        raise DamperError(
            "vecnormalize must hold the statistics of one vector, but holds a Dict's: flatten the "
            "observations."
        )
    return _normaliser(vecnormalize)


def _unpickle_vecnormalize(path: Path, trust: bool) -> Any:
    if not path.is_file():
        raise DamperError(f"{path} does not exist: give what VecNormalize's save() wrote.")
    if not trust:
        raise MissingOptionError(
            f"{path} is a pickle, and unpickling runs whatever code the file carries: if you trust "
            "its author, add --trust (trust=True)."
        )
    try:
        with path.open("rb") as file:
            return load_from_pkl(file)
    except Exception as error:  # unpickling raises whatever the file makes it raise
        raise DamperError(
            f"{path} cannot be unpickled: give what VecNormalize's save() wrote."
        ) from error


def _normaliser(vecnormalize: Any) -> Normaliser:
    rms, epsilon, clip = vecnormalize.obs_rms, vecnormalize.epsilon, float(vecnormalize.clip_obs)
    return Normaliser.from_variance(rms.mean, rms.var, epsilon, clip)


def check_statistics(normaliser: Normaliser | None, inputs: int, steps: int) -> None:
    """Raise for statistics of other observations than the policy's, or of none."""
    if normaliser is None:
        return
    if len(normaliser.mean) != inputs:
        raise DamperError(
            f"vecnormalize must hold statistics of the policy's {inputs} observations, but holds "
            f"{len(normaliser.mean)}: give the file saved with this model."
        )
    if steps and normaliser.is_initial:
        raise DamperError(
            "VecNormalize must hold the statistics of training, but has seen no observation: give "
            "the file that its save() wrote (vecnormalize=), or the environment that "
            "VecNormalize.load(path, venv) returns."
        )


def open_model(model: Any, request: Request) -> list[LoadedPolicy]:
    """The policy of an SB3 model."""
    unknown = not hasattr(model, "norm_obs") and model.get_env() is None
    if unknown and request.vecnormalize is None:
        check_unknown_statistics("the model", vars(model))
    return [load_model(model, read_vecnormalize(request.vecnormalize, request.trust))]


def load_model(model: Any, normaliser: Normaliser | None) -> LoadedPolicy:
    """An SB3 model with its own ``predict``, and its layers if it consists of linear ones."""
    check_boxes(model)
    if normaliser is None:
        normaliser = statistics(model)
    acted, seen = model.action_space, model.observation_space
    sizes = int(np.prod(seen.shape)), int(np.prod(acted.shape))
    check_statistics(normaliser, sizes[0], model.num_timesteps)
    spec = env_spec(model)
    layers, refusal = None, unknown_statistics(spec)
    try:
        actor = read_actor(model)
    except DamperError as error:
        refusal = error  # it can still act, but not be exported
    else:
        pairs = [(w.T.numpy(), b.numpy()) for name, (w, b) in actor.layers.items() if acts(name)]
        layers = LinearActor(pairs, actor.activation, actor.squash, actor.clip_mean)

    def act(obs: NDArray[Any], deterministic: bool = True) -> NDArray[np.float32]:
        inputs = normaliser(obs) if normaliser else obs
        rows = inputs.reshape(-1, *seen.shape)
        actions, memory = model.predict(rows, deterministic=deterministic)
        if memory is not None:
            raise DamperError(
                f"the model must act on one observation alone, but {type(model.policy).__name__} "
                "carries a memory from step to step: evaluate it with SB3's evaluate_policy."
            )
        reshaped: NDArray[np.float32] = actions.reshape(len(obs), -1)
        return reshaped

    return LoadedPolicy(
        act,
        spec,
        _facts(model),
        agent={"seed": -1 if model.seed is None else model.seed},
        actor=layers,
        refusal=refusal,
        low=np.ravel(acted.low),
        high=np.ravel(acted.high),
        obs_ranges=(seen.low, seen.high),
        normaliser=normaliser,
        sizes=sizes,
        draw=partial(act, deterministic=False),
    )


def check_unknown_statistics(source: Any, state: Mapping[str, Any]) -> None:
    """Raise for a model of SB3's PPO under VecNormalize; say of others that it cannot be known.

    SB3's own classes do not record VecNormalize. On-policy ones hold ``_last_original_obs`` only
    under it, though it may have normalised rewards alone; off-policy ones hold it in any case.

    Args:
        source: its name.
        state: the model's attributes.
    """
    if "gae_lambda" in state:
        if state.get("_last_original_obs") is not None:
            raise MissingOptionError(
                f"{source} was trained under VecNormalize, and does not say whether that "
                "normalised observations: give what its save() wrote with --vecnormalize "
                "(vecnormalize=), which does."
            )
    elif state.get("num_timesteps"):
        logging.getLogger("damper").warning(
            "%s comes from SB3's own class, which does not record whether VecNormalize normalised "
            "its observations: if it did, the result is wrong until you give the statistics with "
            "--vecnormalize (vecnormalize=).",
            source,
        )


def check_boxes(model: Any) -> None:
    """Raise for a model whose observation or action space is not a Box."""
    fixes = {"observation": FLATTEN, "action": "others can be neither evaluated nor exported."}
    for name, fix in fixes.items():
        space = getattr(model, f"{name}_space")
        if not isinstance(space, gymnasium.spaces.Box):
            raise DamperError(
                f"the model's {name} space must be a Box, but is {type(space).__name__}: {fix}"
            )


def _facts(model: Any) -> dict[str, Any]:
    """What trained a model; method "plain" for SB3's own."""
    method, settings = getattr(model, "method", "plain"), getattr(model, "method_settings", {})
    return {
        "backbone": backbone(model),
        "method": method if isinstance(method, str) else str(method.name),
        "seed": model.seed,
        "steps": int(model.num_timesteps),
        "settings": {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in settings.items()
        },
    }


def from_sb3(model: Any) -> Policy:
    """Convert an SB3 model (TD3, SAC, PPO, DDPG or TQC, ours or SB3's) to a ``Policy``.

    It predicts what ``model.predict(obs, deterministic=True)`` predicts, can be saved as one small
    file without pickle, and evaluated by ``damper.evaluate``. It includes VecNormalize's
    statistics, so it takes observations as the environment returns them.
    """
    normaliser = statistics(model)
    actor = read_actor(model)
    if actor.clip_mean is not None:
        raise DamperError(
            "use_sde bounds the mean, which a policy file does not hold: use damper.export instead."
        )
    spec = env_spec(model)
    facts = {
        **_facts(model),
        "env": spec.id,
        "env_spec": to_json(spec),
        "seed": -1 if model.seed is None else model.seed,
        "normaliser": normaliser.to_dict() if normaliser else None,
    }
    policy = make_policy(actor, model.action_space.low, model.action_space.high, facts)
    obs = np.random.default_rng(0).normal(size=(64, policy.sizes[0]))
    seen = obs if normaliser is None else normaliser(obs)
    with device_context(
        str(model.device), tf32=False
    ):  # its rounding would look like other weights
        expected = model.predict(seen, deterministic=True)[0].reshape(len(obs), -1)
    tolerance = 1e-4 * (1.0 + np.abs(expected).max())
    if not np.allclose(policy(obs), expected, rtol=0.0, atol=tolerance, equal_nan=True):
        raise DamperError(
            "the model must act as its layers and activation_fn say, but does not: modules that "
            "were replaced after it was made cannot be converted."
        )
    return policy


def make_policy(actor: Actor, low: Any, high: Any, facts: Mapping[str, Any]) -> Policy:
    """An engine policy with these layers."""
    shapes = tuple(
        (name, weight.shape[1], weight.shape[0]) for name, (weight, _) in actor.layers.items()
    )
    tensors = [part for w, b in actor.layers.values() for part in (w.T[None], b[None, None])]
    flat_params = Layout(shapes).flatten(tensors)[0]
    info = PolicyInfo(
        activation=actor.activation,
        squash=actor.squash,
        low=[float(x) for x in np.ravel(low)],
        high=[float(x) for x in np.ravel(high)],
        layers=list(shapes),
        **{"versions": versions(), **facts},
    )
    return Policy(info, flat_params.float())


@torch.no_grad()
def to_sb3(policy: Policy, model: Any) -> None:
    """Put a policy's weights into an SB3 model's actor (and TD3's target actor), in place.

    The model must have the policy's layers, activation and action bounds; its critics stay as they
    are.
    """
    if policy.normaliser is not None:
        raise DamperError(
            "the policy must not normalise observations itself, which an SB3 model leaves to "
            "VecNormalize, but does: use policy.predict."
        )
    actor, info = read_actor(model), policy.info
    taken = {name: tuple(weight.shape[::-1]) for name, (weight, _) in actor.layers.items()}
    given = {name: (a, b) for name, a, b in policy.layout.layers}
    if "prediction" not in taken:  # ASAP's second head does not act
        given.pop("prediction", None)
    if actor.squash != info.squash:
        raise DamperError(
            f"the model must bound its actions as the policy does, but {backbone(model)} and "
            f"{info.backbone} differ: one has a tanh, the other clips."
        )
    if taken != given or actor.activation != info.activation:
        raise DamperError(
            f"the model must have the policy's layers {given} and activation {info.activation!r}, "
            f"but has {taken} and {actor.activation!r}: set net_arch and activation_fn in "
            "policy_kwargs."
        )
    low, high = np.ravel(model.action_space.low), np.ravel(model.action_space.high)
    if not np.array_equal(np.array([info.low, info.high], np.float32), np.array([low, high])):
        raise DamperError(
            f"the model's action bounds must be the policy's, {info.low} to {info.high}, but are "
            f"{low.tolist()} to {high.tolist()}: make it for {info.env}."
        )
    state = model.policy.state_dict()
    prefix = "actor_target."
    target = {
        f"actor.{name.removeprefix(prefix)}": tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }
    for tensors in filter(None, (state, target)):
        for name, (weight, bias) in read_layers(tensors).items():
            w, b = policy.weights[name]
            weight.copy_(w[0].T)
            bias.copy_(b[0, 0])
