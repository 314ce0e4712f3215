"""SB3's zip files without unpickling: the actor's weights, and what their plain text says.

A zip's ``data`` holds pickled objects, and unpickling runs whatever code they carry. Each has a
description in plain text, and torch reads the file of weights without running anything
(``weights_only=True``): for the usual policies that is enough to act.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

import damper.sb3
from damper.activations import NAME_BY_MODULE, known_modules
from damper.engine.envs.env_spec_json import UNKNOWN
from damper.errors import DamperError, MissingOptionError
from damper.policies.loaded import LoadedPolicy, Request, from_policy
from damper.policies.policy import Policy
from damper.sb3.convert import (
    ACTOR_MODULES,
    FLATTEN,
    Actor,
    check_statistics,
    check_unknown_statistics,
    load_model,
    make_policy,
    read_layers,
    read_vecnormalize,
)

_POLICIES = (*ACTOR_MODULES, "stable_baselines3.common.policies")


def open_zip(path: Path, request: Request) -> list[LoadedPolicy]:
    """The policy in a zip, ours or SB3's; unpickled only if that is allowed."""
    normaliser = read_vecnormalize(request.vecnormalize, request.trust)
    data = json.loads(_open(path).read("data"))
    normalised = _plain(data.get("norm_obs"), None)  # SB3's own classes do not say
    if normalised and normaliser is None:
        raise MissingOptionError(
            f"{path} was trained on observations that VecNormalize normalised: give its statistics "
            "with --vecnormalize (vecnormalize=), or the policy sees observations unlike those of "
            "training."
        )
    if normalised is False and normaliser is not None:
        raise DamperError(
            f"vecnormalize must be left out for {path}, which was trained on observations that "
            "were not normalised: with statistics the policy sees observations unlike those of "
            "training."
        )
    if normalised is None and request.vecnormalize is None:
        check_unknown_statistics(path, data)
    if request.trust:
        loaded = load_model(load_zip(path), normaliser)
        return [replace(loaded, facts={**loaded.facts, "versions": saved_versions(path)})]
    policy = read_zip(path, (request.spec.low, request.spec.high) if request.spec else None)
    check_statistics(normaliser, policy.sizes[0], policy.info.steps)
    return [from_policy(policy if normaliser is None else policy.with_normaliser(normaliser))]


def read_zip(path: Path | str, bounds: tuple[Any, Any] | None = None) -> Policy:
    """The actor of a TD3, SAC, PPO, DDPG or TQC zip, ours or SB3's, without unpickling anything.

    Args:
        path: the zip.
        bounds: the action space's low and high, used if the zip's text does not give its own
            exactly.
    """
    archive = _open(path)
    data = json.loads(archive.read("data"))
    algorithm = _algorithm(path, data)
    squash = algorithm != "PPO" or _described(data["policy_kwargs"]).get("squash_output") is True
    actor = Actor(_layers(archive, path, data), _activation(path, data, algorithm), squash=squash)
    low, high = _bounds(path, data, bounds)
    recorded, env = _plain(data.get("env_spec"), None), _plain(data.get("env_id"), UNKNOWN)
    method = data.get("method", "plain")  # or a pickled Method, described by its fields
    facts = {
        "backbone": algorithm.lower(),
        "env": EnvSpec.from_json(recorded).id if recorded else str(env),
        "env_spec": recorded,
        "method": method if isinstance(method, str) else _described(method).get("name", "custom"),
        "seed": int(_plain(data.get("seed"), -1)),
        "steps": int(_plain(data.get("num_timesteps"), 0)),
        "settings": _plain(data.get("method_settings"), {}),
        "versions": saved_versions(path),
    }
    return make_policy(actor, low, high, facts)


# Our names of what SB3 lists in system_info.txt.
_LIBRARIES = {
    "Python": "python",
    "Stable-Baselines3": "stable-baselines3",
    "PyTorch": "torch",
    "Numpy": "numpy",
    "Gymnasium": "gymnasium",
    "Cloudpickle": "cloudpickle",
}


def saved_versions(path: Path | str) -> dict[str, str]:
    """Versions of the libraries with which a zip was saved, as far as its plain text has them.

    SB3 writes ``system_info.txt`` (lines like ``- PyTorch: 2.8.0``) and its own version in a
    separate file.
    """
    archive = _open(path)
    info = _text(archive, "system_info.txt")
    sb3_version = _text(archive, "_stable_baselines3_version").strip()
    lines = re.findall(r"^- ([\w-]+): ([\w.+-]{1,40})\s*$", info, re.MULTILINE)
    saved = {_LIBRARIES[name]: version for name, version in lines if name in _LIBRARIES}
    if re.fullmatch(r"[\w.+-]{1,40}", sb3_version):
        saved["stable-baselines3"] = sb3_version
    return saved


def _text(archive: zipfile.ZipFile, name: str) -> str:
    """The beginning of a file inside; nothing where it is missing."""
    if name not in archive.namelist():
        return ""
    with archive.open(name) as file:
        return file.read(10_000).decode("utf-8", "replace")


def load_zip(path: Path | str) -> Any:
    """The whole model, unpickled by SB3: only for files whose author you trust."""
    data = json.loads(_open(path).read("data"))
    # SB3's own classes cannot load the state of ASAP, Bloop or MetaBalance.
    name = _algorithm(path, data)
    kind = getattr(damper.sb3, name)  # also for SB3's: its error says what to install
    if "method" not in data:
        theirs = "sb3_contrib" if name == "TQC" else "stable_baselines3"
        kind = getattr(importlib.import_module(theirs), name)
    return kind.load(path, device="cpu")


