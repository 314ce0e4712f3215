"""``python -m paper report``: tables, figures and page from the records, and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from damper.files import write_bytes
from damper.tables import markdown_table
from damper.terminal import counted
from paper.claims.comparisons import MIN_SEEDS, VERDICTS
from paper.claims.verdicts import time_verdicts, verdicts
from paper.experiments.catalogue import BACKBONES, ETAS, ONE_ETA
from paper.experiments.printed import title
from paper.experiments.store import Store
from paper.experiments.timings import Timing, read_timings
from paper.figures.results import draw_result_figures
from paper.pages.html_page import page, page_data
from paper.pages.marked import insert
from paper.statistics.cells import MEASURES, Setup, main_setups, setups
from paper.statistics.numbers import minus
from paper.tables import details, pairs
from paper.tables import result_tables as rt
from paper.tables.claims import MEANINGS, caution, claims_table, comparisons_list, decided_table
from paper.tables.markup import latex_results, markdown_results
from paper.tables.missing import missing_table
from paper.tables.ppo import Runs, draw_ppo, ppo_tables, read_ppo

_DOCS = ("index", "results", "results/details", "reproduce", "quickstart", "results/ppo")
PAGES = (Path("README.md"), *(Path(f"docs/{name}.md") for name in _DOCS))
AGGREGATES = (
    "**Over tasks, with 95 % intervals**: the probability that a DAMPER seed beats a seed of the "
    "row's method, averaged over tasks, and the interquartile mean of the method's change from "
    "plain"
)
AGGREGATE_HEADER = ["method", "backbone", "measure", "tasks", "P(DAMPER better)"]
AGGREGATE_HEADER.append("change from plain (IQM)")


def write_report(
    results: str | Path = "results",
    out: str | Path = "docs/results",
    formats: Sequence[str] = ("svg", "png", "pdf"),
    pages: Sequence[Path] = (),
) -> list[Path]:
    """Write ``report.html``, tables and figures; the same records give the same bytes.

    The marked places of ``pages``, Markdown files, get what the records say.
    """
    results, out = Path(results), Path(out)
    every_setup, timings, ppo = setups(Store(results)), read_timings(results), read_ppo(results)
    folders, pictures, embedded = slugs(every_setup), [], {}
    for setup in every_setup:
        drawn = draw_result_figures(setup, out / "figures" / folders[setup.key], formats)
        pictures += drawn
        embedded[setup.key] = _embed(drawn, out)
    pictures += draw_ppo(ppo, out / "figures", formats)
    texts = {
        "report.html": page(page_data(every_setup, timings)),
        "tables.md": _markdown(every_setup, timings, embedded),
        "tables.tex": _latex(every_setup),
    }
    for name, text in texts.items():
        write_bytes(out / name, text.encode())
    tables = page_texts(every_setup, ppo) if pages else {}
    for path in pages:
        insert(path, tables)
    return [*(out / name for name in texts), *pictures]


def report_page(results: Path) -> str:
    """The self-contained page of a store."""
    return page(page_data(setups(Store(results)), read_timings(results)))


def page_texts(every_setup: Sequence[Setup], ppo: Runs) -> dict[str, str]:
    """The tables that stand in the marked places of the project's pages, by name."""
    main = main_setups(every_setup)
    first, other = (main[i : i + 1] for i in (0, 1))
    return {
        "headline": pairs.readme_table(every_setup),
        "pairs": "\n".join(map(pairs.pairs_table, first)),
        "constant": pairs.constant_table(every_setup),
        "claims": decided_table(main),
        "sweep_ends": pairs.ends_of_sweep_table(main),
        "settings": pairs.protocol_settings_table(),
        "returns": details.returns_table(main),
        "missing": missing_table(every_setup),
        "eta": pairs.choosing_eta_table(main),
        "ppo": ppo_tables(ppo),
        "other_pairs": "\n".join(map(pairs.pairs_table, other)),
        "protocols": details.protocols_table(main),
        "sweep": details.sweep_table(main),
        "precision": details.gaps_table(details.precision_gaps(every_setup), "TF32", "float32"),
        "units": details.gaps_table(details.unit_gaps(every_setup), "environment's", "policy's"),
        "distances": details.distances_table(main),
        "late": details.late_table(main),
        "code": details.code_list(main),
    }


def slugs(every_setup: Sequence[Setup]) -> dict[str, str]:
    """Folder names by setup: the protocol for the fullest setup that keeps to it."""
    names: dict[str, str] = {}
    for setup in every_setup:
        name = setup.protocol or "none"
        is_first = not setup.deviations and name not in names.values()
        names[setup.key] = name if is_first else f"{name}-{setup.key}"
    return names


def _embed(paths: Sequence[Path], out: Path) -> str:
    """Each figure once, in the format that a page shows best."""
    best: dict[str, Path] = {}
    for path in paths:
        if path.suffix in (".svg", ".png"):
            best.setdefault(path.stem, path)
    links = {name: path.relative_to(out).as_posix() for name, path in best.items()}
    return "\n".join(f"![{name}]({link})\n" for name, link in links.items())


