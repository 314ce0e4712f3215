r"""How smooth a sequence of actions is: the paper's score, and measures of what it misses.

``actions`` are the actions sent to the environment, in order: ``[T]`` or ``[T, A]``, as array,
tensor or nested list. Everything is computed in float64. A measure that is given ``low`` and
``high``, the bounds of the action space (a number, or one per dimension), does not depend on the
action's unit; without them it is in that unit. An episode of one action has no changes, which
scores 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from damper.errors import DamperError

Array = NDArray[np.float64]
Actions = ArrayLike | torch.Tensor
Bound = ArrayLike | torch.Tensor | None

CONSTANT_CHANGE = 1e-4  # of the range; see is_constant
COLLAPSE_EPISODES = 10  # see collapse_warning

# Title and number format of what an evaluation's table shows, in the order of its columns: the
# first measure is the one to rely on (see smoothness).
MEASURES = {
    "mean_change": ("mean |Δa|", "{:.4f}"),
    "return": ("return", "{:.1f}"),
    "sm": ("sm", "{:.3f}"),
    "spectral_roughness": ("roughness", "{:.4f}"),
    "length": ("length", "{:.0f}"),
}
NEVER_NEGATIVE = tuple(name for name in MEASURES if name != "return")
SMOOTHNESS = ("sm", "mean_change", "spectral_roughness")  # perfect for one constant action


def smoothness(actions: Actions) -> float:
    r"""The paper's score, lower is smoother.

    ``sm = (2/T) Σ |X_k| k/T`` over ``k = 0 … ⌊T/2⌋−1``, mean over dimensions.

    ``X`` is the un-normalised discrete Fourier transform of the actions in their own unit; fewer
    than two actions score 0. Never read it alone, for two reasons: on noise of a given strength it
    grows as √T, so an early fall looks smooth; and it leaves out the Nyquist bin, so +1, −1, +1, …
    scores 0 for even T. ``mean_change`` and ``spectral_roughness`` have neither flaw.
    """
    a = _actions(actions, shortest=0)
    T = len(a)
    if T < 2:
        return 0.0
    k = np.arange(T // 2)
    magnitude = np.abs(np.fft.rfft(a, axis=0))[: T // 2]
    return float((2 / T * (k / T) @ magnitude).mean())


def mean_change(actions: Actions, low: Bound = None, high: Bound = None) -> float:
    r"""``mean |a_t − a_{t−1}| / (high − low)``: the share of the range moved per step."""
    changes = _changes(actions, low, high)
    return float(changes.mean()) if len(changes) else 0.0


def mean_rate(actions: Actions, period: float, low: Bound = None, high: Bound = None) -> float:
    r"""``mean_change`` per second, whatever the control rate; ``period``: seconds per action."""
    _check_period(period)
    return mean_change(actions, low, high) / period


def max_change(actions: Actions, low: Bound = None, high: Bound = None) -> float:
    r"""``max |a_t − a_{t−1}| / (high − low)``: the worst jump an actuator sees."""
    return float(_changes(actions, low, high).max(initial=0.0))


def total_variation(actions: Actions, low: Bound = None, high: Bound = None) -> float:
    r"""``Σ_t |a_t − a_{t−1}| / (high − low)``, mean over dimensions: ranges travelled (wear)."""
    return float(_changes(actions, low, high).sum(axis=0).mean())


def is_constant(mean_changes: ArrayLike, lengths: ArrayLike) -> bool:
    """Whether a policy holds one action throughout each episode.

    Each episode's ``mean_change`` must be below ``CONSTANT_CHANGE``; episodes of a single action
    are ignored. The action may differ between episodes, as where the policy observes a goal that is
    fixed within each.
    """
    changes = np.asarray(mean_changes, np.float64)[np.asarray(lengths) > 1]
    return len(changes) > 0 and bool((changes < CONSTANT_CHANGE).all())


def collapse_warning(
    mean_changes: ArrayLike, lengths: ArrayLike, eta: float = 0.0, on_policy: bool = False
) -> str | None:
    """A sentence with the likely fix where training ended in one constant action, or None.

    The last ``COLLAPSE_EPISODES`` episodes of training decide; fewer are no evidence. η is 0 for
    methods that have none; in PPO noise of small minibatches also drives a policy there.
    """
    changes, steps = (np.asarray(x)[-COLLAPSE_EPISODES:] for x in (mean_changes, lengths))
    if len(changes) < COLLAPSE_EPISODES or not is_constant(changes, steps):
        return None
    fix = f"lower eta (now {eta:g})" if eta > 0 else "smooth less, or lower learning_rate"
    return (
        f"the policy has held one constant action in each of its last {COLLAPSE_EPISODES} episodes "
        f"(mean change below {CONSTANT_CHANGE:.2%} of the range), as if it no longer saw its "
        f"observations: {fix}{', or raise batch_size' if on_policy else ''}, and start again."
    )


def spectral_roughness(actions: Actions, low: Bound = None, high: Bound = None) -> float:
    r"""``√( Σ_k c_k |X_k|²/T² · (2k/T)² )``, rms over dimensions; in [0, 1] within the bounds.

    ``k`` is 0 … ⌊T/2⌋ and ``c_k`` is 2, and 1 for the constant and the Nyquist bin, so by Parseval
    ``Σ c_k |X_k|²/T²`` is the mean square of the signal, whatever its length: the score is a root
    mean square that weights every component by its frequency as a share of the Nyquist frequency.
    Hence noise of strength σ scores about σ/√3 at every T, a sine of amplitude A at a share f of
    Nyquist scores A f/√2, and +1, −1, … with an even T scores 1, the maximum for actions in
    [−1, 1]. ``low`` and ``high`` are mapped to ±1. Like any periodic spectrum it includes the jump
    from the last action back to the first, whose contribution fades as 1/√T.
    """
    a = _actions(actions)
    _, half_range = _scale(a, low, high, unit=2.0)
    T = len(a)
    share = 2 * np.arange(T // 2 + 1) / T
    power = _one_sided(T)[:, None] * np.abs(np.fft.rfft(a / half_range, axis=0)) ** 2 / T**2
    return float(np.sqrt((share**2 @ power).mean()))


def saturation(actions: Actions, low: Bound, high: Bound, tolerance: float = 1e-3) -> float:
    r"""Share of action entries at a bound: within ``tolerance · (high − low)`` of it, or beyond."""
    if not 0 <= tolerance < 0.5:
        raise DamperError(
            f"tolerance must be in [0, 0.5), a share of the range, but {tolerance:g} was given."
        )
    if low is None or high is None:
        raise DamperError("saturation needs low and high, but one is missing: pass both bounds.")
    a = _actions(actions)
    lowest, span = _scale(a, low, high)
    position = (a - lowest) / span
    return float(((position <= tolerance) | (position >= 1 - tolerance)).mean())


def spectrum(actions: Actions, period: float | None = None) -> tuple[Array, Array]:
    r"""Frequencies ``[F]`` and one-sided amplitudes ``c_k |X_k| / T``.

    A sine of amplitude A whose period divides T shows as A. Frequencies are in cycles per step, up
    to ½; with the control ``period`` in seconds, in Hz.
    """
    a = _actions(actions)
    T = len(a)
    amplitude = _one_sided(T)[:, None] * np.abs(np.fft.rfft(a, axis=0)) / T
    return _frequencies(T, period), amplitude if np.ndim(actions) == 2 else amplitude[:, 0]


def dominant_frequency(
    actions: Actions, period: float | None = None, above: float = 0.0
) -> Array | float:
    r"""Frequency of the strongest component above ``above``; one per dimension for ``[T, A]``.

    The mean is no motion and does not count. In cycles per step, or with the ``period`` in Hz; NaN
    where nothing moves.
    """
    frequencies, power = _motion_power(actions, period)
    power = np.where(frequencies[:, None] > above, power, 0.0)
    strongest = np.where(power.any(0), frequencies[power.argmax(0)], np.nan)
    return strongest if np.ndim(actions) == 2 else float(strongest[0])


def power_above(actions: Actions, frequency: float, period: float | None = None) -> Array | float:
    r"""Share of the motion's power above a frequency, in [0, 1]; one per dimension for ``[T, A]``.

    ``frequency`` is in cycles per step, or with the ``period`` in Hz. 0 where nothing moves.
    """
    frequencies, power = _motion_power(actions, period)
    total = power.sum(0)
    share = power[frequencies > frequency].sum(0) / np.where(total > 0, total, 1.0)
    return share if np.ndim(actions) == 2 else float(share[0])


def summary(actions: Actions, low: Bound, high: Bound) -> dict[str, float]:
    """Every measure by its name in tables and records: what to publish beside the paper's score."""
    return {
        "length": len(_actions(actions)),
        "sm": smoothness(actions),
        "mean_change": mean_change(actions, low, high),
        "max_change": max_change(actions, low, high),
        "total_variation": total_variation(actions, low, high),
        "spectral_roughness": spectral_roughness(actions, low, high),
        "saturation": saturation(actions, low, high),
    }


