"""Fill the marked places of Markdown pages with what ``python -m paper report`` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from damper.errors import DamperError
from damper.files import write_bytes

MARKED = re.compile(
    r"(<!-- (\w+): written by python -m paper report -->\n).*?(<!-- \2 ends -->)", re.DOTALL
)


def has_place(page: Path) -> bool:
    """Whether a file is there and has a marked place."""
    return page.is_file() and MARKED.search(page.read_text(encoding="utf-8")) is not None


def insert(page: Path, texts: Mapping[str, str]) -> None:
    """Put each text into the place that bears its name."""
    if not has_place(page):
        raise DamperError(
            f"pages must have a marked place, but {page} has none: write '<!-- headline: written "
            "by python -m paper report -->' and '<!-- headline ends -->' on lines of their own."
        )
    content = page.read_text(encoding="utf-8")
    if unknown := {match[2] for match in MARKED.finditer(content)} - set(texts):
        named = f"must be one of {', '.join(texts)}, but {page} has {', '.join(unknown)}"
        raise DamperError(f"a marked place {named}.")
    filled = MARKED.sub(lambda match: f"{match[1]}\n{texts[match[2]]}\n{match[3]}", content)
    write_bytes(page, filled.encode())
