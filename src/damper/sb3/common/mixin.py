"""The mixin of all ``damper.sb3`` classes: a method by name, its settings as attributes, saving and loading."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor, nn

from damper.engine.envs.env_spec_json import to_json
from damper.engine.settings import is_number
from damper.errors import DamperError
from damper.method_args import (
    check_names,
    check_rule,
    choose,
    default_eta,
    is_setting,
    noise_generator,
)
from damper.methods import Method, find_method
from damper.rules import Rule
from damper.sb3.common.inputs import check_inputs
from damper.sb3.common.networks import differs_in_eval_mode
from damper.sb3.common.state import MethodState, exchange_state, is_same_state
from damper.sb3.convert import env_spec, norm_obs, sees_normalised
from damper.schedules import POINTS, Schedule, as_schedule, check_number, value_at

_FIXED = ("method", "rule", "auxiliary")  # cannot be assigned: the model was built for them


class DefaultEta(float):
    """A class's default of η; unlike the same number given by the user, it leaves a rule its own."""


ETA = DefaultEta(1.0)


def init_arguments(local: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an ``__init__`` by name, from its ``locals()``; ``**settings`` as one dictionary."""
    return {name: value for name, value in local.items() if name not in ("self", "__class__")}


class SmoothMixin:
    """Mixin before an SB3 class; the class itself defines which modules act, and how a gradient step is done.

    Args:
        policy: as in SB3.
        env: likewise.
        method: a name in ``damper.METHODS``, a composed one ("damper+grad-caps+pave"), or a
            ``Method``.
        eta: DAMPER's η in [0, 1], for methods that have it; the class's default leaves a ``Method``
            or a custom rule its own. Like SB3's ``learning_rate`` it may be a function of ``progress_remaining``; so
            may the method's other numbers.
        rule: another rule for the method's auxiliary gradient: a name in ``damper.rules.RULES``, or
            a callable.
        auxiliary: another actor loss: "temporal", or a method's ("caps", "grad-caps", ...).
        settings: the method's own settings (``lambda_T``, ...), and misspelt arguments.
        critic: an additional loss on the critic: "pave" or "l2c2".
        **arguments: SB3's other arguments.

    A setting of the method is also an attribute: ``model.eta = 0.5`` takes effect at the next
        update.
    """

    method: str | Method
    _default_eta: float = ETA
    # Attributes of SB3's classes that are used here.
    device: torch.device
    seed: int | None
    action_space: Any
    policy: Any
    logger: Any
    learning_rate: Any
    _current_progress_remaining: float
    _action_scale: Any = 1.0  # half the environment's range over the policy's, where they differ

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        method: str | Method,
        eta: float | str | Callable[[float], float],
        rule: str | Rule | None,
        auxiliary: str | None,
        settings: dict[str, Any],
        critic: str | None = None,
        **arguments: Any,
    ) -> None:
        """Settings are checked before anything is built."""
        self.method = choose(method, rule, auxiliary, critic)
        given = settings if isinstance(eta, DefaultEta) else {**settings, "eta": eta}
        check_names(find_method(self.method), given, inspect.signature(super().__init__).parameters)
        self.__dict__["method_settings"] = given
        super().__init__(policy, env, **arguments)  # type: ignore[call-arg]

    def _setup_model(self) -> None:
        """SB3's set-up, then the method's; ``load`` comes through here too."""
        given = self._pop_given_settings()
        self._method = default_eta(self.method, self._default_eta)
        self._apply_settings(given)
        self._check_method()
        if isinstance(self.learning_rate, str):
            schedule = as_schedule("learning_rate", self.learning_rate)
            check_number("learning_rate", schedule, "linear:0.001:0")
            self.learning_rate = (
                schedule.function
            )  # when SB3 loads a text, it takes it for a number
        super()._setup_model()  # type: ignore[misc]
        check_inputs(self._method, self._settings, self)
        self._check_buffer()
        self._has_modes = differs_in_eval_mode(self._actor)  # saved in zips under this name
        self._generator = noise_generator(self.device, self.seed)
        rule_settings = self._settings["rule"]
        self.method_state = MethodState(
            self._method, self.policy, self._actor_parameters(), rule_settings, self._generator
        )

    # --- what differs between the classes -------------------------------------------------------------------------

    @property
    def _actor(self) -> nn.Module:
        """The module whose forward pass gives the action: the actor, or PPO's policy."""
        raise NotImplementedError

    def _actor_parameters(self) -> list[nn.Parameter]:
        """The parameters whose two gradients the rule combines."""
        return [parameter for parameter in self._actor.parameters() if parameter.requires_grad]

    def _check_method(self) -> None:
        """Raise for a method that this class cannot train with, before anything is built."""

    def _check_buffer(self) -> None:
        """Raise for a custom buffer that does not record its samples' rows, if the method needs their neighbours."""

    # --- settings -------------------------------------------------------------------------------------------------

    def _pop_given_settings(self) -> dict[str, Any]:
        """The settings given: those of the zip, and those that SB3's ``load(path, eta=0.5)`` made attributes."""
        parts = {
            name: self.__dict__.pop(name)
            for name in ("rule", "auxiliary", "critic")
            if name in self.__dict__
        }
        self.method = choose(self.method, **parts)
        known = find_method(self.method).settings()
        given = {name: self.__dict__.pop(name) for name in known if name in self.__dict__}
        # Zips of earlier versions have the given settings under ``method_settings``.
        before = self.__dict__.pop("given_settings", self.method_settings)
        return {name: value for name, value in before.items() if name in known} | given

    def _apply_settings(self, given: Mapping[str, Any]) -> None:
        """Check the given settings and apply them from the next update on."""
        # Plain numbers: SB3 pickles NumPy's and torch's, and a zip's settings must be readable
        # without unpickling.
        plain = {
            name: value.item()
            if isinstance(value, np.generic | Tensor) and value.ndim == 0
            else value
            for name, value in given.items()
        }
        parsed = {name: as_schedule(name, value) for name, value in plain.items()}
        defaults = self._method.settings()
        for name in parsed:
            if is_number(defaults[name]):
                check_number(name, parsed[name])
        scheduled = any(isinstance(value, Schedule) for value in parsed.values())
        for point in POINTS[::-10] if scheduled else POINTS[:1]:
            settings = self._settings_by_part(parsed, point)
            check_rule(self._method, settings["rule"])
        self._settings, self._parsed_settings = settings, parsed
        # Without defaults, so that a model loaded with another method gets the defaults of that
        # method.
        self.given_settings = plain
        self.__dict__["method_settings"] = self._method.settings(parsed)

    def _settings_by_part(
        self, settings: Mapping[str, Any], progress_remaining: float = 1.0
    ) -> dict[str, dict[str, Any]]:
        """Settings of the method by its parts ("actor", "critic", "rule"), a schedule by its value at that progress."""
        now = {
            name: value_at(as_schedule(name, value), progress_remaining)
            for name, value in settings.items()
        }
        return self._method.route(now)

    def _update_learning_rate(self, optimizers: Any) -> None:
        """SB3's, at the start of every ``train``; also updates settings of the method that follow a schedule."""
        super()._update_learning_rate(optimizers)  # type: ignore[misc]
        schedules = {
            name: value
            for name, value in self._parsed_settings.items()
            if isinstance(value, Schedule)
        }
        if schedules:
            self._settings = self._settings_by_part(
                self._parsed_settings, self._current_progress_remaining
            )
        for name, schedule in schedules.items():
            self.logger.record(f"train/{name}", schedule(self._current_progress_remaining))

    @property
    def method_settings(self) -> Mapping[str, Any]:
        """All settings of the method, defaults included (read-only); to change one, assign ``model.<name>``."""
        return MappingProxyType(self.__dict__["method_settings"])

    def __getattr__(self, name: str) -> Any:
        """A setting of the method, where SB3 has no attribute of that name."""
        if name in (settings := self.__dict__.get("method_settings", {})):
            return settings[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign an attribute; a setting of the method takes effect at the next update, the method itself is fixed."""
        own = self.__dict__
        if "_method" in own and name in _FIXED:
            load = f"{type(self).__name__}.load(path, {name}=...)"
            raise DamperError(
                f"{name} must be given when the model is made or loaded, as in {load}: save it "
                "first."
            )
        if "_method" in own and name not in own and is_setting(name, self._method):
            check_names(self._method, {name: value})
            given = {**self.given_settings, name: value}
            check_inputs(self._method, self._settings_by_part(given), self)
            self._apply_settings(given)
        else:
            super().__setattr__(name, value)

    def _setup_learn(self, *arguments: Any, **keywords: Any) -> Any:
        """SB3's; also records whether observations come from VecNormalize, which later users of the policy need."""
        self.norm_obs = sees_normalised(self)
        return super()._setup_learn(*arguments, **keywords)  # type: ignore[misc]

    # --- saving ---------------------------------------------------------------------------------------------------

    def save(self, *arguments: Any, **keywords: Any) -> None:
        """SB3's; also saves the environment's spec in plain text, to be read without unpickling."""
        self.env_spec, self.norm_obs = to_json(env_spec(self)), norm_obs(self)
        super().save(*arguments, **keywords)  # type: ignore[misc]

    @classmethod
    def load(cls, *arguments: Any, **keywords: Any) -> Any:
        """SB3's, which makes every keyword an attribute; raises for other methods' settings and misspelt names."""
        model = super().load(*arguments, **keywords, _loading=True)  # type: ignore[misc]
        names = [
            name
            for function in (cls.__init__, BaseAlgorithm.load)
            for name in inspect.signature(function).parameters
        ]
        close = [
            name
            for name in keywords
            if name not in names and difflib.get_close_matches(name, names, cutoff=0.8)
        ]
        given = [name for name in keywords if is_setting(name, model._method)]
        check_names(model._method, {name: keywords[name] for name in (*given, *close)}, names)
        return model

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto"
    ) -> None:
        """SB3's; ``load`` with another method drops the saved method's state, and this method's starts afresh."""
        params, own = load_path_or_dict, self.get_parameters()
        if other := self.__dict__.pop("_loading", False) and not is_same_state(params, own):
            params = exchange_state(params, own)
        super().set_parameters(params, exact_match, device)  # type: ignore[misc]
        if other:
            self.method_state.update_average(self._actor, rate=1.0)

    def _excluded_save_params(self) -> list[str]:
        excluded: list[str] = super()._excluded_save_params()  # type: ignore[misc]
        return [
            *excluded,
            "_method",
            "_settings",
            "_parsed_settings",
            "_generator",
            "_action_scale",
            "method_state",
        ]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, tensors = super()._get_torch_save_params()  # type: ignore[misc]
        return ([*names, "method_state"] if self.method_state.state_dict() else names), tensors
