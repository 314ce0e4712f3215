"""sb3-contrib's RecurrentPPO with one more argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from numpy.typing import NDArray
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from torch import Tensor, nn

from damper._backward import after_backward, backward_auxiliary
from damper.engine.envs.pool import action_scale
from damper.errors import DamperError, MissingExtraError
from damper.interface import Batch
from damper.method_args import PPO_ETA
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.common.log import Log
from damper.sb3.common.mixin import SmoothMixin, init_arguments
from damper.sb3.common.networks import actor_parameters, eval_mode
from damper.sb3.ppo import PPO

try:
    import sb3_contrib
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
except ImportError as error:
    raise MissingExtraError(
        'damper.sb3.RecurrentPPO needs sb3-contrib: pip install "damper-rl[sb3-contrib]".'
    ) from error


class RecurrentPPO(SmoothMixin, sb3_contrib.RecurrentPPO):
    """``sb3_contrib.RecurrentPPO`` whose mean action becomes smooth; "plain" is it, bit for bit.

    The auxiliary loss compares the mean actions at consecutive steps of the minibatch's sequences,
    with the LSTM's state carried along. No pair crosses a reset, a sequence's end or padding.

    Args:
        policy: as in sb3-contrib, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, or a ``Method``; with a loss on the actor alone that
            does not perturb observations.
        eta: DAMPER's η in [0, 1]: 0 is the least smoothing; at 1, the most, PPO may learn nothing.
            Or a schedule, as for ``learning_rate``.
        rule: another rule for the auxiliary gradient: a name in ``damper.rules.RULES``, or a
            callable.
        auxiliary: another actor loss than the temporal one: "grad-caps".
        **settings: the method's own settings.

    Example:
        >>> from damper.sb3 import RecurrentPPO
        >>> model = RecurrentPPO("MlpLstmPolicy", "Pendulum-v1", n_steps=32, batch_size=16)
        >>> model = model.learn(32)
    """

    _default_eta = PPO_ETA
    _on_policy = True

    def __init__(
        self,
        policy: str | type[RecurrentActorCriticPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int = 128,
        batch_size: int | None = 128,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        method: str | Method = "damper",
        eta: float | str | Schedule = PPO_ETA,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**init_arguments(locals()))

    def _check_method(self) -> None:
        PPO._check_method(self)  # type: ignore[arg-type]
        if any(noise.like == "obs" for noise in self._method.noise.values()):
            raise DamperError(
                f"method {self._method.name!r} perturbs single observations, but a recurrent "
                "policy's action also depends on those before: choose a method that does not "
                "perturb them, such as 'damper'."
            )

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.policy.squash_output:
            space = self.action_space
            scale = action_scale(space.low, space.high)
            self._action_scale = torch.as_tensor(scale, device=self.device).reshape(-1)

    def _unscale(self, actions: NDArray[Any]) -> NDArray[Any]:
        return PPO._unscale(self, actions)  # type: ignore[arg-type]

    @property
    def _actor(self) -> nn.Module:
        return self.policy

    def _actor_parameters(self) -> list[nn.Parameter]:
        return actor_parameters(_FirstStep(self.policy))[0] if self._method.actor else []

    def collect_rollouts(self, *arguments: Any, **keywords: Any) -> bool:
        """sb3-contrib's, and keeps the actions without exploration noise for the log."""
        with self._trace.watch(self.policy):
            going: bool = super().collect_rollouts(*arguments, **keywords)
        return going

    def train(self) -> None:
        """sb3-contrib's; after each backward pass the auxiliary gradient is combined with it."""
        if not self._method.actor:
            super().train()
            return
        log, (separate, shared) = Log(), actor_parameters(_FirstStep(self.policy))
        with _last_minibatch(self.rollout_buffer) as minibatch:

            def add_auxiliary() -> None:
                self._add_auxiliary(minibatch[-1], separate, shared, log)

            with after_backward([*separate, *shared], add_auxiliary):
                super().train()
        log.write(self.logger)

    def _add_auxiliary(
        self, samples: Any, separate: list[nn.Parameter], shared: list[nn.Parameter], log: Log
    ) -> None:
        """Combine the auxiliary gradient with ``.grad``; without a pair it stays as it is."""
        method, state = self._method, self.method_state
        assert method.actor is not None
        steps = _consecutive(samples, method.previous_obs)
        if len(steps[0]) == 0:
            return
        with eval_mode(self.policy) if self._has_modes else nullcontext():
            distribution, _ = self.policy.get_distribution(
                samples.observations, samples.lstm_states.pi, samples.episode_starts
            )
        policy = _SequenceActor(distribution.mode())
        obs, after, *before = policy.see(samples.observations, steps)
        # The minibatch holds no rewards; nothing that reads them gets a number by mistake.
        rewards = torch.full_like(samples.returns[steps[0]], torch.nan)
        batch = Batch(
            obs,
            samples.actions[steps[0]],
            rewards,
            after,
            torch.zeros_like(rewards),
            previous_obs=before[0] if before else None,
            progress=1.0 - self._current_progress_remaining,
            action_scale=self._action_scale,
        )
        noise = {name: kind.draw(batch, self._generator) for name, kind in method.noise.items()}
        auxiliary = method.actor(policy, batch, noise, **self._settings["actor"])
        log.add(auxiliary_loss=auxiliary)
        if method.rule is None:
            auxiliary.backward(inputs=[*separate, *shared])
            return
        report = backward_auxiliary(
            auxiliary,
            separate,
            method.rule,
            state.rule_state,
            shared=shared,
            **self._settings["rule"],
        )
        state.set_rule_state(report.state)
        log.add_report(report)


