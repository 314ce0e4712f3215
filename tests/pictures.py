"""What a picture says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


def texts(picture: Path) -> list[str]:
    """Every word in an SVG: titles with their scores, labels, ticks."""
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8"))
    assert labels
    return labels


def kept_figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The matplotlib figures that will be drawn, in the place of their files' contents."""
    figures: list[Any] = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: figures.append(figure)
    )
    return figures
