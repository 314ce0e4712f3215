"""SB3's actors and critics as losses see them: ``Policy`` and ``Critic`` of the interface."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector.utils import create_empty_array
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy, ContinuousCritic
from stable_baselines3.common.torch_layers import MlpExtractor
from stable_baselines3.sac.policies import Actor as SacActor
from torch import Tensor, nn
from torch.distributions import Normal

from damper.errors import DamperError
from damper.sb3.common.state import MethodState


class SB3Policy:
    """An actor for one gradient step: calls on the same observation tensor share a forward pass.

    Only passes that record a graph are kept, for a loss may differentiate them.
    """

    stochastic = False

    def __init__(
        self, actor: BasePolicy, state: MethodState | None = None, eval_mode: bool = False
    ) -> None:
        """``eval_mode`` runs the actor as at evaluation: no dropout, running statistics."""
        self.actor: Any = actor
        self.state, self.eval_mode = state, eval_mode
        self._cache: dict[tuple[str, int], tuple[Any, Any]] = {}  # (obs, value) by kind and id(obs)
        self._joined: Any = None
        self._parts: Sequence[Any] = ()

    def join(self, joined: Any, parts: Sequence[Any]) -> None:
        """Evaluate the actor once on ``joined`` for all its equal parts ``[B, ...]``."""
        self._joined, self._parts = joined, parts

    def remember(self, obs: Any, action: Tensor) -> None:
        """Answer ``policy(obs)`` with an action that a forward pass for another loss gave."""
        self._cache["action", id(obs)] = (obs, action)

    def _cached(self, kind: str, obs: Any, compute: Callable[[Any], Any]) -> Any:
        """``compute(obs)``, once per kind and observation, or at once for a joined batch."""
        # The observation is kept beside the value, so that its id cannot be reused meanwhile.
        key = kind, id(obs)
        if key in self._cache:
            return self._cache[key][1]
        joined = any(part is obs for part in self._parts)
        with eval_mode(self.actor) if self.eval_mode else nullcontext():
            value = compute(self._joined if joined else obs)
        parts = self._parts if joined else [obs]
        values = split(value, len(parts)) if joined else [value]
        computed = {(kind, id(part)): (part, v) for part, v in zip(parts, values, strict=True)}
        if torch.is_grad_enabled():
            self._cache |= computed
        return computed[key][1]

    def __call__(self, obs: Any) -> Tensor:
        """``μ(s)`` in [-1, 1]."""
        return self._cached("action", obs, self.actor)

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Deterministic actors have none."""
        raise DamperError("this loss needs a stochastic actor: use damper.sb3.SAC.")

    def prediction(self, obs: Any) -> Tensor:
        """The second head's output, before any tanh: ``[B, A]``."""
        assert self.state is not None
        return self.state.head(self._cached("hidden", obs, lambda s: hidden(self.actor, s)))

    @torch.no_grad()
    def averaged_prediction(self, obs: Any) -> Tensor:
        """``prediction`` of the Polyak average of actor and head, without gradient."""
        assert self.state is not None
        return self.state.average_head(hidden(self.state.average, obs))


