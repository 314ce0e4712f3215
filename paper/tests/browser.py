"""A real browser without a screen."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs Chromium or Chrome, and none is installed here"
)
NARROWEST = 500  # of a window without a screen; a phone's width takes a frame inside one
FRAME = """<!doctype html><body><script>
onmessage = (event) => {{
  const pre = document.createElement("pre");
  pre.id = "selftest";
  pre.textContent = event.data;
  document.body.append(pre);
}};
</script><iframe src="{source}" style="width:{width}px;height:800px;border:0"></iframe></body>"""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # nothing can be fetched from elsewhere
]


def document(
    page: Path, folder: Path, fragment: str = "", width: int = 1280, dark: bool = False
) -> str:
    """The page's document after its scripts ran."""
    assert BROWSER is not None
    flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [
        BROWSER,
        *flags,
        "--virtual-time-budget=60000",
        "--dump-dom",
        f"{page.resolve().as_uri()}{fragment}",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def selftest(page: Path, folder: Path, width: int = 1280, dark: bool = False) -> dict[str, Any]:
    """What the page found when it tried its own controls."""
    opened, fragment = page, "#selftest"
    if width < NARROWEST:
        opened, fragment = folder / "frame.html", ""
        opened.write_text(FRAME.format(source=f"{page.resolve().as_uri()}#selftest", width=width))
    shown = document(opened, folder, fragment, max(width, NARROWEST), dark)
    found = re.search(r'<pre id="selftest">(.*?)</pre>', shown, re.DOTALL)
    assert found, "the page's own test did not end"
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result
