"""sb3-contrib's TQC with one more argument."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from torch import Tensor

from damper.errors import MissingExtraError
from damper.method_args import ETA, check_no_critic_loss
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.common.mixin import init_arguments
from damper.sb3.common.networks import GaussianPolicy
from damper.sb3.common.off_policy import UpdateInputs
from damper.sb3.sac import HParams, SACMixin

try:
    import sb3_contrib
    from sb3_contrib.common.utils import quantile_huber_loss
    from sb3_contrib.tqc.policies import TQCPolicy
except ImportError as error:
    raise MissingExtraError(
        'damper.sb3.TQC needs sb3-contrib: pip install "damper-rl[sb3-contrib]".'
    ) from error


class TQC(SACMixin, sb3_contrib.TQC):
    """``sb3_contrib.TQC`` made smooth; with ``method="plain"`` that class, bit for bit.

    Args:
        policy: as in sb3-contrib, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, a composed one, or a ``Method``.
        eta: DAMPER's η in [0, 1], from least to most smoothing; or a schedule like SB3's.
        rule: another rule for the auxiliary gradient: in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "asap", "l2c2".
        **settings: the method's own settings, such as ``lambda_T`` of "caps".

    Example:
        >>> from damper.sb3 import TQC
        >>> model = TQC("MlpPolicy", "Pendulum-v1", learning_starts=50, buffer_size=1000)
        >>> model = model.learn(60)
    """

    def __init__(
        self,
        policy: str | type[TQCPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        top_quantiles_to_drop_per_net: int = 2,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        use_sde_at_warmup: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        method: str | Method = "damper",
        eta: float | str | Schedule = ETA,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**init_arguments(locals()))

    def _check_method(self) -> None:
        check_no_critic_loss(self._method, "values Q(s, a), while TQC's critics predict quantiles")

    def _bellman(self, policy: GaussianPolicy, inputs: UpdateInputs, hparams: HParams) -> Tensor:
        """Quantiles of the target, ``[B, n]``: of all target critics, the highest left out."""
        batch = inputs.sb3_batch
        action, log_prob = policy.sample(batch.next_obs)
        dropped = self.top_quantiles_to_drop_per_net * self.critic.n_critics
        kept = self.critic.quantiles_total - dropped
        quantiles = self.critic_target(batch.next_obs, action).flatten(1).sort().values[:, :kept]
        quantiles = quantiles - hparams["ent_coef"] * log_prob.reshape(-1, 1)
        discount = ((1 - batch.terminated) * hparams["gamma"]).reshape(-1, 1)
        return batch.reward.reshape(-1, 1) + discount * quantiles

    def _critic_loss(self, inputs: UpdateInputs, target: Tensor) -> Tensor:
        quantiles = self.critic(inputs.sb3_batch.obs, inputs.sb3_batch.action)
        return quantile_huber_loss(quantiles, target.unsqueeze(1), sum_over_quantiles=False)

    def _actor_loss(self, policy: GaussianPolicy, inputs: UpdateInputs, hparams: HParams) -> Tensor:
        action, log_prob = policy.sample(inputs.sb3_batch.obs)
        value = self.critic(inputs.sb3_batch.obs, action).mean(dim=2).mean(dim=1, keepdim=True)
        return (hparams["ent_coef"] * log_prob.reshape(-1, 1) - value).mean()
