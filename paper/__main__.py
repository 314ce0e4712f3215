"""``python -m paper``."""

from __future__ import annotations

from paper.cli import main

main()
