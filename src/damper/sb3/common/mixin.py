"""The mixin of all ``damper.sb3`` classes: method, settings as attributes, saving, loading."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import safe_mean
from torch import Tensor, nn

from damper import metrics
from damper.engine.envs.env_spec_json import to_json
from damper.engine.envs.pool import action_scale
from damper.errors import DamperError
from damper.interface import Batch
from damper.method_args import (
    ETA,
    DefaultEta,
    check_names,
    choose,
    default_eta,
    is_setting,
    noise_generator,
    parse_settings,
    settings_at,
)
from damper.methods import Method, find_method
from damper.rules import Rule
from damper.sb3.common.inputs import check_inputs, check_normalisation, check_policy
from damper.sb3.common.log import ActionTrace
from damper.sb3.common.networks import differs_in_eval_mode
from damper.sb3.common.state import MethodState, exchange_state, is_same_state
from damper.sb3.convert import env_spec, norm_obs, sees_normalised
from damper.schedules import Schedule, as_schedule, check_number

_FIXED = ("method", "rule", "auxiliary")  # cannot be assigned: the model was built for them
# Attributes that zips do not hold: ``_setup_model`` makes them anew.
_UNSAVED = ("_method", "_settings", "_parsed_settings", "_generator", "_action_scale", "_trace")


def init_arguments(local: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an ``__init__`` by name, from its ``locals()``; settings as one dictionary."""
    return {name: value for name, value in local.items() if name not in ("self", "__class__")}


