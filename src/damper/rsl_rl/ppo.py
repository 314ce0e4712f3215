"""rsl_rl's PPO with one more setting."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from rsl_rl.algorithms import PPO as RslRlPPO  # noqa: N811 (an acronym, not a constant)
from tensordict import TensorDict
from torch import Tensor, distributed, nn

from damper._backward import backward_auxiliary
from damper.errors import DamperError
from damper.interface import Batch
from damper.losses.temporal_ramp import temporal_ramp
from damper.method_args import (
    PPO_ETA,
    DefaultEta,
    check_names,
    check_no_critic_loss,
    choose,
    default_eta,
    noise_generator,
    parse_settings,
    settings_at,
)
from damper.methods import Method
from damper.rsl_rl.storage import Pairs, RslRlPolicy, indexed
from damper.rules import (
    Rule,
    has_memory,
    initial_state,
    rebuild_state,
    state_tensors,
)
from damper.schedules import Schedule


class PPO(RslRlPPO):  # type: ignore[misc]
    """``rsl_rl.algorithms.PPO`` whose mean action becomes smooth; "plain" is rsl_rl's, bit for bit.

    rsl_rl's whole loss is the primary one. The auxiliary one looks at the mean action at
    consecutive observations of an environment. They are combined on the actor's parameters; then
    rsl_rl clips and steps.

    Args:
        actor: as in rsl_rl, and so are all arguments not named here.
        critic: likewise.
        storage: likewise.
        method: a name in ``damper.METHODS``, or a ``Method``; with a loss on the actor alone.
        eta: DAMPER's η in [0, 1]; at 1, the most smoothing, PPO may learn nothing. It, and the
            method's other numbers, may be a schedule over the iterations: "linear:0:0.5".
        rule: another rule for the auxiliary gradient: in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "l2c2".
        iterations: the number of iterations over which schedules run; by default
            ``max_iterations`` of the runner's configuration.
        **arguments: the rest of rsl_rl's, and the method's own settings.

    Attributes:
        trained_with: what the actor's weights were trained with, one entry per stretch of
            training: ``method``, ``settings`` and ``iterations``. Checkpoints hold it.

    Example:
        In the runner's configuration:

        >>> algorithm = {"class_name": "damper.rsl_rl:PPO", "eta": 0.0}
    """

    max_grad_norm: float

    def __init__(
        self,
        actor: Any,
        critic: Any,
        storage: Any,
        *positional: Any,
        method: str | Method = "damper",
        eta: float | str | Callable[[float], float] = PPO_ETA,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        iterations: int | None = None,
        **arguments: Any,
    ) -> None:
        """Settings are checked before anything is built."""
        names = inspect.signature(RslRlPPO.__init__).parameters
        given = {name: arguments.pop(name) for name in list(arguments) if name not in names}
        if not isinstance(eta, DefaultEta):
            given["eta"] = eta
        self.method = default_eta(choose(method, rule, auxiliary), PPO_ETA)
        check_names(self.method, given, names, "rsl_rl's PPO")
        self._parsed_settings = parse_settings(self.method, given)
        self._iterations = iterations
        self._scheduled = {
            k: v for k, v in self._parsed_settings.items() if isinstance(v, Schedule)
        }
        _check(self.method, actor, storage)
        self._check_iterations()
        settings = self.method.settings(self._parsed_settings)
        self.method_settings = {name: _plain(value) for name, value in settings.items()}
        super().__init__(actor, critic, storage, *positional, **arguments)
        self._iterations_done = 0
        self.trained_with: list[dict[str, Any]] = []
        self._rule_state: Any = None
        self._generator = noise_generator(self.device)

    @staticmethod
    def construct_algorithm(obs: TensorDict, env: Any, cfg: dict[str, Any], device: str) -> Any:
        """rsl_rl's; schedules run over the configuration's ``max_iterations`` unless told."""
        settings = {"iterations": cfg.get("max_iterations"), **cfg["algorithm"]}
        extended = {**cfg, "algorithm": settings}
        algorithm = RslRlPPO.construct_algorithm(obs, env, extended, device)
        cfg["obs_groups"] = extended["obs_groups"]  # rsl_rl fills in missing groups here
        return algorithm

    def update(self) -> dict[str, float]:
        """rsl_rl's; before each optimizer step the auxiliary gradient is combined with its own."""
        done = self._iterations_done / self._iterations if self._iterations else 0.0
        progress_remaining = max(0.0, 1.0 - done)
        self._settings = settings_at(self.method, self._parsed_settings, progress_remaining)
        scheduled = {name: value(progress_remaining) for name, value in self._scheduled.items()}
        self._count_iteration()
        frozen = not any(parameter.requires_grad for parameter in self.actor.parameters())
        if not self.method.actor or frozen:
            return {**super().update(), **scheduled}
        max_grad_norm: float = self.max_grad_norm
        logs: list[dict[str, Tensor]] = []
        with indexed(self.storage) as pairs:

            def combine_and_clip(*_: Any) -> None:
                self._add_auxiliary(pairs, logs, 1.0 - progress_remaining)
                nn.utils.clip_grad_norm_(self.actor.parameters(), max_grad_norm)
                nn.utils.clip_grad_norm_(self.critic.parameters(), max_grad_norm)

            # rsl_rl clips before the hook runs: with no bound for it, the hook clips instead.
            self.max_grad_norm = math.inf
            hook = self.optimizer.register_step_pre_hook(combine_and_clip)
            try:
                losses = super().update()
            finally:
                hook.remove()
                self.max_grad_norm = max_grad_norm
        return {**losses, **_means(logs), **scheduled}

    def _count_iteration(self) -> None:
        now = {"method": self.method.name, "settings": self.method_settings}
        if not self.trained_with or not now.items() <= self.trained_with[-1].items():
            self.trained_with.append({**now, "iterations": 0})
        self.trained_with[-1]["iterations"] += 1
        self._iterations_done += 1

    def _add_auxiliary(self, pairs: Pairs, logs: list[dict[str, Tensor]], progress: float) -> None:
        """Combine the auxiliary gradient with ``.grad``; without a pair it stays as it is."""
        method, steps = self.method, pairs.steps(self.method.previous_obs)
        assert method.actor is not None
        if len(steps[0]) == 0:
            if not self.is_multi_gpu:
                return
            # Other processes may have pairs and wait for this one: pair an observation with
            # itself, for a zero gradient.
            steps = [pairs.rows[:1]] * len(steps)
        policy = RslRlPolicy(self.actor)
        perturbed = any(noise.like == "obs" for noise in method.noise.values())
        obs, after, *before = policy.see(pairs, steps, as_vectors=perturbed)
        rows, reward = steps[0], self.storage.rewards.flatten()[steps[0]]
        batch = Batch(
            obs,
            self.storage.actions.flatten(0, 1)[rows],
            reward,
            after,
            torch.zeros_like(reward),
            previous_obs=before[0] if before else None,
            progress=progress,
        )
        noise = {name: kind.draw(batch, self._generator) for name, kind in method.noise.items()}
        auxiliary = method.actor(policy, batch, noise, **self._settings["actor"])
        # Without a rule the loss is added, which is scalarization with weight 1.
        rule: str | Rule = method.rule or "scalarization"
        settings = self._settings["rule"] if method.rule else {"weight": 1.0}
        separate, shared = self._actor_parameters()
        report = backward_auxiliary(
            auxiliary,
            separate,
            rule,
            self._rule_state,
            shared=shared,
            process_group=distributed.group.WORLD if self.is_multi_gpu else None,
            **settings,
        )
        self._rule_state = report.state
        logs.append({"auxiliary_loss": auxiliary, **report.logged()})

    def _actor_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The parameters of the actor alone, and those that it shares with the critic."""
        valued, acting = set(self.critic.parameters()), list(self.actor.parameters())
        return [p for p in acting if p not in valued], [p for p in acting if p in valued]

    def save(self) -> dict[str, Any]:
        """rsl_rl's checkpoint, with what trained the weights, and the rule's memory."""
        trained_with = [dict(entry) for entry in self.trained_with]
        memory = list(state_tensors(self._rule_state))
        return {**super().save(), "damper": {"trained_with": trained_with, "memory": memory}}

    def load(
        self, loaded_dict: dict[str, Any], load_cfg: dict[str, Any] | None, strict: bool
    ) -> bool:
        """Load a checkpoint, also rsl_rl's own; warn if another method or setting trained it."""
        restores_iteration: bool = super().load(loaded_dict, load_cfg, strict)
        if load_cfg is not None and not load_cfg.get("actor"):
            return restores_iteration
        plain = {"method": "plain", "settings": {}, "iterations": loaded_dict.get("iter", 0)}
        saved = loaded_dict.get("damper", {"trained_with": [plain]})
        self.trained_with = [dict(entry) for entry in saved["trained_with"]]
        if restores_iteration:
            self._iterations_done = sum(entry["iterations"] for entry in self.trained_with)
        if not self.trained_with:
            return restores_iteration
        last = self.trained_with[-1]
        if (last["method"], last["settings"]) != (self.method.name, self.method_settings):
            warnings.warn(
                f"the checkpoint was trained with {_in_words(last['method'], last['settings'])}; "
                f"training goes on with {_in_words(self.method.name, self.method_settings)}.",
                stacklevel=2,
            )
        if last["method"] == self.method.name:
            self._restore_memory(saved.get("memory"))
        return restores_iteration

    def _restore_memory(self, memory: list[Tensor] | None) -> None:
        rule = self.method.rule
        if not memory or not rule or not has_memory(rule):
            return
        tensors = [tensor.to(self.device) for tensor in memory]
        count = sum(p.numel() for p in self._actor_parameters()[0])
        settings = settings_at(self.method, self._parsed_settings, 1.0)["rule"]
        fresh = initial_state(rule, torch.zeros(count, device=self.device), **settings)
        self._rule_state = rebuild_state(type(fresh), tensors)

    def training_record(self) -> dict[str, Any]:
        """What last trained the weights, and all of ``trained_with`` if that changed on the way."""
        untrained = {"method": self.method.name, "settings": self.method_settings}
        last = self.trained_with[-1] if self.trained_with else untrained
        record = {"method": last["method"], "settings": last["settings"]}
        return record | ({"trained_with": self.trained_with} if len(self.trained_with) > 1 else {})

    def _check_iterations(self) -> None:
        """Raise where progress is needed but the number of iterations is not known."""
        if self._iterations is not None and self._iterations < 1:
            raise DamperError(f"iterations must be at least 1, but {self._iterations} was given.")
        ramps = self.method.actor is temporal_ramp
        if self._iterations is None and (self._scheduled or ramps):
            name = f"method {self.method.name!r}"
            what = name if ramps else f"a schedule of {next(iter(self._scheduled))}"
            raise DamperError(
                f"iterations must be given for {what}, because rsl_rl does not tell its algorithm "
                "how long it trains: add it to the algorithm's configuration, or max_iterations "
                "to the runner's."
            )


