"""Each number in the sentences about the records is formed here from the records."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from damper.intervals import HIGHER, LOWER, NOT_COUNTED, UNDECIDED, percent
from damper.terminal import joined
from paper.claims.comparisons import FAILS, HOLDS, MIN_SEEDS
from paper.claims.verdicts import verdicts
from paper.experiments.catalogue import ABLATION_TASKS, BACKBONES, ONE_ETA, RIVALS, TABLE_METHODS
from paper.experiments.printed import title
from paper.experiments.store import Store
from paper.pages.marked import MARKED
from paper.statistics.cells import Cell, Setup, change, main_setups, setups
from paper.tables.details import below_paper, beside_paper, protocol_gaps
from paper.tables.pairs import pairs
from paper.tables.result_tables import aggregates

ROOT = Path(__file__).parents[2]
FOUND = setups(Store(ROOT / "results"))
PAVE, AUTHORS = main_setups(FOUND)
# Numbers that are names or settings, not results.
NAMES = re.compile(r"TD3|TF32|tf32|float32|SB3|95 %|η = [01]\b")


def signs(measure: str, eta: float | None = None) -> Counter[str]:
    return Counter(change(*pair, measure).sign for pair in pairs(PAVE, eta))


def places(measure: str, sign: str) -> str:
    named = [
        f"{ours.task} with {ours.backbone.upper()}"
        for plain, ours in pairs(PAVE)
        if change(plain, ours, measure).sign == sign
    ]
    return " and ".join(named)


def early(backbone: str, method: str) -> tuple[int, int]:
    """Evaluation episodes on Hopper that ended early, and all."""
    cell = PAVE.find(backbone, "Hopper", method)
    assert cell is not None
    ends = [end for record in cell.records for end in record.episodes["terminated"]]
    return sum(ends), len(ends)


def wins(backbone: str) -> str:
    """The probability that a DAMPER seed earns more than a plain one."""
    (found,) = (
        a.improvement
        for a in aggregates(PAVE)
        if (a.backbone, a.measure, a.method) == (backbone, "return", "plain")
    )
    assert found is not None
    value, low, high = found
    return f"{percent(value)} [{100 * low:.0f}, {100 * high:.0f}]"


def rivals(backbone: str, measure: str, better: bool) -> int:
    """How many of the other smoothing methods DAMPER beats, or is beaten by, beyond the noise."""
    return sum(
        a.improvement[1] > 0.5 if better else a.improvement[2] < 0.5
        for a in aggregates(PAVE)
        if (a.backbone, a.measure) == (backbone, measure) and a.method in RIVALS and a.improvement
    )


def better_with_sac() -> str:
    """The methods whose return is better than DAMPER's beyond the noise."""
    better = [
        a.method
        for a in aggregates(PAVE)
        if (a.backbone, a.measure) == ("sac", "return") and a.improvement and a.improvement[2] < 0.5
    ]
    return joined([f"{'plain' if method == 'plain' else title(method)}'s" for method in better])


def constant_at_one() -> str:
    cells = [c for c in PAVE.cells if c.method == "damper" and c.settings["eta"] == ONE_ETA]
    return f"{sum(len(c.constant) for c in cells)} of {sum(len(c.seeds) for c in cells)}"


def without_projection(task: str) -> str:
    cell = PAVE.find("td3", task, "unconditional-sum")
    assert cell is not None
    return f"{len(cell.constant)} of {len(cell.seeds)}"


def full_cells(setup: Setup) -> int:
    """Cells of the main tables with five seeds."""
    cells: list[Cell] = [cell for cell in setup.published if cell.method in TABLE_METHODS]
    return sum(len(cell.seeds) >= MIN_SEEDS for cell in cells)