def _markdown(
    every_setup: Sequence[Setup], timings: Sequence[Timing], pictures: dict[str, str]
) -> str:
    verdict_list = "\n".join(f"- *{word.capitalize()}*: {MEANINGS[word]}." for word in VERDICTS)
    head = files("paper.pages").joinpath("tables_head.md").read_text(encoding="utf-8")
    if not every_setup and not timings:
        return head + "\nNo records yet.\n"
    if timings or main_setups(every_setup):  # no claim is judged on other records
        head += (
            "\nThe verdict on a claim of the paper is that of its worst comparison ([how "
            f"intervals and verdicts are made](../statistics.md)):\n\n{verdict_list}\n\n"
            f"{caution('../statistics.md#verdicts')}\n"
        )
    parts = [head]
    parts += [_section(setup, every_setup, pictures.get(setup.key, "")) for setup in every_setup]
    if timings:
        parts.append(
            "## Update times\n\nMilliseconds per update, and how many times plain's that is, with "
            "the range of the middle nine tenths of the rounds.\n"
        )
        for table in rt.cost_tables(timings):
            parts.append(_captioned(table.caption, rt.COST_HEADER, table.rows))
        timed = time_verdicts(timings)
        parts += [claims_table({"verdict": timed}), comparisons_list(timed)]
    return "\n".join(parts)


def _section(setup: Setup, every: Sequence[Setup], pictures: str) -> str:
    """One setup: claims, tables, sweeps, figures, and what is not in it."""
    others = [f"{counted(s.agents, 'agent')} with {s.title}" for s in every if s is not setup]
    apart = f"Other setups, shown apart: {'; '.join(others)}." if others else ""
    parts = [
        f"## {setup.title}\n",
        f"{counted(setup.agents, 'agent')}, {counted(setup.episodes, 'evaluation episode')} each.",
        (apart or "No other setup is on record.") + "\n",
    ]
    parts += _claims(setup) if setup in main_setups(every) else []
    for backbone in BACKBONES:
        if tables := [*rt.main_tables(setup, [backbone]), *rt.ablation_tables(setup, [backbone])]:
            versions = rt.code_versions(cell for cell in setup.cells if cell.backbone == backbone)
            code = f"<small>Code of the {backbone.upper()} agents: {versions}.</small>\n"
            parts += [*map(markdown_results, tables), code]
    if rows := rt.sweep_rows(setup):
        caption = "**TD3, fixed weights**: the smoothest λ (of how many on record), DAMPER, and "
        parts.append(_captioned(caption + "the paper's smoothest λ", rt.SWEEP_HEADER, rows))
    if rows := rt.eta_rows(setup):
        header = ["task", *(f"η={eta:g}" for eta in ETAS)]
        parts.append(_captioned("**TD3, mean sm over η**", header, rows))
    if rows := rt.other_rows(setup):
        caption = "**Other methods and settings**, means with 95 % intervals"
        parts.append(_captioned(caption, rt.OTHER_HEADER, rows))
    if rows := _aggregate_rows(setup):
        parts.append(_captioned(AGGREGATES, AGGREGATE_HEADER, rows))
    return "\n".join([*parts, pictures])


def _captioned(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"{caption}\n\n{markdown_table(header, rows)}"


def _claims(setup: Setup) -> list[str]:
    """The claims, and the comparisons behind them."""
    ours, at_one_eta = verdicts(setup), verdicts(setup, ONE_ETA)
    judged = {"verdict with the paper's η": ours, f"verdict with η = {ONE_ETA:g}": at_one_eta}
    if not any(verdict.known for column in judged.values() for verdict in column):
        return [f"No claim has a comparison with {MIN_SEEDS} seeds on both sides.\n"]
    return [
        claims_table(judged),
        "The comparisons that are known, with the paper's η:\n",
        comparisons_list(ours),
    ]


def _aggregate_rows(setup: Setup) -> list[list[str]]:
    rows = []
    for a in rt.aggregates(setup):
        change = minus("{:+.0%} ({:+.0%} to {:+.0%})".format(*a.change)) if a.change else ""
        if change and a.change_tasks != a.tasks:
            change += f", {counted(a.change_tasks, 'task')}"
        better = "{:.0%} ({:.0%} to {:.0%})".format(*a.improvement) if a.improvement else ""
        name = title(a.method, a.backbone)
        rows.append([name, a.backbone.upper(), MEASURES[a.measure], str(a.tasks), better, change])
    return rows


def _latex(every_setup: Sequence[Setup]) -> str:
    parts = ["% Written by python -m paper report; needs the booktabs package."]
    for setup in every_setup:
        parts.append(f"% {setup.title}, {counted(setup.agents, 'agent')}")
        parts += map(latex_results, (*rt.main_tables(setup), *rt.ablation_tables(setup)))
    return "\n".join(parts) + "\n"
