"""Shared by the classes, as in ``stable_baselines3.common``: the mixins, networks as losses see them, state, log."""
