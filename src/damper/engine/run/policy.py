"""A trained actor as one small file: weights in safetensors, everything needed to use them in its header."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from damper.engine.envs.recorded import named_spec, to_json
from damper.engine.envs.spec import Spec, unscale_action
from damper.engine.kernels.layer import linear
from damper.engine.networks.layout import Layout
from damper.engine.networks.stacked import StackedActor
from damper.engine.run.files import write_tensors
from damper.errors import DamperError


@dataclass(frozen=True)
class PolicyInfo:
    """What a policy file says of itself.

    ``env_spec`` is Gymnasium's ``EnvSpec`` of the environment it was trained in, as JSON; None in files of earlier
    versions, which know only the id ``env``. ``squash`` tells how the actor's output becomes an action: by tanh and the
    action's range (TD3, SAC), or cut to the range (PPO's Gaussian).
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


class Policy:
    """The deterministic actor of one agent, in the environment's own units."""

    def __init__(self, info: PolicyInfo, row: torch.Tensor) -> None:
        """``row``: the actor's flat parameters, ``[n]``."""
        self.info, self.row = info, row
        self._low, self._high = (torch.tensor(b, dtype=row.dtype) for b in (info.low, info.high))
        self.layout = Layout(tuple((name, a, b) for name, a, b in info.layers))
        self.weights = self.layout.split(row.unsqueeze(0))

    @property
    def env_spec(self) -> EnvSpec:
        """The environment it was trained in, for ``gymnasium.make``."""
        recorded = self.info.env_spec
        return named_spec(self.info.env) if recorded is None else EnvSpec.from_json(recorded)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many observations go in and how many actions come out."""
        actions = next(outputs for name, _, outputs in self.layout.layers if name == "mu")
        return self.layout.layers[0][1], actions

    @torch.no_grad()
    def __call__(self, obs: ArrayLike) -> NDArray[np.float32]:
        """Actions ``[..., A]`` for observations ``[..., d]``: ``low + (μ(s) + 1)/2 · (high − low)``, or cut."""
        inputs = torch.as_tensor(np.asarray(obs), dtype=self.row.dtype)
        expected, _ = self.sizes
        if inputs.ndim == 0 or inputs.shape[-1] != expected:
            raise DamperError(
                f"obs must have shape [..., {expected}], but has {tuple(inputs.shape)}: "
                f"give observations of {self.info.env}."
            )
        flat = inputs.reshape(1, -1, inputs.shape[-1])
        actor = StackedActor(self.weights, self.info.activation)
        actions: torch.Tensor
        if self.info.squash:
            actions = unscale_action(actor(flat)[0], self._low, self._high)
        else:
            actions = linear(actor.features(flat), self.weights["mu"])[0].clamp(self._low, self._high)
        return actions.reshape(*inputs.shape[:-1], -1).numpy()

    def save(self, path: Path | str) -> None:
        """Write the file, whole or not at all."""
        # Only where it says something, so that earlier versions read all other files.
        info = {name: value for name, value in asdict(self.info).items() if name != "squash" or not value}
        write_tensors(Path(path), {"actor": self.row}, {"damper_policy": json.dumps(info, sort_keys=True)})

    @classmethod
    def load(cls, path: Path | str) -> Policy:
        """Read a policy file; anything else is refused."""
        if not Path(path).is_file():
            raise DamperError(f"{path} must be a policy file, but is none: give a file of a run's policies/.")
        try:
            with safe_open(str(path), framework="pt") as file:
                header = (file.metadata() or {})["damper_policy"]
                return cls(PolicyInfo(**json.loads(header)), file.get_tensor("actor"))
        except SafetensorError as error:
            raise DamperError(f"{path} is damaged or no safetensors file ({error}).") from error
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DamperError(
                f"{path} is a safetensors file but no damper policy of this version: give a file of a run's policies/."
            ) from error


def describe(spec: Spec, layout: Layout) -> dict[str, Any]:
    """The parts of a policy's header that the environment and the network decide."""
    return {
        "env": spec.id,
        "env_spec": to_json(spec.env_spec),
        "low": [float(x) for x in spec.low],
        "high": [float(x) for x in spec.high],
        "layers": [list(layer) for layer in layout.layers],
    }
