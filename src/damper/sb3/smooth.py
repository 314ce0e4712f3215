"""What ``damper.sb3.TD3`` and ``SAC`` share: a method by name, its inputs, its gradient, and what is saved of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.buffers import NStepReplayBuffer
from torch import Tensor

from damper._backward import backward
from damper.engine.envs.recorded import to_json
from damper.errors import DamperError
from damper.losses._interface import Batch, Noise
from damper.methods import Method, find_method
from damper.rules._span import Rule
from damper.sb3.buffers import neighbours, remember_rows
from damper.sb3.choice import check_inputs, check_names, check_rule, choose, is_setting
from damper.sb3.convert import env_spec, norm_obs
from damper.sb3.log import Log
from damper.sb3.networks import Critic, Policy, has_modes
from damper.sb3.state import MethodState

_FIXED = ("method", "rule", "auxiliary")  # what is built for them stays


class Draw(NamedTuple):
    """One update's inputs: transitions for the native losses, true neighbours for the smoothness losses, noise."""

    native: Batch
    smooth: Batch
    gamma: Any
    noise: dict[str, Tensor]


class Smooth:
    """Mixin before an SB3 off-policy class: only ``train`` is not SB3's any more.

    Args:
        policy: as in SB3, and so are all arguments not named here.
        env: likewise.
        method: a name in ``damper.METHODS``, a composed one ("damper+grad-caps+pave"), or a ``Method``.
        eta: DAMPER's η in [0, 1], for methods that have it; 1 by default.
        rule: another rule for the method's auxiliary gradient: a name in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss: "temporal", or a method's ("caps", "grad-caps", ...).
        critic: a critic loss beside it: "pave" or "l2c2".
        **arguments: the rest of SB3's, and the method's own settings (``lambda_T=...``).

    A setting of the method is also an attribute: ``model.eta = 0.5`` holds from the next update on.
    """

    backbone: ModuleType
    method: str | Method
    # SB3's own, as far as they are used here.
    device: torch.device
    seed: int | None
    gamma: float
    action_space: Any
    policy: Any
    actor: Any
    critic: Any
    replay_buffer: Any
    _vec_normalize_env: Any
    _current_progress_remaining: float

    def __init__(
        self,
        policy: Any,
        env: Any,
        *positional: Any,
        method: str | Method = "damper",
        eta: float | None = None,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        critic: str | None = None,
        **arguments: Any,
    ) -> None:
        """Settings are checked before anything is built."""
        theirs = inspect.signature(super().__init__).parameters
        settings = {name: arguments.pop(name) for name in list(arguments) if name not in theirs}
        self.method = choose(method, rule, auxiliary, critic)
        given = settings if eta is None else {**settings, "eta": eta}
        check_names(find_method(self.method), given, theirs)
        self.__dict__["method_settings"] = given
        super().__init__(policy, env, *positional, **arguments)  # type: ignore[call-arg]

    def _setup_model(self) -> None:
        """SB3's set-up, then the method's; ``load`` comes through here too."""
        given = self._take_overrides()
        self._method = find_method(self.method)
        self._use(given)
        super()._setup_model()  # type: ignore[misc]
        check_inputs(self._method, self._settings, self)
        self._remember_rows()
        self._has_modes = has_modes(self.actor)
        space = self.action_space
        self._action_scale = torch.as_tensor((space.high - space.low) / 2, device=self.device).reshape(-1)
        self._generator = torch.Generator(self.device)
        self._generator.manual_seed(self._generator.seed() if self.seed is None else self.seed)
        self.method_state = MethodState(self._method, self.policy, self._settings["rule"], self._generator)
        if self._method.prediction:
            self.actor.optimizer.add_param_group({"params": list(self.method_state.head.parameters())})

    def _take_overrides(self) -> dict[str, Any]:
        """The settings given: those in the zip, and what ``load(path, eta=0.5)`` left among the attributes."""
        parts = {name: self.__dict__.pop(name) for name in ("rule", "auxiliary", "critic") if name in self.__dict__}
        self.method = choose(self.method, **parts)
        known = find_method(self.method).settings()
        given = {name: self.__dict__.pop(name) for name in known if name in self.__dict__}
        # A zip of an earlier version holds nothing else under this name.
        before = self.__dict__.pop("given_settings", self.method_settings)
        return {name: value for name, value in before.items() if name in known} | given

    def _use(self, given: Mapping[str, Any]) -> None:
        """Take settings of the method, if they are right."""
        # NumPy's numbers would be pickled, and a zip's settings are to be read without.
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        settings = self._method.route(plain)
        check_rule(self._method, settings["rule"])
        self._settings = settings
        # Apart, so that a model loaded with another method gets that one's defaults.
        self.given_settings = plain
        self.__dict__["method_settings"] = self._method.settings(plain)

    @property
    def method_settings(self) -> Mapping[str, Any]:
        """All settings of the method, defaults included, to read; assign the attribute of that name to change one."""
        return MappingProxyType(self.__dict__["method_settings"])

    def __getattr__(self, name: str) -> Any:
        """A setting of the method, where SB3 has no attribute of that name."""
        if name in (settings := self.__dict__.get("method_settings", {})):
            return settings[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Settings of the method hold from the next update on; the method itself stays."""
        own = self.__dict__
        if "_method" in own and name in _FIXED:
            load = f"{type(self).__name__}.load(path, {name}=...)"
            raise DamperError(f"{name} must be given where the model is made or loaded, as in {load}: save it first.")
        if "_method" in own and name not in own and is_setting(name, self._method):
            check_names(self._method, {name: value})
            given = {**self.given_settings, name: value}
            check_inputs(self._method, self._method.route(given), self)
            self._use(given)
        else:
            super().__setattr__(name, value)

    def _remember_rows(self) -> None:
        if self._method.previous_obs or (self._method.losses and isinstance(self.replay_buffer, NStepReplayBuffer)):
            remember_rows(self.replay_buffer, self._method.name)

    def load_replay_buffer(self, *arguments: Any, **keywords: Any) -> None:
        """SB3's; the loaded buffer is prepared as a fresh one is."""
        super().load_replay_buffer(*arguments, **keywords)  # type: ignore[misc]
        self._remember_rows()

    # --- one update's inputs --------------------------------------------------------------------------------------

    def _draw(self, batch_size: int) -> Draw:
        """A batch as SB3 samples it, and what the method needs beside it."""
        env = self._vec_normalize_env
        samples = self.replay_buffer.sample(batch_size, env=env)
        native = Batch(
            samples.observations,
            samples.actions,
            samples.rewards.reshape(-1),
            samples.next_observations,
            samples.dones.reshape(-1),
            progress=1.0 - self._current_progress_remaining,
            action_scale=self._action_scale,
        )
        gamma = self.gamma if samples.discounts is None else samples.discounts.reshape(-1)
        smooth = native
        if self._method.previous_obs or (self._method.losses and samples.discounts is not None):
            # A buffer that only now turns out to look several steps ahead is refused here, in the same words.
            remember_rows(self.replay_buffer, self._method.name)
            around = neighbours(self.replay_buffer, samples, env, self._method.previous_obs)
            smooth = native._replace(**around._asdict())
        noise = {name: self._noise(kind, native) for name, kind in self._method.noise.items()}
        return Draw(native, smooth, gamma, noise)

    def _noise(self, kind: Noise, batch: Batch) -> Tensor:
        """One draw from the method's own generator, so that SB3's draws stay what they are."""
        like = {"obs": batch.obs, "action": batch.action, None: batch.reward}[kind.like]
        options: dict[str, Any] = {"generator": self._generator, "device": like.device, "dtype": like.dtype}
        if kind.kind == "normal":
            return torch.randn(like.shape, **options)
        uniform = 2.0 * torch.rand(like.shape, **options) - 1.0
        return uniform if kind.kind == "uniform" else torch.where(uniform < 0, -1.0, 1.0).to(like.dtype)

    # --- the two gradient steps -----------------------------------------------------------------------------------

    def _update_critic(self, target: Tensor, policy: Policy, draw: Draw, log: Log) -> None:
        critic = Critic(self.critic)
        loss = self.backbone.critic_loss(critic, draw.native, target)
        if self._method.critic:
            loss = loss + self._method.critic(critic, policy, draw.smooth, draw.noise, **self._settings["critic"])
        log.add(critic_loss=loss)
        self.critic.optimizer.zero_grad()
        loss.backward()
        self.critic.optimizer.step()

    def _update_actor(self, native: Tensor, policy: Policy, draw: Draw, log: Log) -> None:
        method, state = self._method, self.method_state
        parameters = state.trained(self.actor)
        log.add(actor_loss=native)
        self.actor.optimizer.zero_grad()  # before differentiating: what it frees serves the new gradients
        if method.actor:
            # Where training differs from evaluation, it is the policy that will run whose smoothness counts.
            seen = type(policy)(self.actor, state, still=True) if self._has_modes else policy
            auxiliary = method.actor(seen, draw.smooth, draw.noise, **self._settings["actor"])
            log.add(auxiliary_loss=auxiliary)
        if method.actor and method.rule:
            settings = self._settings["rule"]
            own = {"state": state.memory, "process_group": None, **settings}  # SB3 trains in one process
            report = backward(native, auxiliary, parameters, rule=method.rule, **own)
            state.remember(report.state)
            log.add_report(report)
        else:
            loss = native + auxiliary if method.actor else native
            loss.backward(inputs=parameters)
        self.actor.optimizer.step()

    # --- saving ---------------------------------------------------------------------------------------------------

    def save(self, *arguments: Any, **keywords: Any) -> None:
        """SB3's; which environment it was goes with it in plain text, for those who read the zip without unpickling."""
        self.env_spec, self.norm_obs = to_json(env_spec(self)), norm_obs(self)
        super().save(*arguments, **keywords)  # type: ignore[misc]

    def _excluded_save_params(self) -> list[str]:
        excluded: list[str] = super()._excluded_save_params()  # type: ignore[misc]
        return [*excluded, "_method", "_settings", "_generator", "_action_scale", "method_state"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, tensors = super()._get_torch_save_params()  # type: ignore[misc]
        return ([*names, "method_state"] if self.method_state.state_dict() else names), tensors
