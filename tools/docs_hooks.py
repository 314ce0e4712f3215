"""Done while the documentation is built.

Equations become MathML, a folder in ``nav`` its pages, the records a page, and
``<!-- settings -->`` the table of the settings that ``damper.settings`` declares.

Browsers draw MathML themselves, so a page needs neither a script nor a network to show its
equations.
"""

from __future__ import annotations

import html
import math
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from damper.cli.options.training import default_words
from damper.settings import SETTINGS, Setting

ROOT = Path(__file__).parents[1]
REPORT = "results/report.html"
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# LaTeX that the converter does not know, in words that it does.
REWRITE_LATEX = {
    r"\\(begin|end)\{aligned\}": r"\\\1{split}",
    r"\\operatorname\*": r"\\operatorname",
    r"(?<!\\left)(\\l(?:Vert|vert)(?![a-zA-Z]))": r"\\left\1",
    r"(?<!\\right)(\\r(?:Vert|vert)(?![a-zA-Z]))": r"\\right\1",
    r"\\mathrm(?:\{([a-zA-Z0-9 ]+)\}|\s+(\w))": r"\\text{\1\2}",
    r"(\\math(?:bb|bf|cal|sf))\s+(\w)": r"\1{\2}",
}
# MathML that browsers space or draw wrongly: names are not operators, and some widths have no name
# any more.
REWRITE_MATHML = {
    r"<mo[^>]*>(\w{2,}|arg&#x02009;\w+|&#x0221E;)</mo>": r"<mi>\1</mi>",
    r'<mo stretchy="false">&#x0007C;</mo>': '<mo stretchy="false" lspace="0" '
    'rspace="0">&#x0007C;</mo>',
    r"<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>",
    r"negativethinmathspace": "-0.167em",
}
# A command left over, an alignment outside a table, or a style of letter that only Firefox draws.
UNDRAWN = re.compile(r'\\[a-zA-Z]+|<mi>&</mi>|mathvariant="(?!normal|bold)[^"]*"')

log = get_plugin_logger("equations")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace each folder in ``nav`` by a section of its pages.

    ``index.md`` first, the others by name.
    """
    pages = sorted(page.src_uri for page in files.documentation_pages())

    def listed(entry: str) -> str | dict[str, list[str]]:
        if not entry.endswith("/"):
            return entry
        inside = [page for page in pages if page.startswith(entry)]
        return {
            entry.rstrip("/").capitalize(): sorted(
                inside, key=lambda page: page != f"{entry}index.md"
            )
        }

    if written := files.get_file_from_path(REPORT):
        files.remove(written)
    files.append(File.generated(config, REPORT, content=report_page()))
    config.nav = [
        {title: [listed(entry) for entry in entries]}
        for part in config.nav or []
        for title, entries in part.items()
    ]
    return files


def report_page() -> str:
    """All results on one page, made from the records; it is not kept beside them."""
    sys.path.append(str(ROOT))  # where ``paper`` is, which is not installed
    from paper.pages.build import report_page as built

    return built(ROOT / "results")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the mark of the table of settings by the table."""
    if "<!-- settings -->" not in markdown:
        return markdown
    rows = [settings_row(setting) for setting in SETTINGS.values() if setting.option]
    header = ["setting", "meaning", "default", "values", "agents may differ", "decides"]
    lines = [header, ["---"] * len(header), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return markdown.replace("<!-- settings -->", table)


def settings_row(setting: Setting) -> list[str]:
    """The cells of a setting's row."""
    values = ", ".join(setting.choices)
    if {int, float} & {*setting.types}:
        low, high = setting.range
        numbers = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
        values = f"{numbers}, {values}".removesuffix(", ")
    decides = "" if setting.kind == "execution" else "results"
    decides = "which policies are kept" if setting.kind == "evaluation" else decides
    agents = "yes" if setting.per_agent else ""
    return [f"`{setting.name}`", setting.help, default_words(setting), values, agents, decides]


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each equation that Markdown marked by its MathML."""
    return EQUATION.sub(
        lambda match: equation(match[2], match[1] == "div", page.file.src_uri), content
    )


def equation(escaped: str, block: bool, where: str) -> str:
    """One equation as MathML; warns, which fails a strict build, about what would not be drawn."""
    latex = source = html.unescape(escaped)
    for pattern, replacement in REWRITE_LATEX.items():
        latex = re.sub(pattern, replacement, latex)
    mathml = convert(latex, display="block" if block else "inline")
    for pattern, replacement in REWRITE_MATHML.items():
        mathml = re.sub(pattern, replacement, mathml)
    if undrawn := UNDRAWN.search(mathml):
        log.warning(
            "%s: %s in the equation %s would not be drawn.", where, undrawn[0], source.strip()
        )
    return mathml
