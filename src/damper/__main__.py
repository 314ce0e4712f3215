"""``python -m damper``."""

from __future__ import annotations

from damper.cli import main

main()
