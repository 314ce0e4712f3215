r"""The paper's analysis as functions: what a direction gains for the auxiliary, and how far one may step along it.

Notation. ``g_R``, ``g_T``: primary and auxiliary gradient, ``n_R``, ``n_T`` their norms, ``c``
their cosine, ``c_+ = max(c, 0)``, ``c_- = max(-c, 0)``. ``q = n_T / n_R`` is the norm ratio. The
paper caps it at 1 and states its second theorem for ``q < 1``; here ``q`` may be any positive
number, and ``w = min(q, 1)^(1-η)`` does the capping, which keeps the closed forms exact beyond the
paper's range and equal to the paper's within it.

Every argument is a float or a tensor; tensors broadcast. Results are float64 tensors, whatever the
arguments' dtype: a gain is as small as ``q²``, which leaves float32's range long before ``q`` does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from damper.errors import DamperError

Value = float | Tensor

COSINE_SLACK = 1e-6  # a cosine measured from float32 vectors may leave [-1, 1] by rounding


def matched_gain(direction: Tensor, primary: Tensor, auxiliary: Tensor) -> Tensor:
    r"""``𝒢(d) = ⟨g_T, d⟩ / ⟨g_R, d⟩ − ⟨g_T, g_R⟩ / n_R²`` (eq. matched_temporal_gain), one value per leading index.

    The auxiliary decrease per unit of primary decrease, beyond what ``g_R`` alone brings, to first
    order. It does not change with the length of ``d``. Vectors are ``[..., n]`` and broadcast; they
    are evaluated in float64, since the two terms nearly cancel where ``g_T`` is weak: rounding of
    ``d`` itself leaves an error of about ``q`` times its dtype's precision. NaN where
    ``⟨g_R, d⟩ ≤ 0``: there is no primary progress to match.
    """
    (d, _), (g_R, m_R), (g_T, m_T) = (_scaled(vector) for vector in (direction, primary, auxiliary))
    progress = (g_R * d).sum(-1)
    gain = (g_T * d).sum(-1) / progress - (g_T * g_R).sum(-1) / g_R.square().sum(-1)
    return torch.where(progress > 0, gain * (m_T / m_R), torch.nan)


def damper_gain(q: Value, c: Value, eta: Value) -> Tensor:
    r"""``𝒢(g_η) = q w (1 − c²) / (1 + w c_+)``, which is ``q^(2−η) (1 − c²) / (1 + w c_+)`` for ``q ≤ 1``.

    Eq. damper_exact_gain. It grows with ``w = min(q, 1)^(1−η)`` and so never falls as η rises.
    """
    return projected_gain(q, c, _interpolation(q, eta))


def projected_gain(q: Value, c: Value, w: Value) -> Tensor:
    r"""``q w (1 − c²) / (1 + w c_+)``, the gain of ``g_R + n_R w g̃_T/n_T`` for any w in [0, 1].

    For a weight that is not an interpolation of the norms, such as damper-fading's.
    """
    q, c, w = _ratio(q), _cosine(c), _push(w)
    return q * w * _sine_squared(c) / (1 + w * c.clamp(min=0))


def scalarization_gain(q: Value, c: Value, weight: Value) -> Tensor:
    r"""``𝒢(g_R + λ g_T) = λ q² (1 − c²) / (1 + λ q c)`` (eq. scalar_exact_gain).

    NaN where ``1 + λ q c ≤ 0``: under such a conflict the weighted sum makes no primary progress at
    all.
    """
    q, c, weight = _ratio(q), _cosine(c), _weight(weight)
    progress = 1 + weight * q * c
    return torch.where(progress > 0, weight * q / progress * q * _sine_squared(c), torch.nan)


def damper_gain_bounds(q: Value, c: Value, eta: Value) -> tuple[Tensor, Tensor]:
    r"""``½ (1 − c²) q^(2−η) ≤ 𝒢(g_η) ≤ (1 − c²) q^(2−η)`` (eq. damper_gain_bounds); ``q w`` in place of ``q^(2−η)``."""
    upper = _ratio(q) * _interpolation(q, eta) * _sine_squared(_cosine(c))
    return upper / 2, upper


def scalarization_gain_bounds(
    q: Value, c: Value, weight: Value, delta: Value
) -> tuple[Tensor, Tensor]:
    r"""``λ/(2−δ) (1 − c²) q² ≤ 𝒢(g_λ) ≤ λ/δ (1 − c²) q²`` (eq. scalar_gain_bounds), given ``λ q < 1 − δ``."""
    delta = _delta(q, weight, delta)
    scale = _weight(weight) * _ratio(q).square() * _sine_squared(_cosine(c))
    return scale / (2 - delta), scale / delta


def gain_ratio(q: Value, c: Value, eta: Value, weight: Value) -> Tensor:
    r"""``𝒢(g_η) / 𝒢(g_λ) = (w / λ q) (1 + λ q c) / (1 + w c_+)`` (eq. relative_exact_gain; ``w / q = q^(−η)``).

    Both gains vanish at ``|c| = 1``; the value there is the limit. NaN where ``1 + λ q c ≤ 0``.
    """
    q, c, w, weight = _ratio(q), _cosine(c), _interpolation(q, eta), _weight(weight)
    progress = 1 + weight * q * c
    return torch.where(
        progress > 0, w / (weight * q) * progress / (1 + w * c.clamp(min=0)), torch.nan
    )


def gain_ratio_bounds(q: Value, eta: Value, weight: Value, delta: Value) -> tuple[Tensor, Tensor]:
    r"""``δ/(2λ) q^(−η) ≤ 𝒢(g_η)/𝒢(g_λ) ≤ (2−δ)/λ q^(−η)`` at every ``|c| < 1`` (eq. relative_gain_bounds).

    Given ``λ q < 1 − δ``. For any η > 0 the lower bound grows without limit as ``q → 0``: whatever
    λ is, DAMPER gains more once the auxiliary gradient is weak enough.
    """
    delta = _delta(q, weight, delta)
    growth = _interpolation(q, eta) / _ratio(q) / _weight(weight)
    return delta / 2 * growth, (2 - delta) * growth


def step_size_bound(w: Value, c: Value, beta: Value) -> Tensor:
    r"""``2 (1 + w c_+) / (β [1 + 2 w c_+ + w² (1 − c_-²)])``: every smaller step descends (eq. exact_descent_bound).

    For a ``β``-smooth primary loss and any w in [0, 1], such as ``min(q, 1)^(1−η)``. The bracket is
    at most ``2 (1 + w c_+)``, so this is at least ``1/β``. It is ``1/β`` at ``w = 1`` without
    conflict, and ``2/β``, gradient descent's own, at ``w = 0``.
    """
    w, c, beta = _push(w), _cosine(c), _tensor(beta)
    _require(
        "beta",
        beta,
        (beta > 0) & beta.isfinite(),
        "positive and finite",
        "it is the smoothness constant of the primary loss",
    )
    c_plus, c_minus = c.clamp(min=0), (-c).clamp(min=0)
    return (
        2 * (1 + w * c_plus) / (beta * (1 + 2 * w * c_plus + w.square() * _sine_squared(c_minus)))
    )


def _tensor(value: Value) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


def _scaled(vector: Tensor) -> tuple[Tensor, Tensor]:
    """A vector in float64 divided by its largest entry, and that entry, so that products stay within range."""
    vector = vector.double()
    largest = vector.abs().amax(-1)
    return vector / torch.where(largest > 0, largest, 1.0).unsqueeze(-1), largest


def _require(name: str, value: Tensor, holds: Tensor, rule: str, hint: str) -> None:
    if not bool(holds.all()):
        given = float(value.expand(holds.shape)[~holds].flatten()[0])
        raise DamperError(f"{name} must be {rule}, but {given:g} was given: {hint}.")


def _ratio(q: Value) -> Tensor:
    q = _tensor(q)
    _require(
        "q",
        q,
        (q > 0) & q.isfinite(),
        "positive and finite",
        "it is the norm ratio n_T/n_R of nonzero gradients",
    )
    return q


def _cosine(c: Value) -> Tensor:
    c = _tensor(c)
    _require(
        "c", c, c.abs() <= 1 + COSINE_SLACK, "in [-1, 1]", "it is the cosine of the two gradients"
    )
    return c.clamp(-1, 1)


def _weight(weight: Value) -> Tensor:
    weight = _tensor(weight)
    _require(
        "weight",
        weight,
        (weight > 0) & weight.isfinite(),
        "positive and finite",
        "it is scalarization's λ",
    )
    return weight


def _push(w: Value) -> Tensor:
    w = _tensor(w)
    _require("w", w, (w >= 0) & (w <= 1), "in [0, 1]", "it is the added length s divided by n_R")
    return w


def _interpolation(q: Value, eta: Value) -> Tensor:
    """``w = min(q, 1)^(1−η)``."""
    eta = _tensor(eta)
    _require(
        "eta",
        eta,
        (eta >= 0) & (eta <= 1),
        "in [0, 1]",
        "0 caps the auxiliary, 1 matches it to the primary",
    )
    return _ratio(q).clamp(max=1) ** (1 - eta)


def _delta(q: Value, weight: Value, delta: Value) -> Tensor:
    """δ, checked against the theorem's assumption ``λ q < 1 − δ``."""
    delta, product = _tensor(delta), _weight(weight) * _ratio(q)
    _require(
        "delta",
        delta,
        (delta > 0) & (delta < 1),
        "strictly between 0 and 1",
        "it bounds λq away from 1",
    )
    _require(
        "delta",
        delta,
        product < 1 - delta,
        "less than 1 - weight * q",
        "use a smaller weight, q or delta",
    )
    return delta


def _sine_squared(c: Tensor) -> Tensor:
    # (1 - c)(1 + c) keeps its digits near |c| = 1, where 1 - c² loses them.
    return (1 - c) * (1 + c)
