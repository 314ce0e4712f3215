"""One rule with settings for every variant of the screening, plain and the paper's included.

``g = g_R + s x`` with ``x`` the point nearest to ``û_T`` under ``⟨x, g_R⟩ ≥ 0`` and
``s ⟨x, m⟩ ≥ −γ ‖m‖²``, and ``s = σ ρ^p n_R min(κ n_T/n_R, 1)^(1−η)``,
times ``min((√L_T/δ)^f ρ^k, 1)`` where δ is given. m is a moving average of g_R,
and ρ the coherence of g_R: ``ρ² = E⟨g_R, m⟩ / E‖g_R‖²`` with m the average before this step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

UNLIMITED = 1e6  # ``allowed`` (γ) from which on the average does not constrain


class Memory(NamedTuple):
    """m without its correction for the start, the previous g_R, and averages of numbers."""

    m: Tensor  # [..., n]
    previous: Tensor  # [..., n]
    numbers: Tensor  # [..., 9]: weight, ⟨g, m⟩, ⟨g, previous⟩, ‖g‖², c, c̄, n_T/n_R, n_T, length


def screen(
    primary: Tensor,
    auxiliary: Tensor,
    state: Memory | None = None,
    *,
    auxiliary_loss: float | Tensor,
    eta: float | Tensor = 1.0,
    allowed: float | Tensor = UNLIMITED,
    allowed_power: float | Tensor = 0.0,
    length_power: float | Tensor = 0.0,
    share: float | Tensor = 1.0,
    gain: float | Tensor = 1.0,
    rate: float | Tensor = 0.01,
    lag: float | Tensor = 0.0,
    delta: float | Tensor = 0.0,
    fade_power: float | Tensor = 1.0,
    noise_power: float | Tensor = 0.0,
    reward_scale: float | Tensor = 1.0,
) -> tuple[Tensor, Memory]:
    """Combine; ``reward_scale`` is read by the script alone."""
    g_R, g_T = primary, auxiliary
    if state is None:
        state = Memory(
            torch.zeros_like(g_R), torch.zeros_like(g_R), g_R.new_zeros(*g_R.shape[:-1], 9)
        )
    m, previous, numbers = state
    eta, allowed, allowed_power, length_power, share, gain, rate = (
        torch.as_tensor(x, dtype=g_R.dtype, device=g_R.device)
        for x in (eta, allowed, allowed_power, length_power, share, gain, rate)
    )
    tiny = torch.finfo(torch.float32).tiny
    n_R, n_T, n_m = (torch.linalg.vector_norm(g, dim=-1) for g in (g_R, g_T, m))
    usable = (n_R > tiny) & (n_T > tiny) & n_R.isfinite() & n_T.isfinite()
    safe = torch.where(usable, n_R, 1.0), torch.where(usable, n_T, 1.0)
    known = n_m > tiny
    safe_m = torch.where(known, n_m, 1.0)
    u_R, u_T, u_m = g_R / safe[0][..., None], g_T / safe[1][..., None], m / safe_m[..., None]
    c1, c2, c12 = (u_T * u_R).sum(-1), (u_T * u_m).sum(-1), (u_R * u_m).sum(-1)
    c2, c12 = torch.where(known, c2, 0.0), torch.where(known, c12, 0.0)
    weight = numbers[..., 0]
    length_m = torch.where(weight > 0, n_m / torch.where(weight > 0, weight, 1.0), 0.0)
    ratio = torch.where(usable, n_T / safe[0], 0.0)
    new = torch.stack(
        (
            torch.ones_like(n_R),
            n_R * length_m * c12,
            (g_R * previous).sum(-1),
            n_R.square(),
            c1,
            c2,
            ratio,
            n_T,
            torch.zeros_like(n_R),
        ),
        -1,
    )
    numbers = numbers + rate[..., None] * (new - numbers)
    lag = torch.as_tensor(lag, dtype=g_R.dtype, device=g_R.device)
    agreement = torch.where(lag > 0, numbers[..., 2], numbers[..., 1])
    rho = (agreement / numbers[..., 3].clamp(min=1e-38)).clamp(0.0, 1.0).sqrt()
    length = share * rho**length_power * n_R * (gain * ratio).clamp(max=1.0) ** (1.0 - eta)
    delta, fade_power, noise_power, loss = (
        torch.as_tensor(x, dtype=g_R.dtype, device=g_R.device)
        for x in (delta, fade_power, noise_power, auxiliary_loss)
    )
    change = loss.clamp(min=0.0).sqrt() / delta.clamp(min=1e-6)
    fade = (change**fade_power * rho**noise_power).clamp(max=1.0)
    length = length * torch.where(delta > 0, fade, 1.0)
    limit = allowed * rho**allowed_power * length_m / torch.where(length > tiny, length, tiny)
    unlimited = (allowed >= UNLIMITED) | ~known | (length <= tiny)
    limit = torch.where(unlimited, 4.0, limit)
    need1, need2 = -c1, -limit - c2  # what each constraint lacks at û_T
    only1, only2 = need1.clamp(min=0.0), need2.clamp(min=0.0)
    ok0 = (need1 <= 0) & (need2 <= 0)
    ok1 = (need1 > 0) & (only1 * c12 >= need2)
    ok2 = (need2 > 0) & (only2 * c12 >= need1)
    det = ((1 - c12) * (1 + c12)).clamp(min=1e-9)
    both1, both2 = (need1 - c12 * need2) / det, (need2 - c12 * need1) / det
    zero = torch.zeros_like(c1)
    a1 = torch.where(ok0, zero, torch.where(ok1, only1, torch.where(ok2, zero, both1.clamp(min=0))))
    a2 = torch.where(ok0, zero, torch.where(ok1, zero, torch.where(ok2, only2, both2.clamp(min=0))))
    length = torch.where(usable, length, 0.0)
    x = u_T + a1[..., None] * u_R + a2[..., None] * u_m
    combined = g_R + length[..., None] * x
    finite = usable.to(g_R.dtype)
    ends = numbers.clone()
    ends[..., 8] = state.numbers[..., 8] + rate * (length / safe[0] - state.numbers[..., 8])
    keep = (finite * rate)[..., None]
    return combined, Memory(
        m + keep * (g_R - m), torch.where(usable[..., None], g_R, previous), ends
    )
