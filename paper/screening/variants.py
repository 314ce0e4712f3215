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
    "γ=ρ, ρ n_R√q, rate 0.001": {**ROOT, **RHO, "allowed": 1.0, "allowed_power": 1.0, "rate": 0.001},
    "γ=ρ, ρ n_R, rate 0.1": {**FULL, **RHO, "allowed": 1.0, "allowed_power": 1.0, "rate": 0.1},
}
SCALED = ("plain", "paper η=0", "γ=0, ρ n_R", "γ=ρ, ρ n_R", "γ=ρ, 0.3 ρ n_R", "γ=ρ, ρ n_R√q")
PPO = (
    "plain",
    "paper η=0",
    "γ=0, ρ n_R√q",
    "γ=ρ, ρ n_R√q",
    "γ=ρ², ρ n_R√q",
    "γ=ρ, 0.3 ρ n_R",
    "γ=0, ρ n_R",
)


def complete(name: str) -> dict[str, float]:
    """All settings of a variant."""
    defaults = {"eta": 1.0, "allowed": UNLIMITED, "allowed_power": 0.0, "length_power": 0.0}
    return {**defaults, "share": 1.0, "gain": 1.0, "rate": 0.01, "reward_scale": 1.0, **VARIANTS[name]}