def _plain(value: Any) -> Any:
    """A setting as checkpoints hold it, which are read without unpickling: a schedule as text."""
    if isinstance(value, Schedule):
        return str(value)
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _in_words(method: str, settings: dict[str, Any]) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"method {method!r}" + (f" ({values})" if values else "")


def _check(method: Method, actor: Any, storage: Any) -> None:
    """Raise for a method that rsl_rl's PPO cannot train with."""
    if not method.losses:
        return
    check_no_critic_loss(method, "critics Q(s, a), while PPO's critic is V(s)")
    if method.prediction:
        raise DamperError(
            f"method {method.name!r} needs a second head, which rsl_rl's PPO lacks: choose another."
        )
    if any(noise.like == "obs" for noise in method.noise.values()):
        _check_perturbed(method, actor, storage)
    if storage.num_transitions_per_env < 2:
        raise DamperError(
            f"num_steps_per_env must be at least 2 for method {method.name!r}, which compares "
            f"consecutive observations, but is {storage.num_transitions_per_env}."
        )


def _check_perturbed(method: Method, actor: Any, storage: Any) -> None:
    """Raise for an actor whose observations cannot be perturbed."""
    fix = "choose a method that does not perturb them, such as 'damper'."
    if actor.is_recurrent:
        raise DamperError(
            f"method {method.name!r} perturbs single observations, but a recurrent actor's action "
            f"also depends on those before: {fix}"
        )
    # rsl_rl's CNNModel keeps its images in a list of their own.
    for group in [*actor.obs_groups, *getattr(actor, "obs_groups_2d", [])]:
        if storage.observations[group].ndim != 3:
            raise DamperError(
                f"method {method.name!r} perturbs observations, so they must be vectors, but "
                f"group {group!r} is not: {fix}"
            )


def _means(logs: list[dict[str, Tensor]]) -> dict[str, float]:
    """Means over an update by name, read from the device at once."""
    if not logs:
        return {}
    rows = [torch.stack([v.detach().float().reshape(()) for v in log.values()]) for log in logs]
    return dict(zip(logs[0], torch.stack(rows).mean(0).tolist(), strict=True))