def results_page() -> list[str]:
    change_signs, return_signs = signs("mean_change"), signs("return")
    count = sum(change_signs.values())
    td3, sac = ({m: early(b, m) for m in ("damper", "plain")} for b in BACKBONES)
    gaps = protocol_gaps([PAVE, AUTHORS])
    sum_on = {task: without_projection(task) for task in ABLATION_TASKS}
    judged = [verdicts(setup, *eta) for setup in (PAVE, AUTHORS) for eta in ((), (ONE_ETA,))]
    decided = sum(v.verdict in (HOLDS, FAILS) for column in judged for v in column)
    below = sum(1 for _ in below_paper(PAVE)), sum(1 for _ in beside_paper(PAVE))
    frozen = sum(len(cell.frozen) for setup in FOUND for cell in setup.cells)
    cells = len(TABLE_METHODS) * 6 * len(BACKBONES)
    return [
        "Findings 1 to 6 are about",
        f"lower than plain's in {change_signs[LOWER]} of {count} task–backbone pairs and undecided "
        f"in {change_signs[UNDECIDED]}: {places('mean_change', UNDECIDED)}.",
        f"It is lower in {return_signs[LOWER]} of {count} pairs, "
        f"{places('return', LOWER).replace(' with SAC and', ' and')}, and undecided in "
        f"{return_signs[UNDECIDED]}.",
        f"with probability {wins('td3')} with TD3 and {wins('sac')} with SAC.",
        f"On Hopper with TD3, {td3['damper'][0]} of {td3['damper'][1]} evaluation episodes end "
        f"early with DAMPER and {td3['plain'][0]} with plain; with SAC, {sac['damper'][0]} of "
        f"{sac['damper'][1]} and {sac['plain'][0]}.",
        f"better than that of {rivals('td3', 'mean_change', True)} of the {len(RIVALS)} other "
        f"smoothing methods with TD3, and of {rivals('sac', 'mean_change', True)} with SAC; its "
        f"return is worse than that of {rivals('td3', 'return', False)} with TD3, and of "
        f"{rivals('sac', 'return', False)} with SAC.",
        f"mean |Δa| is lower in {signs('mean_change', ONE_ETA)[LOWER]} of "
        f"{sum(signs('return', ONE_ETA).values())} pairs and return is lower in "
        f"{signs('return', ONE_ETA)[LOWER]}.",
        f"{constant_at_one()} ended in one constant action.",
        f"one constant action for {sum_on['Hopper']} agents on Hopper, {sum_on['Walker']} on "
        f"Walker and {sum_on['LunarLander']} on LunarLander",
        f"`pave` and `authors` in {sum(gap.apart for gap in gaps)} of {len(gaps)} comparisons.",
        f"below the paper's in {below[0]} of {below[1]} pairs. Of the paper's {len(judged[0])} "
        f"claims about trained policies, {decided or 'none'} are decided",
        f"The evidence is {sum(setup.agents for setup in FOUND)} agents, of which "
        f"{frozen or 'none'} diverged. Of the {cells} cells",
        f"{full_cells(PAVE)} have five seeds under `pave` and {full_cells(AUTHORS)} under",
        # test_other_physics_at_evaluation_earn_what_the_page_says
        "earn 2874 (TD3, EnvPool 2524) and 1539 (SAC, EnvPool 1712)",
    ]


def readme() -> list[str]:
    change_signs, return_signs = signs("mean_change"), signs("return")
    count = sum(change_signs.values())
    return [
        f"the action change is lower in {change_signs[LOWER]} of {count}, the return lower in "
        f"{return_signs[LOWER]} and undecided in {return_signs[UNDECIDED]}.",
        f"With SAC, over the tasks together, the return is worse than {better_with_sac()}.",
        f"as {constant_at_one()} agents did with η = 1",
    ]


def prose(text: str) -> str:
    """A page's sentences on one line: no tables, links or code, and no numbers of a list."""
    text = re.sub(r"^\d+\. ", "", MARKED.sub("", text), flags=re.MULTILINE)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())


@pytest.mark.parametrize(
    ("page", "start", "end", "phrases"),
    [
        ("docs/results.md", "# Results", "## Deviations", results_page),
        ("README.md", "<!-- headline ends -->", "## Start here", readme),
    ],
)
def test_every_number_in_the_sentences_is_that_of_the_records(page, start, end, phrases) -> None:
    whole = (ROOT / page).read_text(encoding="utf-8")
    text = prose(whole[whole.index(start) : whole.index(end)])
    told = phrases()
    assert [phrase for phrase in told if phrase not in text] == []
    for phrase in told:
        text = text.replace(phrase, "")
    assert re.findall(r".{0,30}\d+.{0,30}", NAMES.sub("", text)) == [], "form it in this test"


def test_what_the_sentences_say_without_a_number_holds() -> None:
    assert not signs("mean_change")[HIGHER] and not signs("return")[HIGHER]
    assert not signs("mean_change")[NOT_COUNTED]
    for a in aggregates(PAVE):
        if a.method in RIVALS and a.improvement and a.measure in ("mean_change", "return"):
            assert a.improvement[2] >= 0.5 or a.measure == "return", "never less smooth"
            assert a.improvement[1] <= 0.5 or a.measure == "mean_change", "never earns more"
    seeds = {len(cell.seeds) for pair in pairs(PAVE) for cell in pair}
    assert seeds == {MIN_SEEDS}, "the pages say five"
    # The README's sentence about returns over the tasks together is about SAC alone.
    assert float(wins("td3").split(", ")[1].rstrip("]")) >= 50