def _algorithm(path: Path | str, data: dict[str, Any]) -> str:
    """The class that saved the zip, by entries that only it has; raises for unusable ones."""
    seen = _described(data.get("observation_space"))
    # SB3 scales images and may move their channels, which the layers alone do not show.
    image = seen.get("dtype") == "uint8" and len(seen.get("_shape", ())) == 3
    if image or "Dict" in _type(seen):
        kind = "images" if image else "Dict observations"
        raise DamperError(
            f"{path} must hold a policy of one observation vector, but has {kind}: {FLATTEN}"
        )
    if "Box" not in _type(data.get("action_space")):
        raise DamperError(
            f"{path} has discrete actions: only policies of a Box can be evaluated or exported."
        )
    if "recurrent" in _module(data):
        raise DamperError(
            f"{path} must act on one observation alone, but carries a memory from step to step: "
            "load it and use SB3's evaluate_policy."
        )
    # CrossQ, for example, has the entries of SAC.
    other = _module(data).startswith("sb3_contrib.") and _module(data) not in ACTOR_MODULES
    if "clip_range" in data and "gae_lambda" in data and not other:
        return "PPO"
    if "ent_coef" in data and "target_entropy" in data and not other:
        return "TQC" if "top_quantiles_to_drop_per_net" in data else "SAC"
    if "target_policy_noise" in data:  # SB3's DDPG is TD3 with these two numbers
        ddpg = data.get("policy_delay") == 1 and data.get("target_noise_clip") == 0.0
        return "DDPG" if ddpg else "TD3"
    raise DamperError(
        f"{path} must hold a TD3, SAC, PPO, DDPG or TQC model, but holds another algorithm's: load "
        "it and pass the model to damper.evaluate."
    )


def _open(path: Path | str) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise DamperError(f"{path} does not exist: give a zip that model.save() wrote.") from error
    except zipfile.BadZipFile as error:
        raise DamperError(
            f"{path} is damaged or not a zip file: give a zip that model.save() wrote."
        ) from error
    if not {"data", "policy.pth"} <= set(archive.namelist()):
        raise DamperError(
            f"{path} is not a Stable-Baselines3 model: give a zip that model.save() wrote."
        )
    return archive


def _needs_trust(path: Path | str, why: str) -> MissingOptionError:
    return MissingOptionError(
        f"{path} {why}, so it can only be loaded by unpickling, which runs whatever code the file "
        "carries: if you trust its author, add --trust (trust=True)."
    )


def _type(entry: Any) -> str:
    return str(_described(entry).get(":type:"))


def _module(data: dict[str, Any]) -> str:
    return str(_described(data.get("policy_class")).get("__module__"))


def _layers(archive: zipfile.ZipFile, path: Path | str, data: dict[str, Any]) -> Any:
    if _module(data) not in _POLICIES:
        raise _needs_trust(path, f"has a custom policy class ({_module(data)})")
    if "Box" not in _type(data["observation_space"]):
        raise _needs_trust(path, "has observations other than a Box")
    if "features_extractor_class" in _described(data["policy_kwargs"]):
        raise _needs_trust(path, "has a custom features extractor")
    if _plain(data.get("use_sde"), False) and "gae_lambda" not in data:  # PPO's has no such bound
        raise _needs_trust(path, "uses gSDE, whose bound on the mean is not written in plain text")
    try:
        weights = io.BytesIO(archive.read("policy.pth"))
        state = torch.load(weights, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, OSError) as error:
        raise DamperError(f"{path} holds damaged weights: save the model again.") from error
    except Exception as error:  # the safe loader's refusal, whose class only pickle names
        raise _needs_trust(path, "has weights that torch's safe loader refuses") from error
    try:
        return read_layers(state)
    except DamperError as error:
        raise _needs_trust(path, "has layers that are not SB3's") from error


def _activation(path: Path | str, data: dict[str, Any], algorithm: str) -> str:
    default = "torch.nn.modules.activation." + ("Tanh" if algorithm == "PPO" else "ReLU")
    text = str(_described(data["policy_kwargs"]).get("activation_fn", default))
    for module, name in NAME_BY_MODULE.items():
        if re.search(rf"{re.escape(module.__module__)}\.{module.__name__}\b", text):
            return name
    raise _needs_trust(path, f"has another activation than {known_modules()} ({text})")


def _bounds(
    path: Path | str, data: dict[str, Any], otherwise: tuple[Any, Any] | None
) -> tuple[Any, Any]:
    """The action space's low and high from its text, if exact; else the given environment's."""
    low, high = _bound(data, "low"), _bound(data, "high")
    if low is not None and high is not None:
        return low, high
    if otherwise is None:
        raise DamperError(
            f"{path} does not record the exact bounds of the action space: name its environment "
            "with --env."
        )
    return otherwise


def _bound(data: dict[str, Any], side: str) -> NDArray[np.float32] | None:
    """A bound of the action space from its text; None if that is missing or rounded."""
    numbers = re.findall(r"[-+.\deinf]+", str(_described(data["action_space"]).get(side, "")))
    digits = [len(re.sub(r"e.*|\D", "", number).strip("0")) for number in numbers]
    if not numbers or max(digits) > 7 or "..." in numbers:
        return None
    return np.array([float(number) for number in numbers], np.float32)


def _described(entry: Any) -> dict[str, Any]:
    """The plain-text description of a pickled object, or a plain dictionary; else empty."""
    return entry if isinstance(entry, dict) else {}


def _plain(entry: Any, default: Any) -> Any:
    """A plain JSON value; the default if it is missing or pickled."""
    pickled = isinstance(entry, dict) and ":serialized:" in entry
    return default if entry is None or pickled else entry
