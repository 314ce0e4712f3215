"""What the classes share, as in ``stable_baselines3.common``: mixins, networks, state, log."""
