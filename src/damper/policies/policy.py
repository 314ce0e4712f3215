"""A trained actor as one small file: weights in safetensors, how to use them in the header."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from damper.agents import sac
from damper.engine.envs.env_spec_json import env_spec_from_id
from damper.engine.envs.pool import unscale_action
from damper.engine.networks.layout import Layout
from damper.engine.networks.stacked import StackedActor, linear
from damper.errors import DamperError
from damper.files import write_tensors
from damper.policies.normaliser import Normaliser

DETERMINISTIC = ("td3", "ddpg")  # backbones whose policies have no distribution
# Files that users have beside their policies, and give in their place.
LOGS = (".csv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".tsv", ".txt")


@dataclass(frozen=True)
class PolicyInfo:
    """The header of a policy file.

    ``env_spec`` is Gymnasium's ``EnvSpec`` of the training environment as JSON; None where only
    the id ``env`` is known. ``squash`` says how the actor's output becomes an action: by tanh and
    scaling to the action's range (TD3, SAC), or clipped to the range (PPO's Gaussian).
    ``normaliser`` has the fields of ``Normaliser`` if the actor sees normalised observations.
    ``backend`` stepped the training environments; None if unknown.
    """

    env: str
    backbone: str
    method: str
    seed: int
    steps: int
    activation: str
    low: list[float]
    high: list[float]
    layers: list[tuple[str, int, int]]
    settings: dict[str, Any]
    versions: dict[str, str]
    env_spec: str | None = None
    squash: bool = True
    normaliser: dict[str, Any] | None = None
    backend: str | None = None


class Predictor(ABC):
    """Acts like Stable-Baselines3's models, by ``predict``, in the environment's own units."""

    @abstractmethod
    def _about(self) -> tuple[int | None, str, str]:
        """Size of an observation (None if unknown), name of the environment, and the backbone."""

    @abstractmethod
    def _act(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Deterministic actions ``[N, A]`` for observations ``[N, d]``."""

    @abstractmethod
    def _draw(self, obs: NDArray[Any]) -> NDArray[np.float32] | None:
        """The same, drawn from the policy's distribution; None if that is not available."""

    def predict(
        self,
        obs: ArrayLike,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.float32], tuple[NDArray[Any], ...] | None]:
        """Actions for observations, with the arguments of Stable-Baselines3's ``predict``.

        Args:
            obs: one observation ``[d]`` or a batch ``[N, d]`` (``[..., d]``), of any real type.
            state: for recurrent policies, which there are none of here; returned unchanged.
            episode_start: for recurrent policies too; not used.
            deterministic: False draws from the policy's distribution, with torch's random numbers
                (SAC, TQC). TD3's and DDPG's policies have no distribution and ignore it. A file
                without its distribution raises an error.

        Returns:
            Actions ``[A]`` or ``[N, A]`` (``[..., A]``), within the action space's bounds, and
            ``state``.
        """
        size, env, backbone = self._about()
        inputs = _check_obs(obs, size, env)
        flat = inputs.reshape(-1, inputs.shape[-1])
        certain = deterministic or backbone in DETERMINISTIC
        actions = self._act(flat) if certain else self._draw(flat)
        if actions is None:
            what = f"deterministic must be True for this policy of {backbone}"
            raise DamperError(f"{what}, which has no distribution to sample from.")
        return actions.reshape(*inputs.shape[:-1], actions.shape[-1]), state


def _check_obs(obs: ArrayLike, size: int | None, env: str) -> NDArray[Any]:
    """Observations ``[..., d]`` as an array; raises for anything else."""
    try:
        inputs = np.asarray(obs)
        kind = f"{type(obs).__name__} of {inputs.dtype.name}"
    except (TypeError, ValueError, RuntimeError):
        # Rows of different lengths; a tensor on a GPU or with a gradient.
        inputs, kind = np.empty(0, object), type(obs).__name__
    if inputs.dtype.kind not in "biuf":
        what = f"an array of real numbers, but is a {kind}"
        raise DamperError(f"obs must be {what}: give observations of {env}.")
    if inputs.ndim == 0 or (size is not None and inputs.shape[-1] != size):
        shape = f"[..., {'d' if size is None else size}], but has {inputs.shape}"
        raise DamperError(f"obs must have shape {shape}: give observations of {env}.")
    return inputs