class GaussianPolicy(SB3Policy):
    """SAC's actor, with independent Gaussian noise or state-dependent exploration."""

    stochastic = True

    def parameters(self, obs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Mean before the tanh, log standard deviation, and what else gSDE needs."""
        return self._cached("parameters", obs, self.actor.get_action_dist_params)

    def __call__(self, obs: Any) -> Tensor:
        """``tanh`` of the mean."""
        return self._cached("action", obs, lambda s: torch.tanh(self.parameters(s)[0]))

    def sample(self, obs: Any) -> tuple[Tensor, Tensor]:
        """An action and its log-probability, drawn from torch's generator as SB3 draws it."""
        return self._cached("sample", obs, self._sample)

    def _sample(self, obs: Any) -> Any:
        # Custom actors use their own sampling, and so do compiled ones, whose class is not SB3's.
        if getattr(type(self.actor), "action_log_prob", None) is not SacActor.action_log_prob:
            return self.actor.action_log_prob(obs)
        mean, log_std, others = self.parameters(obs)
        if not torch.is_grad_enabled():
            # The actor keeps the distribution, which must not keep the graph alive.
            mean, log_std = mean.detach(), log_std.detach()
            others = {name: tensor.detach() for name, tensor in others.items()}
        return self.actor.action_dist.log_prob_from_params(mean, log_std, **others)

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh; gSDE's is what its noise amounts to."""
        mean, log_std, others = self.parameters(obs)
        if others:
            distribution = self.actor.action_dist.proba_distribution(mean, log_std, **others)
            log_std = distribution.distribution.stddev.log()
        return mean, log_std


class OnPolicyActor(SB3Policy):
    """The actor inside PPO's policy: the distribution's mode, in the policy's own units.

    Without squashing those are the environment's, and the mode may lie outside the bounds.
    """

    stochastic = True

    def __call__(self, obs: Any) -> Tensor:
        """The mode: the Gaussian's mean, or its tanh where gSDE squashes."""
        return self._cached("action", obs, self._mode)

    def _mode(self, obs: Any) -> Tensor:
        policy = self.actor
        # SB3's own Gaussian need not be built for its mean. Others share one distribution object
        # between calls, so its mode is read at once.
        if not (_is_own(policy) and isinstance(policy.action_dist, DiagGaussianDistribution)):
            return policy.get_distribution(obs).mode()
        features = BasePolicy.extract_features(policy, obs, policy.pi_features_extractor)
        return policy.action_net(policy.mlp_extractor.forward_actor(features))

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before any tanh; gSDE's is what its noise amounts to."""
        return self._cached("distribution", obs, self._moments)

    def _moments(self, obs: Any) -> tuple[Tensor, Tensor]:
        inside = self.actor.get_distribution(obs).distribution
        if not isinstance(inside, Normal):
            raise DamperError(
                f"this loss needs a Gaussian policy, but this one's is {type(inside).__name__}."
            )
        return inside.mean, inside.stddev.log()


def evaluates_jointly(policy: Any) -> bool:
    """Whether ``evaluate_jointly`` does what the policy's ``evaluate_actions`` does."""
    kind, names = type(policy), ("evaluate_actions", "extract_features")
    return (
        _is_own(policy)
        and all(getattr(kind, name) is getattr(ActorCriticPolicy, name) for name in names)
        and "evaluate_actions" not in vars(policy)
        and type(policy.mlp_extractor) is MlpExtractor
        and type(policy.action_dist) is DiagGaussianDistribution
        and isinstance(policy.observation_space, Box)
    )


def evaluate_jointly(
    policy: Any, obs: Tensor, count: int, actions: Tensor
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """SB3's ``evaluate_actions`` at the first ``count`` observations, and mean actions at all."""
    features = BasePolicy.extract_features(policy, obs, policy.pi_features_extractor)
    mean = policy.action_net(policy.mlp_extractor.forward_actor(features))
    if policy.share_features_extractor:
        features = features[:count]
    else:
        features = BasePolicy.extract_features(policy, obs[:count], policy.vf_features_extractor)
    values = policy.value_net(policy.mlp_extractor.forward_critic(features))
    # torch.distributions.Normal's many small operations take longer than the network.
    log_std, log_2pi = policy.log_std, math.log(2.0 * math.pi)
    standardised = (actions - mean[:count]) * torch.exp(-log_std)
    log_prob = -0.5 * standardised.square().sum(1) - (log_std + 0.5 * log_2pi).sum()
    entropy = (log_std + 0.5 * (1.0 + log_2pi)).sum().expand(count)
    return (values, log_prob, entropy), mean


def _is_own(policy: Any) -> bool:
    """Whether a policy's class has SB3's own methods for making the distribution."""
    names, kind = ("get_distribution", "_get_action_dist_from_latent"), type(policy)
    return all(getattr(kind, name, None) is getattr(ActorCriticPolicy, name) for name in names)


def actor_parameters(policy: Any, *memory: Any) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Parameters that PPO's actions depend on: not shared with the value function, and shared.

    Frozen ones are among them: a rule's memory has entries for them. ``memory`` is what a recurrent
    policy takes beside the observation.
    """
    blank = policy.obs_to_tensor(create_empty_array(policy.observation_space, n=1, fn=np.zeros))[0]
    with _unfrozen(policy) as parameters, eval_mode(policy), torch.enable_grad():
        distribution = policy.get_distribution(blank, *memory)
        if memory:
            distribution, _ = distribution
        log_prob = distribution.log_prob(distribution.mode()).sum()
        value = policy.predict_values(blank, *memory).sum()
        acting = torch.autograd.grad(log_prob, parameters, allow_unused=True)
        valued = torch.autograd.grad(value, parameters, allow_unused=True)
    separate: list[nn.Parameter] = []
    shared: list[nn.Parameter] = []
    for parameter, acts, values in zip(parameters, acting, valued, strict=True):
        if acts is not None:
            (separate if values is None else shared).append(parameter)
    return separate, shared


@contextmanager
def _unfrozen(module: nn.Module) -> Iterator[list[nn.Parameter]]:
    """All parameters of a module, which require gradients inside."""
    parameters = list(module.parameters())
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield parameters
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


class SB3Critic:
    """SB3's ``n_critics`` critics as one function, values ``[n_critics, B]``."""

    def __init__(self, critic: ContinuousCritic) -> None:
        """Of SB3's module, whose weights are not copied."""
        self.critic = critic

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_j(s, a)``, ``[n_critics, B]``; an action ``[n_critics, B, A]`` has one per critic."""
        values = self.critic(obs, action) if action.ndim == 2 else self._each(obs, action)
        return torch.stack([value.squeeze(-1) for value in values], -2)

    def _each(self, obs: Any, action: Tensor) -> list[Tensor]:
        grad = torch.is_grad_enabled() and not self.critic.share_features_extractor
        with torch.set_grad_enabled(grad):
            features = self.critic.extract_features(obs, self.critic.features_extractor)
        pairs = zip(self.critic.q_networks, action, strict=True)
        return [q(torch.cat((features, a), 1)) for q, a in pairs]

    def first(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1(s, a)`` alone, ``[B]``."""
        return self.critic.q1_forward(obs, action).squeeze(-1)


def hidden(actor: Any, obs: Any) -> Tensor:
    """The output of the actor's last hidden layer, ``[B, H]``, which a second head takes."""
    trunk = actor.latent_pi if hasattr(actor, "latent_pi") else actor.mu[:-2]
    return trunk(actor.extract_features(obs, actor.features_extractor))


def split(batch: Any, count: int) -> Sequence[Any]:
    """Equal parts of a batch: of a tensor, or of tensors by name or in a tuple."""
    if isinstance(batch, Tensor):
        return batch.chunk(count)
    if isinstance(batch, dict):
        chunks = {name: tensor.chunk(count) for name, tensor in batch.items()}
        return [{name: parts[i] for name, parts in chunks.items()} for i in range(count)]
    return list(zip(*(tensor.chunk(count) for tensor in batch), strict=True))


def differs_in_eval_mode(module: nn.Module) -> bool:
    """Whether outputs differ in ``train()`` and ``eval()`` mode: batch normalisation, dropout."""
    mode_dependent = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    return any(isinstance(part, mode_dependent) for part in module.modules())


@contextmanager
def eval_mode(module: BasePolicy) -> Iterator[None]:
    """``eval()`` mode inside; afterwards the mode that it had before."""
    before = module.training
    module.set_training_mode(False)
    try:
        yield
    finally:
        module.set_training_mode(before)