def _array(name: str, values: Any) -> Array:
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    # A RuntimeError comes from tensors in a list, on a GPU or with a gradient.
    except (TypeError, ValueError, RuntimeError):
        raise DamperError(
            f"{name} must be a regular array of numbers, but the {type(values).__name__} given is "
            "not: join tensors with torch.stack."
        ) from None
    if not np.isfinite(array).all():
        diverged = "look for a diverged policy"
        fix = diverged if name == "actions" else "give the bounds that actions are clipped to"
        raise DamperError(f"{name} must be finite, but NaN or infinity was given: {fix}.")
    return array


def _actions(actions: Actions, shortest: int = 1) -> Array:
    a = _array("actions", actions)
    if a.ndim not in (1, 2):
        raise DamperError(
            f"actions must be [T] or [T, A], but have shape {a.shape}: score one episode at a time."
        )
    if len(a) < shortest or 0 in a.shape[1:]:
        raise DamperError(
            f"actions must hold at least one action, but have shape {a.shape}: was the episode "
            "recorded?"
        )
    return a[:, None] if a.ndim == 1 else a


def _scale(a: Array, low: Bound, high: Bound, unit: float = 1.0) -> tuple[Array, Array]:
    """The lower bound and the range divided by ``unit``; 0 and 1 without bounds."""
    if low is None and high is None:
        return np.zeros(1), np.ones(1)
    if low is None or high is None:
        raise DamperError("low and high must be given together, but one is missing: pass both.")
    lowest, highest = _bound("low", low, a.shape[1]), _bound("high", high, a.shape[1])
    span = highest - lowest
    if not (span > 0).all():
        i = int(np.argmin(span))
        given = f"low={lowest[i]:g} and high={highest[i]:g} were given for dimension {i}"
        raise DamperError(f"low must be below high, but {given}: are they swapped?")
    return lowest, span / unit


