"""What a picture says."""

from __future__ import annotations

import re
from pathlib import Path


def texts(picture: Path) -> list[str]:
    """Every word in an SVG: titles with their scores, labels, ticks."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8"))
    assert found
    return found
