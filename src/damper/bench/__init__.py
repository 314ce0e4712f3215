"""Measurements of speed: each function measures side by side and prints what it found."""