def _consecutive(samples: Any, previous: bool) -> list[Tensor]:
    """Rows of a padded minibatch and of their successors; with ``previous`` of predecessors too.

    sb3-contrib cuts the minibatch at every reset and change of environment, so the steps within
    a sequence are consecutive. At an episode's first step the row itself is the predecessor.
    """
    sequences = samples.lstm_states.pi[0].shape[1]
    real = samples.mask.reshape(sequences, -1) > 0
    starts = samples.episode_starts.reshape(sequences, -1) > 0
    rows = torch.arange(real.numel(), device=real.device).reshape(real.shape)
    kept = real[:, 1:].clone()  # whether the step before has a successor
    if previous:
        kept[:, :1] &= starts[:, :1]  # of no columns where no sequence is longer than a step
    now = rows[:, :-1][kept]
    steps = [now, now + 1]
    if previous:
        first = now % real.shape[1] == 0
        steps.append(torch.where(first, now, now - 1))
    return steps


class _SequenceActor:
    """Mean actions of a minibatch's sequences, as losses ask for them."""

    stochastic = True

    def __init__(self, means: Tensor) -> None:
        self._means = means
        self._seen: list[tuple[Any, Tensor]] = []

    def see(self, observations: Any, steps: Sequence[Tensor]) -> list[Any]:
        """Observations of several sets of rows, whose mean actions the policy then knows."""
        parts = []
        for rows in steps:
            if isinstance(observations, dict):
                part: Any = {name: values[rows] for name, values in observations.items()}
            else:
                part = observations[rows]
            self._seen.append((part, self._means[rows]))
            parts.append(part)
        return parts

    def __call__(self, obs: Any) -> Tensor:
        for part, mean in self._seen:
            if part is obs:
                return mean
        raise DamperError(
            "the loss evaluates the policy at observations that are not in the batch, but a "
            "recurrent policy's action also depends on those before: use a loss that looks at "
            "batch.obs, batch.next_obs and batch.previous_obs only."
        )


class _FirstStep:
    """A recurrent policy at an episode's first step, to be called without its LSTM's state."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def _memory(self) -> tuple[tuple[Tensor, Tensor], Tensor]:
        state = torch.zeros(self._policy.lstm_hidden_state_shape, device=self._policy.device)
        return (state, state), torch.ones(1, device=self._policy.device)

    def get_distribution(self, obs: Any) -> Any:
        return self._policy.get_distribution(obs, *self._memory())[0]

    def predict_values(self, obs: Any) -> Tensor:
        values: Tensor = self._policy.predict_values(obs, *self._memory())
        return values


@contextmanager
def _last_minibatch(buffer: Any) -> Iterator[list[Any]]:
    """Within the context, the list's last entry is the buffer's last minibatch."""
    original = buffer.get
    last: list[Any] = []

    def get(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        for samples in original(*arguments, **keywords):
            last[:] = [samples]
            yield samples

    buffer.get = get
    try:
        yield last
    finally:
        del buffer.get
