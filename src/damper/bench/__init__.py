"""Measurements of speed: what is compared runs side by side in one process, turn by turn."""
