"""One self-contained HTML page: style, script and data inline, nothing fetched from anywhere."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

SCRIPTS = ("core.js", "chart.js", "results.js", "pictures.js", "sweeps.js", "main.js")


def page(data: dict[str, Any]) -> str:
    """The page that shows ``page_data``'s result."""
    # A "<" in the data could end the script element; JSON may write it as an escape instead.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
    parts = {"style": _read("style.css"), "script": "".join(map(_read, SCRIPTS)), "data": text.replace("<", "\\u003c")}
    out = _read("page.html")
    for name, content in parts.items():
        out = out.replace(f"@@{name}@@", content)
    return out


def _read(name: str) -> str:
    return files("damper.report").joinpath("pages", "html", name).read_text(encoding="utf-8")
