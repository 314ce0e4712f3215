"""Result tables in Markdown and LaTeX."""

from __future__ import annotations

from damper.tables import markdown_table
from paper.claims.comparisons import MIN_SEEDS
from paper.statistics.numbers import number
from paper.tables.result_tables import Entry, Table


def markdown_results(table: Table) -> str:
    """A results table in Markdown: mean (spreads), median and every seed, the paper's mean."""
    rows = [
        [name, *(_markdown_entry(e, table.measure) for e in entries)]
        for name, entries in table.rows
    ]
    return f"**{table.caption}**\n\n" + markdown_table(["method", *table.columns], rows)


def _markdown_entry(entry: Entry, measure: str) -> str:
    lines = []
    if entry.ours:
        mean, spread = _numbers(entry, measure)
        lines.append(f"{f'**{mean}**' if entry.best else mean} {spread}{_seeds(entry)}".strip())
        notes = (_each(entry, measure), entry.constant)
        lines += [f"<small>{note}</small>" for note in notes if note]
    if entry.paper:
        spread = number(entry.paper.std, measure, entry.paper.mean)
        lines.append(f"<small>paper {number(entry.paper.mean, measure)} ({spread})</small>")
    return "<br>".join(lines)


def _numbers(entry: Entry, measure: str) -> tuple[str, str]:
    """Mean, and both spreads in brackets."""
    assert entry.ours is not None
    mean, spreads = entry.ours.mean, (entry.ours.over_seeds, entry.ours.pooled)
    texts = [number(spread, measure, mean) for spread in spreads if spread is not None]
    return number(mean, measure), f"({'; '.join(texts)})" if texts else ""


def _each(entry: Entry, measure: str) -> str:
    """Median and the value of every seed: one seed can carry a mean."""
    assert entry.ours is not None
    middle, *each = (
        number(value, measure, entry.ours.mean) for value in (entry.ours.median, *entry.ours.values)
    )
    return f"median {middle} of {', '.join(each)}" if len(each) > 1 else ""


def _seeds(entry: Entry) -> str:
    """Say where a cell does not rest on five sound seeds."""
    assert entry.ours is not None
    notes = [] if entry.ours.seeds == MIN_SEEDS else [f"n={entry.ours.seeds}"]
    notes += ["†"] if entry.frozen else []
    return f" {' '.join(notes)}" if notes else ""


_ESCAPES = {"η": r"$\eta$", "λ": r"$\lambda$", "Δ": r"$\Delta$"}
_ESCAPES |= {"−": "$-$", "×": r"$\times$", "†": r"\textdagger{}"}
_ESCAPES |= {character: f"\\{character}" for character in "%&#_"}


def latex(text: str) -> str:
    """Text with LaTeX's special characters written its way."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def latex_results(table: Table) -> str:
    """A results table in LaTeX (booktabs): mean over both spreads, the best in bold."""
    spreads = "Mean (standard deviation over seeds; over all episodes)"
    caption = rf"\caption{{{latex(table.caption)}. {spreads}.}}"
    lines = [r"\begin{table}[t]", caption, rf"\label{{tab:{table.name}}}", r"\centering"]
    header = " & ".join(["Method", *map(latex, table.columns)]) + r" \\"
    lines += [rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}"]
    lines += [r"\toprule", header, r"\midrule"]
    for name, entries in table.rows:
        cells = [_latex_entry(entry, table.measure) for entry in entries]
        lines.append(" & ".join([latex(name), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex_entry(entry: Entry, measure: str) -> str:
    if not entry.ours:
        return "--"
    mean, spread = _numbers(entry, measure)
    shown = rf"\textbf{{{latex(mean)}}}" if entry.best else latex(mean)
    below = [note for note in (spread, entry.constant) if note]
    notes = "".join(rf"\\{{\scriptsize {latex(note)}}}" for note in below)
    return rf"\shortstack{{{shown}{latex(_seeds(entry))}{notes}}}"
