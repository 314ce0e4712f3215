"""CAPS: similar actions at a state and its successor, and at a state and a noisy copy of it."""

from __future__ import annotations

from torch import Tensor

from damper.interface import Batch, Loss, Noise, NoiseDraws, Policy, Setting
from damper.losses._maths import mean_square, unsqueeze_like


def _caps(
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    lambda_T: Setting = 0.1,
    lambda_S: Setting = 0.5,
    sigma: Setting = 0.2,
) -> Tensor:
    r"""``λ_T ½ mse(μ(s), μ(s')) + λ_S ½ mse(μ(s), μ(s + σε))``, ``ε ~ N(0, I)``, nothing detached.

    Mysore, Mabsout, Mancuso and Saenko 2021 (arXiv 2012.06644), as in released code: squared, and
    averaged over batch and action dimensions.

    Args:
        lambda_T: weight of the temporal term.
        lambda_S: weight of the spatial term.
        sigma: σ of the noise, in raw observation units.
    """
    mu = policy(batch.obs)
    noisy = batch.obs + unsqueeze_like(sigma, batch.obs) * noise["caps"]
    temporal = 0.5 * mean_square(mu - policy(batch.next_obs))
    spatial = 0.5 * mean_square(mu - policy(noisy))
    return lambda_T * temporal + lambda_S * spatial


caps = Loss(_caps, noise={"caps": Noise("normal", "obs")}, reads_outputs_only=True)
