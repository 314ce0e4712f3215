"""The variants, by name: settings of ``rule.screen``."""

from __future__ import annotations

from paper.screening.rule import UNLIMITED

FULL, ROOT, CAPPED = {"eta": 1.0}, {"eta": 0.5}, {"eta": 0.0}
RHO = {"length_power": 1.0}
VARIANTS: dict[str, dict[str, float]] = {
    "plain": {"share": 0.0},
    "paper η=0": {**CAPPED},
    "paper η=0.2": {"eta": 0.2},
    "paper η=1": {**FULL},
    "γ=0, n_R": {**FULL, "allowed": 0.0},
    "γ=0.5, n_R": {**FULL, "allowed": 0.5},
    "γ=0, n_R√q": {**ROOT, "allowed": 0.0},
    "γ=0.5, n_R√q": {**ROOT, "allowed": 0.5},
    "γ=0, min(n_R, 10 n_T)": {**CAPPED, "allowed": 0.0, "gain": 10.0},
    "γ=0, ρ n_R": {**FULL, **RHO, "allowed": 0.0},
    "γ=ρ, ρ n_R": {**FULL, **RHO, "allowed": 1.0, "allowed_power": 1.0},
    "γ=ρ², ρ n_R": {**FULL, **RHO, "allowed": 1.0, "allowed_power": 2.0},
    "γ=0, 0.3 ρ n_R": {**FULL, **RHO, "allowed": 0.0, "share": 0.3},
    "γ=ρ, 0.3 ρ n_R": {**FULL, **RHO, "allowed": 1.0, "allowed_power": 1.0, "share": 0.3},
    "γ=0, ρ n_R√q": {**ROOT, **RHO, "allowed": 0.0},
    "γ=ρ, ρ n_R√q": {**ROOT, **RHO, "allowed": 1.0, "allowed_power": 1.0},
    "γ=ρ², ρ n_R√q": {**ROOT, **RHO, "allowed": 1.0, "allowed_power": 2.0},
    "γ=ρ, ρ n_R√q, rate 0.001": {
        **ROOT,
        **RHO,
        "allowed": 1.0,
        "allowed_power": 1.0,
        "rate": 0.001,
    },
    "γ=ρ, ρ n_R, rate 0.1": {**FULL, **RHO, "allowed": 1.0, "allowed_power": 1.0, "rate": 0.1},
}
LAG = {**RHO, "lag": 1.0}
SECOND: dict[str, dict[str, float]] = {
    "γ=0.8, n_R": {**FULL, "allowed": 0.8},
    "γ=0, n_R, rate 0.1": {**FULL, "allowed": 0.0, "rate": 0.1},
    "γ=0.5, n_R, rate 0.1": {**FULL, "allowed": 0.5, "rate": 0.1},
    "γ=0, n_R, rate 0.001": {**FULL, "allowed": 0.0, "rate": 0.001},
    "lag 1: ρ n_R": {**FULL, **LAG},
    "lag 1: ρ n_R√q": {**ROOT, **LAG},
    "lag 1: γ=0, ρ n_R": {**FULL, **LAG, "allowed": 0.0},
    "lag 1: γ=0.5, ρ n_R": {**FULL, **LAG, "allowed": 0.5},
    "lag 1: γ=ρ, ρ n_R": {**FULL, **LAG, "allowed": 1.0, "allowed_power": 1.0},
    "lag 1: γ=ρ², ρ n_R": {**FULL, **LAG, "allowed": 1.0, "allowed_power": 2.0},
    "lag 1: γ=0, ρ n_R√q": {**ROOT, **LAG, "allowed": 0.0},
    "lag 1: γ=0.5, ρ n_R√q": {**ROOT, **LAG, "allowed": 0.5},
    "lag 1: γ=ρ, ρ n_R√q": {**ROOT, **LAG, "allowed": 1.0, "allowed_power": 1.0},
    "lag 1: γ=0, ρ n_R, rate 0.1": {**FULL, **LAG, "allowed": 0.0, "rate": 0.1},
    "lag 1: γ=0, 0.3 ρ n_R": {**FULL, **LAG, "allowed": 0.0, "share": 0.3},
}
NOISE = {"lag": 1.0, "noise_power": 1.0}
UNIT = {**FULL}  # no q: the length follows √L_T, which has the unit of the action
THIRD: dict[str, dict[str, float]] = {
    "√L_T": {**UNIT, "delta": 1.0},
    "√L_T/0.5": {**UNIT, "delta": 0.5},
    "√L_T/0.3": {**UNIT, "delta": 0.3},
    "√L_T/0.1": {**UNIT, "delta": 0.1},
    "γ=0, √L_T": {**UNIT, "delta": 1.0, "allowed": 0.0},
    "γ=0, √L_T/0.3": {**UNIT, "delta": 0.3, "allowed": 0.0},
    "γ=0, √L_T/0.1": {**UNIT, "delta": 0.1, "allowed": 0.0},
    "γ=0.5, √L_T/0.3": {**UNIT, "delta": 0.3, "allowed": 0.5},
    "ρ √L_T/0.3": {**UNIT, **LAG, "delta": 0.3},
    "ρ √L_T/0.1": {**UNIT, **LAG, "delta": 0.1},
    "γ=0, ρ √L_T/0.1": {**UNIT, **LAG, "delta": 0.1, "allowed": 0.0},
    "L_T": {**UNIT, "delta": 1.0, "fade_power": 2.0},
    "L_T/0.5²": {**UNIT, "delta": 0.5, "fade_power": 2.0},
    "L_T/0.3²": {**UNIT, "delta": 0.3, "fade_power": 2.0},
    "L_T/0.1²": {**UNIT, "delta": 0.1, "fade_power": 2.0},
    "min(1, ρ√L_T/0.3)": {**UNIT, **NOISE, "delta": 0.3},
    "min(1, ρ√L_T/0.15)": {**UNIT, **NOISE, "delta": 0.15},
    "min(1, ρ√L_T/0.05)": {**UNIT, **NOISE, "delta": 0.05},
    "min(1, ρ L_T/0.3²)": {**UNIT, **NOISE, "delta": 0.3, "fade_power": 2.0},
    "min(1, ρ L_T/0.15²)": {**UNIT, **NOISE, "delta": 0.15, "fade_power": 2.0},
    "paper η=0": {**CAPPED},
    "plain": {"share": 0.0},
}
_ALL = {**SECOND, **THIRD, **VARIANTS}
FINAL = {
    name: _ALL[name]
    for name in (
        *("plain", "paper η=0", "paper η=0.2", "paper η=1", "γ=0, n_R"),
        *("√L_T", "√L_T/0.5", "√L_T/0.3", "L_T", "L_T/0.5²", "L_T/0.3²"),
        *("min(1, ρ√L_T/0.3)", "min(1, ρ√L_T/0.15)", "min(1, ρ L_T/0.3²)", "min(1, ρ L_T/0.15²)"),
    )
}
SCALED = ("plain", "paper η=0", "√L_T/0.3", "L_T/0.3²", "min(1, ρ√L_T/0.15)", "min(1, ρ L_T/0.15²)")
PPO = ("plain", "paper η=0", "√L_T", "L_T/0.3²", "min(1, ρ√L_T/0.15)", "min(1, ρ L_T/0.15²)")


def complete(name: str) -> dict[str, float]:
    """All settings of a variant."""
    defaults = {"eta": 1.0, "allowed": UNLIMITED, "allowed_power": 0.0, "length_power": 0.0}
    return {
        **defaults,
        "share": 1.0,
        "gain": 1.0,
        "rate": 0.01,
        "lag": 0.0,
        "delta": 0.0,
        "reward_scale": 1.0,
        **_ALL[name],
    }