class Policy(Predictor):
    """The actor of one agent, in the environment's own units.

    Called with observations ``[..., d]`` it returns deterministic actions ``[..., A]``; ``predict``
    does the same with Stable-Baselines3's arguments. It is ``damper.Policy``; the actor as losses
    see it in training is ``damper.interface.Policy``.
    """

    def __init__(self, info: PolicyInfo, flat_params: torch.Tensor) -> None:
        """``flat_params`` are the actor's parameters, ``[n]``."""
        self.info, self.flat_params = info, flat_params
        self._low, self._high = torch.tensor([info.low, info.high], dtype=flat_params.dtype)
        self.layout = Layout(tuple((name, a, b) for name, a, b in info.layers))
        self.weights = self.layout.unflatten(flat_params.unsqueeze(0))
        self.normaliser = Normaliser.from_dict(info.normaliser) if info.normaliser else None

    def __repr__(self) -> str:
        """Environment, sizes and agent in one line."""
        info, (observations, actions) = self.info, self.sizes
        agent = f"{info.backbone} {info.method}" + (f", seed {info.seed}" if info.seed >= 0 else "")
        sizes = f"{observations} in, {actions} out"
        return f"<Policy of {info.env}: {sizes}; {agent}, {info.steps:,} steps>"

    @property
    def env_spec(self) -> EnvSpec:
        """The training environment, for ``gymnasium.make``."""
        recorded = self.info.env_spec
        return env_spec_from_id(self.info.env) if recorded is None else EnvSpec.from_json(recorded)

    @property
    def sizes(self) -> tuple[int, int]:
        """Sizes of an observation and of an action."""
        actions = next(outputs for name, _, outputs in self.layout.layers if name == "mu")
        return self.layout.layers[0][1], actions

    @property
    def actor(self) -> StackedActor:
        """The network, a stack of one: ``[1, N, d]`` to ``[1, N, A]`` in [-1, 1]."""
        return StackedActor(self.weights, self.info.activation)

    def __call__(self, obs: ArrayLike) -> NDArray[np.float32]:
        """Actions ``low + (μ(s) + 1)/2 · (high − low)``, or clipped, for any leading shape."""
        return self.predict(obs)[0]

    def _about(self) -> tuple[int, str, str]:
        return self.sizes[0], self.info.env, self.info.backbone

    @torch.no_grad()
    def _act(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        inputs, actor = self._inputs(obs), self.actor
        if self.info.squash:
            return unscale_action(actor(inputs)[0], self._low, self._high).numpy()
        mean = linear(actor.features(inputs), self.weights["mu"])[0]
        return mean.clamp(self._low, self._high).numpy()

    @torch.no_grad()
    def _draw(self, obs: NDArray[Any]) -> NDArray[np.float32] | None:
        if not (self.info.squash and self.actor.stochastic):
            return None
        noise = torch.randn(1, len(obs), self.sizes[1], dtype=self.flat_params.dtype)
        actions = sac.sample(self.actor, self._inputs(obs), noise)[0]
        return unscale_action(actions[0], self._low, self._high).numpy()

    def _inputs(self, obs: NDArray[Any]) -> torch.Tensor:
        return torch.as_tensor(self.normalised(obs), dtype=self.flat_params.dtype).unsqueeze(0)

    def normalised(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Observations ``[..., d]`` as the network sees them."""
        return obs if self.normaliser is None else self.normaliser(obs)

    def save(self, path: Path | str) -> None:
        """Write the file atomically."""
        # One entry, because safetensors does not keep the order of several.
        header = {"damper_policy": json.dumps(asdict(self.info), sort_keys=True)}
        write_tensors(Path(path), {"actor": self.flat_params}, header)

    @classmethod
    def load(cls, path: Path | str) -> Policy:
        """Read a policy file; raises for anything else."""
        if not Path(path).is_file():
            raise DamperError(
                f"{path} must be a policy file, but is not: give a file from a run's policies/."
            )
        try:
            with safe_open(str(path), framework="pt") as file:
                header = (file.metadata() or {})["damper_policy"]
                return cls(PolicyInfo(**json.loads(header)), file.get_tensor("actor"))
        except SafetensorError as error:
            raise _not_a_policy(Path(path), error) from error
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DamperError(
                f"{path} is a safetensors file, but not a damper policy of this version: give a "
                "file from a run's policies/."
            ) from error

    def with_normaliser(self, normaliser: Normaliser) -> Policy:
        """The same weights behind statistics of the observations."""
        return Policy(replace(self.info, normaliser=normaliser.to_dict()), self.flat_params)


def _not_a_policy(path: Path, error: SafetensorError) -> DamperError:
    fix = "give a file from a run's policies/, a Stable-Baselines3 .zip or an .onnx file"
    reason = f"is damaged or not a safetensors file ({error})"
    if path.suffix.lower() in LOGS:
        reason = f"must hold a policy, but a {path.suffix} file holds none"
        fix += "; a log of actions is measured by damper.metrics.summary(actions, low, high)"
    if path.suffix in (".pt", ".pth"):
        reason = f"must hold a whole policy, but a {path.suffix} file of torch holds weights alone"
        fix = "load them into their rsl_rl runner or model, and give that to damper.evaluate"
    return DamperError(f"{path} {reason}: {fix}.")
