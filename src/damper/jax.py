"""The rule for JAX: an optax transformation that combines two gradients before the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from damper.errors import DamperError, MissingExtraError, did_you_mean

try:
    import jax
    import optax
    from jax import numpy as jnp
except ImportError as error:
    needed = 'damper.jax needs JAX and optax: pip install "damper-rl[jax]".'
    raise MissingExtraError(needed) from error

TINY = float(jnp.finfo(jnp.float32).tiny)  # a norm below this carries no direction worth keeping


class PairStats(NamedTuple):
    """Norms and cosine of the two gradients; 0 where a norm is below ``TINY`` or not finite."""

    n_R: jax.Array
    n_T: jax.Array
    c: jax.Array


class Report(NamedTuple):
    """Diagnostics of one combination, as in ``damper.GradientReport``."""

    cosine: jax.Array
    norm_ratio: jax.Array
    conflict: jax.Array
    weight: jax.Array
    guard: jax.Array


class AuxiliaryState(NamedTuple):
    """State of ``add_auxiliary``: the number of updates, and what the last one did."""

    count: jax.Array
    report: Report


def damper(stats: PairStats, eta: Any) -> tuple[jax.Array, jax.Array]:
    """The lengths that DAMPER adds along the two directions: see ``damper.rules.damper``."""
    usable = (stats.n_R > 0) & (stats.n_T > 0)
    log_q = jnp.log(jnp.where(usable, stats.n_T, 1.0)) - jnp.log(jnp.where(usable, stats.n_R, 1.0))
    s = jnp.where(usable, stats.n_R * jnp.exp((1.0 - eta) * jnp.minimum(log_q, 0.0)), 0.0)
    return -s * jnp.minimum(stats.c, 0.0), s


# A rule is ``(stats, eta) -> (r, s)``, for ``g_R + r û_R + s û_T``.
Rule = Callable[[PairStats, Any], tuple[jax.Array, jax.Array]]
RULES: dict[str, Rule] = {"damper": damper}


def combine(primary: Any, auxiliary: Any, eta: Any = 1.0, rule: str = "damper") -> Any:
    """The combined gradient of two pytrees of one structure, ``damper.combine`` for JAX.

    η is a number in [0, 1] or a traced scalar, ``rule`` a name in ``damper.jax.RULES``.
    """
    return _combine(primary, auxiliary, _find(rule), _checked(eta))[0]


def add_auxiliary(
    eta: float | Callable[[Any], Any] = 1.0, rule: str = "damper"
) -> optax.GradientTransformationExtraArgs:
    """An optax transformation of the primary gradient, given the auxiliary one as ``auxiliary=``.

    Chain it before the optimizer, and before clipping. The state's ``report`` says what the last
    update did.

    Args:
        eta: DAMPER's η in [0, 1], or an optax schedule of it: a function of the number of updates.
        rule: a name in ``damper.jax.RULES``.

    Example:
        >>> optimizer = optax.chain(add_auxiliary(eta=1.0), optax.adam(3e-4))
        >>> updates, state = optimizer.update(g_R, state, params, auxiliary=g_T)
    """
    coefficients = _find(rule)
    fixed = _checked(eta)

    def init(params: Any) -> AuxiliaryState:
        zero, false = jnp.zeros(()), jnp.zeros((), bool)
        return AuxiliaryState(jnp.zeros((), jnp.int32), Report(zero, zero, false, zero, false))

    def update(
        updates: Any,
        state: AuxiliaryState,
        params: Any = None,
        *,
        auxiliary: Any = None,
        **extra: Any,
    ) -> tuple[Any, AuxiliaryState]:
        if auxiliary is None:
            raise DamperError(
                "auxiliary must be given to update, the gradient of the auxiliary loss: "
                "optimizer.update(gradients, state, params, auxiliary=gradients_of_the_second)."
            )
        now = fixed(state.count) if callable(fixed) else fixed
        combined, report = _combine(updates, auxiliary, coefficients, now)
        return combined, AuxiliaryState(state.count + 1, report)

    return optax.GradientTransformationExtraArgs(init, update)


def temporal_loss(
    policy: Callable[[Any], jax.Array], obs: Any, next_obs: Any, mask: jax.Array | None = None
) -> jax.Array:
    """``mean ‖μ(s') − μ(s)‖²`` over the pairs that the mask keeps, as ``damper.temporal_loss``.

    μ maps observations ``[B, ...]`` to deterministic actions ``[B, A]``; the mask, ``[B]`` or
    ``[B, 1]``, is True (or 1.0) for the pairs to keep.
    """
    squares = jnp.square(policy(next_obs) - policy(obs)).sum(-1)
    if mask is None:
        return squares.mean()
    keep = jnp.reshape(mask, squares.shape).astype(squares.dtype)
    return (squares * keep).sum() / jnp.maximum(keep.sum(), 1.0)


def _combine(primary: Any, auxiliary: Any, coefficients: Rule, eta: Any) -> tuple[Any, Report]:
    if jax.tree.structure(primary) != jax.tree.structure(auxiliary):
        raise DamperError(
            "auxiliary must be a gradient with respect to the same parameters as the primary one, "
            "but their pytrees differ: differentiate both losses by the same argument."
        )
    (x_R, k_R, n_R), (x_T, k_T, n_T) = _scaled(primary), _scaled(auxiliary)
    usable_R, usable_T = (n_R >= TINY) & jnp.isfinite(n_R), (n_T >= TINY) & jnp.isfinite(n_T)
    cosine = jnp.clip(_dot(x_R, x_T) / (k_R * k_T), -1.0, 1.0)
    stats = PairStats(
        jnp.where(usable_R, n_R, 0.0),
        jnp.where(usable_T, n_T, 0.0),
        jnp.where(usable_R & usable_T, cosine, 0.0),
    )
    r, s = coefficients(stats, eta)
    along_R, along_T = r / jnp.where(k_R > 0, k_R, 1.0), s / jnp.where(k_T > 0, k_T, 1.0)

    def add(g_R: jax.Array, x_R: jax.Array, x_T: jax.Array) -> jax.Array:
        g = g_R.astype(x_R.dtype) + along_R * x_R + along_T * x_T
        return jnp.where(usable_T & jnp.isfinite(n_R), g.astype(g_R.dtype), g_R)

    over = jnp.where(usable_R, 1.0 / jnp.where(usable_R, n_R, 1.0), 0.0)
    guard = ~(usable_R & usable_T)
    report = Report(stats.c, stats.n_T * over, stats.c < 0, s * over, guard)
    return jax.tree.map(add, primary, x_R, x_T), report


def _scaled(gradient: Any) -> tuple[Any, jax.Array, jax.Array]:
    """x, ``‖x‖`` and ``‖g‖`` of ``g = m x``, with m such that squares of x do not overflow."""
    # Half precision is computed in float32, and float64 (where JAX has it) in float64.
    wide = jax.tree.map(lambda g: g.astype(jnp.promote_types(g.dtype, jnp.float32)), gradient)
    m = jnp.stack([jnp.max(jnp.abs(g), initial=0.0) for g in jax.tree.leaves(wide)]).max()
    # A power of two scales exactly; within these bounds its reciprocal, by which XLA multiplies,
    # is a normal number.
    m = jnp.clip(jnp.exp2(jnp.floor(jnp.log2(m))), 2.0**-120, 2.0**120)
    x = jax.tree.map(lambda g: g / m, wide)
    k = jnp.sqrt(_dot(x, x))
    return x, k, m * k


def _dot(a: Any, b: Any) -> jax.Array:
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
    return jnp.sum(jnp.stack(jax.tree.leaves(products)))


def _find(rule: str) -> Rule:
    if rule not in RULES:
        hint = did_you_mean(rule, RULES, "the others are for PyTorch only.")
        raise DamperError(f"rule must be one of {', '.join(RULES)}, but {rule!r} was given: {hint}")
    return RULES[rule]


def _checked(eta: Any) -> Any:
    """η; raises for a number outside [0, 1], and lets traced values and schedules pass."""
    if isinstance(eta, int | float) and not 0.0 <= eta <= 1.0:
        raise DamperError(f"eta must be in [0, 1], but {eta} was given.")
    return eta
