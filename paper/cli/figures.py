"""``python -m paper figures``."""

from __future__ import annotations

from damper.files import check_folder
from damper.terminal import quoted, say
from paper.cli.options.figures import Figures
from paper.figures.bench import draw_bench_figures
from paper.figures.methods import draw_method_figures
from paper.figures.theory import draw_theory


def run(options: Figures) -> None:
    """Draw the figures and print their paths."""
    check_folder("out", options.out)
    if options.bench is not None:
        paths = draw_bench_figures(options.bench, options.out, options.formats)
    elif options.methods:
        paths = draw_method_figures(options.results, options.out, options.formats)
    else:
        paths = draw_theory(options.out, options.formats)
    for path in paths:
        say(quoted(path))