class SmoothMixin:
    """Mixin before an SB3 class, which defines what acts and how a gradient step is done.

    A setting of the method is also an attribute: ``model.eta = 0.5`` works from the next update on.
    """

    # Attributes that are not defined here are those of SB3's classes.
    method: str | Method
    policy: Any
    learning_rate: Any
    _default_eta: float = ETA
    _on_policy = False
    _warned_of_collapse = False
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
        """Settings, misspelt arguments among them, are checked before anything is built."""
        self.method = choose(method, rule, auxiliary, critic)
        given = settings if isinstance(eta, DefaultEta) else {**settings, "eta": eta}
        check_names(find_method(self.method), given, inspect.signature(super().__init__).parameters)
        self.__dict__["given_settings"] = given
        super().__init__(policy, env, **arguments)  # type: ignore[call-arg]

    def _setup_model(self) -> None:
        """SB3's set-up, then the method's; ``load`` comes through here too."""
        check_policy(self)
        given = self._pop_given_settings()
        self._method = default_eta(self.method, self._default_eta)
        self._apply_settings(given)
        self._check_method()
        if isinstance(self.learning_rate, str):
            schedule = as_schedule("learning_rate", self.learning_rate)
            check_number("learning_rate", schedule, "linear:0.001:0")
            self.learning_rate = schedule.function  # SB3 would take a loaded text for a number
        super()._setup_model()  # type: ignore[misc]
        check_inputs(self._method, self._settings, self)
        self._check_buffer()
        self._has_modes = differs_in_eval_mode(self._actor)  # saved in zips under this name
        self._generator = noise_generator(self.device, self.seed)
        rule_settings = self._settings["rule"]
        self.method_state = MethodState(
            self._method, self.policy, self._actor_parameters(), rule_settings, self._generator
        )

    # --- what differs between the classes --------------------------------------------------------

    @property
    def _actor(self) -> nn.Module:
        """The module whose forward pass gives the action: the actor, or PPO's policy."""
        raise NotImplementedError

    def _actor_parameters(self) -> list[nn.Parameter]:
        """The parameters whose gradients the rule combines; its memory has frozen ones too."""
        return list(self._actor.parameters())

    def _check_method(self) -> None:
        """Raise for a method that this class cannot train with, before anything is built."""

    def _check_buffer(self) -> None:
        """Raise for a custom buffer without rows, if the method needs a sample's neighbours."""

    def _set_action_scale(self) -> None:
        """For classes whose policy acts in [-1, 1]."""
        scale = action_scale(self.action_space.low, self.action_space.high)
        self._action_scale = torch.as_tensor(scale, device=self.device).reshape(-1)

    def _draw_noise(self, batch: Batch) -> dict[str, Tensor]:
        noise = self._method.noise
        return {name: kind.draw(batch, self._generator) for name, kind in noise.items()}

    # --- settings --------------------------------------------------------------------------------

    def _pop_given_settings(self) -> dict[str, Any]:
        """Settings of the zip, and those that SB3's ``load(path, eta=0.5)`` made attributes."""
        attributes = self.__dict__
        parts = ("rule", "auxiliary", "critic")
        given_parts = {name: attributes.pop(name) for name in parts if name in attributes}
        self.method = choose(self.method, **given_parts)
        given = attributes.pop("given_settings")
        names = find_method(self.method).settings()
        new = {name: attributes.pop(name) for name in names if name in attributes}
        return {**{name: value for name, value in given.items() if name in names}, **new}

    def _apply_settings(self, given: Mapping[str, Any]) -> None:
        """Check the given settings and apply them from the next update on."""
        # Plain numbers: SB3 pickles NumPy's and torch's, and a zip's settings must be readable
        # without unpickling. No defaults: another method's would otherwise outlive ``load``.
        plain = {
            name: value.item() if getattr(value, "ndim", None) == 0 else value
            for name, value in given.items()
        }
        parsed = parse_settings(self._method, plain)
        settings = settings_at(self._method, parsed, 1.0)
        if "policy" in self.__dict__:  # or else once it is built
            check_inputs(self._method, settings, self)
        self.given_settings, self._parsed_settings, self._settings = plain, parsed, settings
        self.__dict__["method_settings"] = self._method.settings(parsed)

    def _update_learning_rate(self, optimizers: Any) -> None:
        """SB3's, at the start of every ``train``; also updates settings that follow a schedule."""
        super()._update_learning_rate(optimizers)  # type: ignore[misc]
        remaining, parsed = self._current_progress_remaining, self._parsed_settings
        schedules = [name for name, value in parsed.items() if isinstance(value, Schedule)]
        if schedules:
            self._settings = settings_at(self._method, parsed, remaining)
        for name in schedules:
            self.logger.record(f"train/{name}", parsed[name](remaining))

    @property
    def method_settings(self) -> Mapping[str, Any]:
        """All settings of the method, read-only; to change one, assign ``model.<name>``."""
        return MappingProxyType(self.__dict__["method_settings"])

    def __getattr__(self, name: str) -> Any:
        """A setting of the method, where SB3 has no attribute of that name."""
        if name in (settings := self.__dict__.get("method_settings", {})):
            return settings[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign an attribute; a setting takes effect at the next update, the method is fixed."""
        built = "_method" in self.__dict__
        if built and name in _FIXED:
            raise DamperError(
                f"{name} must be given when the model is made or loaded, as in "
                f"{type(self).__name__}.load(path, {name}=...): save it first."
            )
        if built and name not in self.__dict__ and is_setting(name, self._method):
            check_names(self._method, {name: value})
            self._apply_settings({**self.given_settings, name: value})
            return
        if built and not hasattr(self, name):
            self._check_spelling(name)
        super().__setattr__(name, value)

    def _check_spelling(self, name: str) -> None:
        """Raise for a new attribute that reads like a setting: it would change nothing."""
        settings = {setting.lower(): setting for setting in self._method.settings()}
        # Names with another first letter ("meta", where "eta" is a setting) are the user's own.
        alike = [setting for setting in settings if setting[0] == name[:1].lower()]
        if close := difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.8):
            raise DamperError(
                f"{name} is not a setting of method {self._method.name!r}: did you mean "
                f"{settings[close[0]]!r}?"
            )

    # --- learning --------------------------------------------------------------------------------

    def _setup_learn(self, *arguments: Any, **keywords: Any) -> Any:
        """SB3's; also records whether VecNormalize normalises observations, for later users."""
        check_normalisation(self)
        self.norm_obs = sees_normalised(self)
        self._trace = ActionTrace(self.action_space, self._unscale)
        return super()._setup_learn(*arguments, **keywords)  # type: ignore[misc]

    def _unscale(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The policy's actions in the environment's units."""
        return self.policy.unscale_action(actions)

    def _update_info_buffer(
        self, infos: Sequence[dict[str, Any]], dones: NDArray[np.bool_] | None = None
    ) -> None:
        """SB3's, after every step; also scores the smoothness of the episodes that ended."""
        ended = dones is not None and self._trace.end_step(dones, infos)
        super()._update_info_buffer(infos, dones)  # type: ignore[misc]
        # Before, the first weights may still decide: PPO's give all observations nearly one action.
        if ended and not self._warned_of_collapse and self._current_progress_remaining < 0.9:
            eta = self._settings["rule"].get("eta", 0.0)
            scores = self._scores("mean_change"), self._scores("l")
            if sentence := metrics.collapse_warning(*scores, eta, self._on_policy):
                self._warned_of_collapse = True
                warnings.warn(sentence, stacklevel=2)

    def _scores(self, name: str) -> list[float]:
        """A score of the last episodes (``stats_window_size``) whose actions were all known."""
        return [episode[name] for episode in self.ep_info_buffer if "sm" in episode]

    def dump_logs(self, *arguments: Any) -> None:
        """SB3's, with ``rollout/mean_change`` and ``rollout/sm`` beside the mean return."""
        for name in ("mean_change", "sm"):
            if scores := self._scores(name):
                self.logger.record(f"rollout/{name}", safe_mean(scores))
        super().dump_logs(*arguments)  # type: ignore[misc]

    # --- saving ----------------------------------------------------------------------------------

    def save(self, *arguments: Any, **keywords: Any) -> None:
        """SB3's; also saves the environment's spec in plain text, to be read without unpickling."""
        self.env_spec, self.norm_obs = to_json(env_spec(self)), norm_obs(self)
        super().save(*arguments, **keywords)  # type: ignore[misc]

    @classmethod
    def load(cls, *arguments: Any, **keywords: Any) -> Any:
        """SB3's; raises for other methods' settings and misspelt names among the keywords."""
        model = super().load(*arguments, **keywords, _loading=True)  # type: ignore[misc]
        of_init = inspect.signature(cls.__init__).parameters
        names = [*of_init, *inspect.signature(BaseAlgorithm.load).parameters]
        wrong = {}
        for name, value in keywords.items():
            misspelt = name not in names and difflib.get_close_matches(name, names, cutoff=0.8)
            if misspelt or is_setting(name, model._method):
                wrong[name] = value
        check_names(model._method, wrong, names)
        check_normalisation(model)
        return model

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto"
    ) -> None:
        """SB3's; ``load`` with another method drops the saved state for a fresh one."""
        params, current = load_path_or_dict, self.get_parameters()
        if other := self.__dict__.pop("_loading", False) and not is_same_state(params, current):
            params = exchange_state(params, current)
        super().set_parameters(params, exact_match, device)  # type: ignore[misc]
        if other:
            self.method_state.update_average(self._actor, rate=1.0)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), *_UNSAVED, "method_state"]  # type: ignore[misc]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, tensors = super()._get_torch_save_params()  # type: ignore[misc]
        return ([*names, "method_state"] if self.method_state.state_dict() else names), tensors
