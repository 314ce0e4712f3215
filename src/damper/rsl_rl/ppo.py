"""rsl_rl's PPO with one more setting."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from rsl_rl import algorithms
from tensordict import TensorDict
from torch import Tensor, distributed, nn

from damper._backward import backward_auxiliary
from damper.errors import DamperError
from damper.interface import Batch
from damper.losses.temporal_ramp import temporal_ramp
from damper.method_args import (
    check_names,
    check_no_critic_loss,
    check_rule,
    choose,
    default_eta,
    noise_generator,
)
from damper.methods import Method
from damper.rsl_rl.storage import Pairs, indexed
from damper.rules import (
    GradientReport,
    Rule,
    has_memory,
    initial_state,
    rebuild_state,
    state_tensors,
)

ETA = 0.0  # at 1, which is right for TD3 and SAC, PPO may learn nothing: docs/ppo.md


class PPO(algorithms.PPO):  # type: ignore[misc]
    """``rsl_rl.algorithms.PPO`` whose mean action becomes smooth; with ``method="plain"`` it is rsl_rl's, bit for bit.

    rsl_rl's whole loss is the primary one. The auxiliary one looks at the mean action at
    consecutive observations of an environment. They are combined on the actor's parameters; then
    rsl_rl clips and steps.

    Args:
        actor: as in rsl_rl, and so are all arguments not named here.
        critic: likewise.
        storage: likewise.
        method: a name in ``damper.METHODS``, or a ``Method``; with a loss on the actor alone.
        eta: DAMPER's η in [0, 1]: 0 is the least, 1 the most smoothing, at which PPO may learn
            nothing.
        rule: another rule for the auxiliary gradient: a name in ``damper.rules.RULES``, or a
            callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "l2c2".
        **arguments: the rest of rsl_rl's, and the method's own settings.

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
        eta: float = ETA,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        **arguments: Any,
    ) -> None:
        """Settings are checked before anything is built."""
        theirs = inspect.signature(algorithms.PPO.__init__).parameters
        given = {name: arguments.pop(name) for name in list(arguments) if name not in theirs}
        given = given if eta == ETA else {**given, "eta": eta}
        self.method = default_eta(choose(method, rule, auxiliary), ETA)
        check_names(self.method, given, theirs, "rsl_rl's PPO")
        self._settings = self.method.route(given)
        check_rule(self.method, self._settings["rule"])
        self.method_settings = self.method.settings(given)
        _check(self.method, actor, storage)
        super().__init__(actor, critic, storage, *positional, **arguments)
        self._rule_state: Any = None
        self._generator = noise_generator(self.device)

    def update(self) -> dict[str, float]:
        """rsl_rl's update; before each optimizer step the auxiliary gradient is combined with that of rsl_rl's loss."""
        frozen = not any(parameter.requires_grad for parameter in self.actor.parameters())
        if not self.method.actor or frozen:
            return super().update()
        most: float = self.max_grad_norm
        seen = _Means()
        with indexed(self.storage) as pairs:

            def combine_and_clip(*_: Any) -> None:
                self._add_auxiliary(pairs, seen)
                nn.utils.clip_grad_norm_(self.actor.parameters(), most)
                nn.utils.clip_grad_norm_(self.critic.parameters(), most)

            # rsl_rl clips before the step's hook runs: an infinite bound turns that off, and the
            # hook clips instead.
            self.max_grad_norm = math.inf
            hook = self.optimizer.register_step_pre_hook(combine_and_clip)
            try:
                losses = super().update()
            finally:
                hook.remove()
                self.max_grad_norm = most
        return {**losses, **seen.read()}

    def _add_auxiliary(self, pairs: Pairs, seen: _Means) -> None:
        """Combine the auxiliary gradient with ``.grad``; a minibatch without a pair leaves it as it is."""
        method, rows = self.method, pairs.kept(self.method.previous_obs)
        assert method.actor is not None
        alone = len(rows) == 0
        if alone and not self.is_multi_gpu:
            return
        # Other processes may have pairs and wait for this one: pair an observation with itself, for
        # a zero gradient.
        rows = pairs.rows[:1] if alone else rows
        obs, after = pairs.obs(rows), pairs.obs(rows) if alone else pairs.after(rows)
        before = (obs if alone else pairs.before(rows)) if method.previous_obs else None
        policy, flat = (
            _Actor(self.actor),
            any(noise.like == "obs" for noise in method.noise.values()),
        )
        if flat:
            obs, after, before = (policy.vector(one) for one in (obs, after, before))
        reward = self.storage.rewards.flatten()[rows]
        action = self.storage.actions.flatten(0, 1)[rows]
        batch = Batch(obs, action, reward, after, torch.zeros_like(reward), before)
        noise = {name: kind.draw(batch, self._generator) for name, kind in method.noise.items()}
        auxiliary = method.actor(policy, batch, noise, **self._settings["actor"])
        # Without a rule the loss is added, which is scalarization with weight 1.
        rule, settings = (
            (method.rule, self._settings["rule"])
            if method.rule
            else ("scalarization", {"weight": 1.0})
        )
        group = distributed.group.WORLD if self.is_multi_gpu else None
        own, shared = self._actor_parameters()
        report = backward_auxiliary(
            auxiliary, own, rule, self._rule_state, shared=shared, process_group=group, **settings
        )
        self._rule_state = report.state
        seen.add(auxiliary, report)

    def _actor_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The parameters of the actor alone, and those that it shares with the critic."""
        valued, acting = set(self.critic.parameters()), list(self.actor.parameters())
        return [p for p in acting if p not in valued], [p for p in acting if p in valued]

    def save(self) -> dict[str, Any]:
        """rsl_rl's checkpoint, with the method, its settings and its rule's memory."""
        facts = {"method": self.method.name, "settings": self.method_settings}
        return {
            **super().save(),
            "damper": {**facts, "memory": list(state_tensors(self._rule_state))},
        }

    def load(
        self, loaded_dict: dict[str, Any], load_cfg: dict[str, Any] | None, strict: bool
    ) -> bool:
        """Load a checkpoint, also one of rsl_rl's own PPO."""
        found: bool = super().load(loaded_dict, load_cfg, strict)
        saved, rule = loaded_dict.get("damper", {}), self.method.rule
        if (
            saved.get("memory")
            and saved["method"] == self.method.name
            and rule
            and has_memory(rule)
        ):
            tensors = [tensor.to(self.device) for tensor in saved["memory"]]
            zeros = torch.zeros(
                sum(p.numel() for p in self._actor_parameters()[0]), device=self.device
            )
            kind = type(initial_state(rule, zeros, **self._settings["rule"]))
            self._rule_state = rebuild_state(kind, tensors)
        return found


