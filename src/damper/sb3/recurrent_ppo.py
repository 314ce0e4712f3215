"""sb3-contrib's RecurrentPPO with one more argument."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from torch import Tensor, nn

from damper._backward import after_backward, auxiliary_gradients
from damper.errors import DamperError, MissingExtraError
from damper.interface import Batch
from damper.method_args import PPO_ETA
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.common.log import Log
from damper.sb3.common.mixin import init_arguments
from damper.sb3.common.networks import OnPolicyActor, actor_parameters, eval_mode
from damper.sb3.ppo import OnPolicyMixin

try:
    import sb3_contrib
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
except ImportError as error:
    raise MissingExtraError(
        'damper.sb3.RecurrentPPO needs sb3-contrib: pip install "damper-rl[sb3-contrib]".'
    ) from error


class RecurrentPPO(OnPolicyMixin, sb3_contrib.RecurrentPPO):
    """``sb3_contrib.RecurrentPPO`` whose mean action becomes smooth; "plain" is it, bit for bit.

    The auxiliary loss compares the mean actions at consecutive steps of the minibatch's sequences,
    with the LSTM's state carried along. No pair crosses a reset, a sequence's end or padding.

    Args:
        policy: as in sb3-contrib, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, or a ``Method``; with a loss on the actor alone that
            does not perturb observations.
        eta: DAMPER's η in [0, 1], or a schedule; at 1, the most smoothing, PPO may learn nothing.
        rule: another rule for the auxiliary gradient: in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss than the temporal one: "grad-caps".
        **settings: the method's own settings.

    Example:
        >>> from damper.sb3 import RecurrentPPO
        >>> model = RecurrentPPO("MlpLstmPolicy", "Pendulum-v1", n_steps=32, batch_size=16)
        >>> model = model.learn(32)
    """

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
        super()._check_method()
        if any(noise.like == "obs" for noise in self._method.noise.values()):
            raise DamperError(
                f"method {self._method.name!r} perturbs single observations, but a recurrent "
                "policy's action also depends on those before: choose a method that does not "
                "perturb them, such as 'damper'."
            )

    def _actor_parameters(self) -> list[nn.Parameter]:
        return self._split_parameters()[0] if self._method.actor else []

    def _split_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        state = torch.zeros(self.policy.lstm_hidden_state_shape, device=self.device)
        first_step = torch.ones(1, device=self.device)
        return actor_parameters(self.policy, (state, state), first_step)

    def train(self) -> None:
        """sb3-contrib's; after each backward pass the auxiliary gradient is combined with it."""
        if not self._method.actor:
            super().train()
            return
        log, (separate, shared) = Log(), self._split_parameters()
        parameters = [*separate, *shared]
        with _last_minibatch(self.rollout_buffer) as minibatch:

            def add_auxiliary() -> None:
                """Combine the auxiliary gradient with ``.grad``; without a pair it stays."""
                loss = self._auxiliary_loss(minibatch[-1])
                if loss is not None:
                    gradients = auxiliary_gradients(loss, parameters)
                    self._combine(loss, gradients, parameters, len(shared), log)

            with after_backward(parameters, add_auxiliary):
                super().train()
        log.write(self.logger)

    def _auxiliary_loss(self, samples: Any) -> Tensor | None:
        """The method's loss on a minibatch; None without a pair."""
        method = self._method
        assert method.actor is not None
        steps = _consecutive(samples, method.previous_obs)
        if len(steps[0]) == 0:
            return None
        with eval_mode(self.policy) if self._has_modes else nullcontext():
            distribution, _ = self.policy.get_distribution(
                samples.observations, samples.lstm_states.pi, samples.episode_starts
            )
        means, observations = distribution.mode(), samples.observations
        policy = _SequenceActor(self.policy)
        parts = []
        for rows in steps:
            if isinstance(observations, dict):
                part: Any = {name: values[rows] for name, values in observations.items()}
            else:
                part = observations[rows]
            policy.remember(part, means[rows])
            parts.append(part)
        obs, after, *before = parts
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
        return method.actor(policy, batch, self._draw_noise(batch), **self._settings["actor"])


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


class _SequenceActor(OnPolicyActor):
    """Mean actions of a minibatch's sequences; there is no LSTM's state for other observations."""

    def _mode(self, obs: Any) -> Any:
        raise DamperError(
            "the loss evaluates the policy at observations that are not in the batch, but a "
            "recurrent policy's action also depends on those before: use a loss that looks at "
            "batch.obs, batch.next_obs and batch.previous_obs only."
        )

    _moments = _mode


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
