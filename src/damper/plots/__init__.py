"""Drawings of traces and training curves, and videos; each needs matplotlib."""