def _check(method: Method, actor: Any, storage: Any) -> None:
    """Raise for a method that rsl_rl's PPO cannot train with."""
    if not method.losses:
        return
    if actor.is_recurrent:
        raise DamperError(
            f"method {method.name!r} compares two observations, but a recurrent actor's action "
            "depends on a memory "
            "that they do not contain: use an MLPModel as the actor, or method='plain'."
        )
    check_no_critic_loss(method, "critics Q(s, a), while PPO's critic is V(s)")
    if method.prediction or method.actor is temporal_ramp:
        lacks = (
            "a second head on the actor"
            if method.prediction
            else "the number of steps of the whole run"
        )
        raise DamperError(
            f"method {method.name!r} needs {lacks}, which rsl_rl's PPO does not have: choose "
            "another."
        )
    if any(noise.like == "obs" for noise in method.noise.values()):
        for group in actor.obs_groups:
            if storage.observations[group].ndim != 3:
                raise DamperError(
                    f"method {method.name!r} perturbs observations, so they must be vectors, but "
                    f"group {group!r} is "
                    "not: choose a method that does not perturb them, such as 'damper'."
                )
    if storage.num_transitions_per_env < 2:
        raise DamperError(
            f"num_steps_per_env must be at least 2 for method {method.name!r}, which compares "
            "consecutive observations "
            f"of a rollout, but is {storage.num_transitions_per_env}."
        )


class _Actor:
    """rsl_rl's actor as the losses see it: mean actions in its own units, for groups or one concatenated vector."""

    stochastic = False  # losses compare mean actions, so that the distribution that rsl_rl logs stays as it is

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __call__(self, obs: Any) -> Tensor:
        if isinstance(obs, Tensor):
            obs = TensorDict(
                dict(zip(self.actor.obs_groups, obs.split(self._sizes, -1), strict=True)), len(obs)
            )
        return self.actor(obs)

    def vector(self, obs: Any) -> Any:
        """The actor's observation groups concatenated to one vector."""
        if obs is None:
            return None
        parts = [obs[group] for group in self.actor.obs_groups]
        self._sizes = [part.shape[-1] for part in parts]
        return torch.cat(parts, -1)


class _Means:
    """Means over an update, read from the device once."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []
        self.names: list[str] = []

    def add(self, loss: Tensor, report: GradientReport) -> None:
        logs = {"auxiliary": loss, **report.logged()}
        self.names = list(logs)
        self.rows.append(
            torch.stack([value.detach().reshape(()).to(loss.dtype) for value in logs.values()])
        )

    def read(self) -> dict[str, float]:
        return (
            dict(zip(self.names, torch.stack(self.rows).mean(0).tolist(), strict=True))
            if self.rows
            else {}
        )
