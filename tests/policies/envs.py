"""Environments that are registered when this module is imported."""

from __future__ import annotations

import gymnasium

from tests.wrappers import Flip

gymnasium.register(
    "Heavy-v0",
    "gymnasium.envs.classic_control.pendulum:PendulumEnv",
    max_episode_steps=200,
    kwargs={"g": 20.0},
)
gymnasium.register(
    "Flipped-v0",
    "gymnasium.envs.classic_control.pendulum:PendulumEnv",
    max_episode_steps=200,
    additional_wrappers=(Flip.wrapper_spec(by=-1.0),),
)