def _bound(name: str, values: Bound, A: int) -> Array:
    bound = _array(name, values)
    if bound.shape not in ((), (1,), (A,)):
        requirement = f"{name} must be one number or one per dimension, here {A}"
        raise DamperError(f"{requirement}, but has shape {bound.shape}.")
    return np.broadcast_to(bound, (A,))


def _check_period(period: float) -> None:
    if not 0 < period < np.inf:
        raise DamperError(f"period must be a positive number of seconds, but {period:g} was given.")


def _frequencies(T: int, period: float | None) -> Array:
    if period is None:
        return np.arange(T // 2 + 1) / T
    _check_period(period)
    return np.arange(T // 2 + 1) / (T * period)


def _motion_power(actions: Actions, period: float | None) -> tuple[Array, Array]:
    """Frequencies ``[F]``, and the power of the actions without their mean, ``[F, A]``."""
    a = _actions(actions)
    T = len(a)
    # A Hann window keeps the jump from the last action to the first, and a slow drift, from leaking
    # into high frequencies.
    window = np.sin(np.pi * (np.arange(T) + 0.5) / T)[:, None] ** 2
    motion = a - a.mean(0)
    motion[:, np.ptp(a, axis=0) == 0] = 0.0  # rounding errors of the mean are no motion
    weighted = window * motion
    # Without their mean too: the constant component is no motion, wherever the window put it.
    power = np.abs(np.fft.rfft(weighted - weighted.mean(0), axis=0)) ** 2
    return _frequencies(T, period), _one_sided(T)[:, None] * power


def _changes(actions: Actions, low: Bound, high: Bound) -> Array:
    """``|a_t − a_{t−1}|`` in units of the range, ``[T−1, A]``."""
    a = _actions(actions)
    _, span = _scale(a, low, high)
    return np.abs(np.diff(a, axis=0)) / span


def _one_sided(T: int) -> Array:
    """``c_k``: how often bin k of the one-sided spectrum occurs in the full one."""
    bins = np.arange(T // 2 + 1)
    return np.where((bins == 0) | (2 * bins == T), 1.0, 2.0)
