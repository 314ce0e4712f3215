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
from torch import Tensor, nn

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
    on_policy = any(key.startswith("action_net.") for key in state)
    layers = (_read_on_policy_layers if on_policy else _read_off_policy_layers)(state)
    if any(weight.ndim != 2 for weight, _ in layers.values()):
        raise DamperError(
            "the actor must be made of SB3's linear layers alone, but has others between them: a "
            "custom network "
            "cannot be converted."
        )
    return layers


def _read_off_policy_layers(state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    names = [
        key.removesuffix(".weight")
        for key in state
        if re.fullmatch(r"actor\.(mu|latent_pi)\.\d+\.weight", key)
    ]
    names += [key for key in ("actor.mu", "actor.log_std") if f"{key}.weight" in state]
    # Without hidden layers SAC has no latent_pi either, but still two heads.
    stochastic = "actor.log_std.weight" in state or any(
        name.startswith("actor.latent_pi") for name in names
    )
    expected = {f"{name}.{kind}" for name in names for kind in ("weight", "bias")} | {
        "actor.log_std"
    }
    if unknown := [key for key in state if key.startswith("actor.") and key not in expected]:
        raise DamperError(
            f"the actor must be made of SB3's linear layers alone, but has {unknown[0]!r}: a "
            "features extractor or a "
            "custom network cannot be converted."
        )
    trunk = (
        [name for name in names if name.startswith("actor.latent_pi")] if stochastic else names[:-1]
    )
    titles = [f"trunk.{i}" for i in range(len(trunk))]
    titles += ["mu", "log_std"][: len(names) - len(trunk)]
    return {
        title: (state[f"{name}.weight"], state[f"{name}.bias"])
        for title, name in zip(titles, names, strict=True)
    }


def _read_on_policy_layers(state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    values = ("value_net.", "mlp_extractor.value_net.", "vf_features_extractor.", "log_std")
    acting = [key for key in state if not key.startswith(values)]
    trunk = [
        key.removesuffix(".weight") for key in acting if re.fullmatch(_TRUNK + r"\.weight", key)
    ]
    if unknown := [
        key for key in acting if not re.fullmatch(rf"(?:{_TRUNK}|action_net)\.(?:weight|bias)", key)
    ]:
        raise DamperError(
            f"the policy must be made of SB3's linear layers alone, but has {unknown[0]!r}: a "
            "features extractor or a "
            "custom network cannot be converted."
        )
    names = {f"trunk.{i}": name for i, name in enumerate(trunk)} | {"mu": "action_net"}
    return {
        title: (state[f"{name}.weight"], state[f"{name}.bias"]) for title, name in names.items()
    }


_TRUNK = r"mlp_extractor\.policy_net\.\d+"


def backbone(model: Any) -> str:
    """A model's algorithm, by its class or its base classes."""
    names = [kind.__name__ for kind in type(model).__mro__]
    return next(
        (name.lower() for name in ("PPO", "TQC", "SAC", "DDPG", "TD3") if name in names), "unknown"
    )


def read_actor(model: Any) -> Actor:
    """A model's actor as layers; raises for an actor that is more than linear layers."""
    on_policy = (
        type(model.policy) is ActorCriticPolicy and type(model.policy.mlp_extractor) is MlpExtractor
    )
    actor: Any = model.policy if on_policy else getattr(model.policy, "actor", None)
    space = model.observation_space
    plain = on_policy or (
        type(actor).__name__ == "Actor" and type(actor).__module__ in ACTOR_MODULES
    )
    if not plain or not isinstance(actor.features_extractor, FlattenExtractor):
        raise DamperError(
            "the actor must be SB3's own, without a features extractor, but is "
            f"{type(actor).__name__} on "
            f"{type(getattr(actor, 'features_extractor', None)).__name__}: others cannot be "
            "converted."
        )
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise DamperError(
            f"the observation space must be a Box of shape (n,), but is {space}: only such "
            "policies can be converted."
        )
    activation = NAME_BY_MODULE.get(getattr(actor, "activation_fn", nn.Identity))
    if activation is None:
        raise DamperError(
            f"activation_fn must be {known_modules()}, but is "
            f"{getattr(actor, 'activation_fn', None)}: others cannot "
            "be converted."
        )
    clip = getattr(actor, "clip_mean", 0.0) if getattr(actor, "use_sde", False) else 0.0
    state = {name: tensor.detach().to("cpu") for name, tensor in model.policy.state_dict().items()}
    return Actor(
        read_layers(state),
        activation,
        clip if clip > 0 else None,
        not on_policy or actor.squash_output,
    )


# Vectorised wrappers that do not change the environment for the policy; VecNormalize's statistics
# are read separately.
_TRANSPARENT = (VecNormalize, VecMonitor, VecCheckNan, VecVideoRecorder)


def env_spec(model: Any) -> EnvSpec:
    """Gymnasium's spec of the model's environment, or without one the spec saved in its zip."""
    env = model.get_env()
    if env is None:
        recorded = getattr(model, "env_spec", None)
        if recorded:
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

    Our models record it when they learn: one loaded into another environment still needs those
    statistics. For SB3's own classes: whether it sees such observations now.
    """
    noted = getattr(model, "norm_obs", None)
    return sees_normalised(model) if noted is None else bool(noted)


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

    facts = {
        "backbone": backbone(model),
        "method": method_name(model),
        "seed": model.seed,
        "steps": model.num_timesteps,
        "settings": method_settings(model),
    }
    return LoadedPolicy(
        act,
        spec,
        facts,
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


def method_name(model: Any) -> str:
    """The method's name of one of our models; "plain" for SB3's own."""
    method = getattr(model, "method", "plain")
    return method if isinstance(method, str) else str(method.name)


def method_settings(model: Any) -> dict[str, Any]:
    """The method's settings as plain JSON values."""
    settings = getattr(model, "method_settings", {})
    return {
        name: value.tolist() if hasattr(value, "tolist") else value
        for name, value in settings.items()
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
        "backbone": backbone(model),
        "env": spec.id,
        "env_spec": to_json(spec),
        "method": method_name(model),
        "seed": model.seed if model.seed is not None else -1,
        "steps": int(model.num_timesteps),
        "settings": method_settings(model),
        "normaliser": normaliser.to_dict() if normaliser else None,
    }
    policy = make_policy(actor, model.action_space.low, model.action_space.high, facts)
    obs = np.random.default_rng(0).normal(size=(64, policy.sizes[0]))
    with device_context(
        str(model.device), tf32=False
    ):  # whose rounding would look like another network
        expected, _ = model.predict(
            obs if normaliser is None else normaliser(obs), deterministic=True
        )
    scale = 1.0 + np.abs(expected).max()
    if not np.allclose(
        policy(obs), expected.reshape(len(obs), -1), rtol=0.0, atol=1e-4 * scale, equal_nan=True
    ):
        raise DamperError(
            "the model must act as its layers and activation_fn say, but does not: modules that "
            "were replaced after it "
            "was made cannot be converted."
        )
    return policy


def make_policy(actor: Actor, low: Any, high: Any, facts: Mapping[str, Any]) -> Policy:
    """An engine policy with these layers."""
    shapes = tuple(
        (name, weight.shape[1], weight.shape[0]) for name, (weight, _) in actor.layers.items()
    )
    flat_params = Layout(shapes).flatten(
        [t for w, b in actor.layers.values() for t in (w.T[None], b[None, None])]
    )[0]
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
            "VecNormalize, but does: "
            "use policy.predict."
        )
    actor = read_actor(model)
    taken = {name: tuple(weight.shape[::-1]) for name, (weight, _) in actor.layers.items()}
    given = {
        name: (a, b) for name, a, b in policy.layout.layers if name in taken or name != "prediction"
    }
    if actor.squash != policy.info.squash:
        raise DamperError(
            f"the model must bound its actions as the policy does, but {backbone(model)} and "
            f"{policy.info.backbone} "
            "differ: one has a tanh, the other clips."
        )
    if taken != given or actor.activation != policy.info.activation:
        raise DamperError(
            f"the model must have the policy's layers {given} and activation "
            f"{policy.info.activation!r}, but has {taken} "
            f"and {actor.activation!r}: set net_arch and activation_fn in policy_kwargs."
        )
    space = model.action_space
    bounds = np.array([policy.info.low, policy.info.high], np.float32)
    if not (
        np.array_equal(np.ravel(space.low), bounds[0])
        and np.array_equal(np.ravel(space.high), bounds[1])
    ):
        raise DamperError(
            f"the model's action bounds must be the policy's, {policy.info.low} to "
            f"{policy.info.high}, but are "
            f"{space.low.tolist()} to {space.high.tolist()}: make it for {policy.info.env}."
        )
    state = model.policy.state_dict()
    target = {
        f"actor.{name[13:]}": tensor
        for name, tensor in state.items()
        if name.startswith("actor_target.")
    }
    for tensors in filter(None, (state, target)):
        for name, (weight, bias) in read_layers(tensors).items():
            w, b = policy.weights[name]
            weight.copy_(w[0].T)
            bias.copy_(b[0, 0])
