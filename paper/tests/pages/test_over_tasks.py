"""What is said of the tasks together, against invented seeds whose order is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paper.experiments.catalogue import RIVALS, AgentSpec
from paper.experiments.store import Record
from paper.pages.findings import findings
from paper.pages.headline import headline
from paper.pages.over_tasks import beside_the_others, return_over_tasks
from paper.statistics.cells import Setup, setups
from paper.tests.experiments.helpers import agents_of, invented

Level = Mapping[str, tuple[float, float]]  # a method's return and mean |Δa|


def record(agent: AgentSpec, level: Level) -> Record:
    """Seeds a little apart: a level of one more wins every pair, the same level half of them."""
    own, (total, change) = invented(agent), level[agent.identity["method"]]
    values = {
        "return": [total + 0.1 * agent.rank] * 10,
        "mean_change": [change + 0.001 * agent.rank] * 10,
    }
    return replace(own, episodes={**own.episodes, **values})


def world(level: Level, *tasks: str, backbone: str = "td3") -> list[Record]:
    return [
        record(agent, level)
        for agent in agents_of(f"{backbone}-table", tasks=tasks, methods=tuple(level))
    ]


def one(records: list[Record]) -> Setup:
    (setup,) = setups(records)
    return setup


def test_return_over_tasks_is_told_per_backbone_with_the_number_of_tasks() -> None:
    records = world({"plain": (100.0, 0.5), "damper": (100.0, 0.1)}, "Hopper", "Walker")
    records += world({"plain": (100.0, 0.5), "damper": (90.0, 0.1)}, "Hopper", backbone="sac")
    said = return_over_tasks(one(records))
    # Five equal seeds win half of their pairs; five lower ones none, of one task [0, 36] (Newcombe
    # 2006).
    assert said.startswith(
        "The probability that a DAMPER seed earns more than a plain seed, averaged over the tasks, "
        "is "
    )
    assert (
        " is 50 % [" in said
        and "] with TD3 (2 tasks) and 0 % [0, 36] with SAC (1 task). The inter" in said
    )
    # 90.0 to 90.4 less 100.2, the middle three of them: −10 / 100.2.
    assert "interquartile mean of the change in return is −10 % [−10, −10] with SAC." in said
    assert said in headline([one(records)]) and said in findings([one(records)], ()).splitlines()[0]


def test_one_seed_says_nothing_of_the_tasks_together() -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("plain", "damper", "caps"), seeds=1)
    setup = one([invented(agent) for agent in agents])
    assert return_over_tasks(setup) == "" and beside_the_others(setup) == ""


def test_the_other_methods_are_sorted_by_what_their_intervals_say() -> None:
    level = {"damper": (50.0, 0.1), "caps": (40.0, 0.1), "asap": (60.0, 0.3), "pave": (50.0, 0.3)}
    records = world(level, "Hopper", "Walker")
    said = beside_the_others(one(records))
    smooth = "its mean |Δa| is better than that of ASAP and PAVE, and undecided against CAPS; "
    earned = (
        "its return is better than that of CAPS, and worse than that of ASAP, and undecided "
        "against PAVE."
    )
    assert f"With TD3 (2 tasks) {smooth}{earned}" in said and "SAC" not in said
    assert f". {said}" in findings([one(records + world({"plain": (50.0, 1.0)}, "Hopper"))], ())
    every = {"damper": (50.0, 0.1), **dict.fromkeys(RIVALS, (50.0, 0.3))}
    told = beside_the_others(one(world(every, "Hopper")))
    assert (
        "With TD3 (1 task) its mean |Δa| is better than that of all five; its return is undecided "
        "against all" in told
    )
    fewer = [r for r in records if (r.identity["method"], r.identity["task"]) != ("pave", "Walker")]
    assert "With TD3 (1 to 2 tasks) its " in beside_the_others(one(fewer))
