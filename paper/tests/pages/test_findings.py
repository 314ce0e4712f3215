"""The pages' sentences, against invented records whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from damper.protocols import TRAINING_SEEDS
from damper.terminal import duration
from paper.experiments.catalogue import EXPERIMENTS, AgentSpec, Request, expand_request
from paper.experiments.store import Record
from paper.pages.below_paper import returns_section
from paper.pages.details import details
from paper.pages.findings import choosing_eta, findings
from paper.pages.headline import headline
from paper.pages.missing import missing
from paper.runners.workers import AGENT_STEPS_PER_SECOND
from paper.statistics.cells import main_setups, setups
from paper.tests.experiments.helpers import agents_of, invented

GPU = {"device": "cuda", "agents": 5, "steps_per_second": 1000.0}
H200 = {"gpu": "NVIDIA H200", "cpu": "x", "cores": 16, "threads": 1}


def seed_of(agent: AgentSpec) -> int:
    return TRAINING_SEEDS.index(agent.identity["seed"])


def record(
    agent: AgentSpec, change: float = 0.1, total: float = 100.0, late: float = 100.0
) -> Record:
    """Every episode the same, seeds a little apart."""
    own = invented(agent)
    values = {
        "mean_change": [change * (1 + 0.01 * seed_of(agent))] * 10,
        "return": [total + seed_of(agent)] * 10,
    }
    return replace(
        own, episodes={**own.episodes, **values}, curve={"step": [500, 1000], "return": [0.0, late]}
    )


def hopper(method: str, experiment: str = "td3-table", **settings: float) -> list[AgentSpec]:
    agents = agents_of(experiment, tasks=("Hopper",), methods=(method,))
    return [
        agent for agent in agents if settings.items() <= agent.identity["method_settings"].items()
    ]


def test_the_findings_name_the_pairs_that_are_not_smoother_and_those_that_earn_less() -> None:
    records = [
        record(agent)
        for agent in agents_of("td3-table", tasks=("Hopper", "Walker"), methods=("plain",))
    ]
    for task, change, total in (("Hopper", 0.05, 100.0), ("Walker", 0.1, 50.0)):
        agents = agents_of("td3-table", tasks=(task,), methods=("damper",))
        records += [record(agent, change, total) for agent in agents]
    first, second, third = findings(setups(records), ()).splitlines()[:3]
    counts = (
        "DAMPER's mean |Δa| is lower in 1 of 2 task–backbone pairs and undecided in 1; its "
        "return is "
    )
    assert first.startswith(f"1. **DAMPER against plain, `pave`.** {counts}")
    smoother, lower = (
        second.split("A lower mean |Δa| is not shown for ")[1],
        third.split("The return is lower for ")[1],
    )
    smoother, other = smoother.split(" `sm` gives another verdict for ")
    assert other.startswith("Hopper, TD3 (0.0 % [0.0, 0.0])") and "Walker" not in other
    assert smoother.startswith("Walker, TD3 (") and "Hopper" not in smoother
    assert lower.startswith("Walker, TD3 (−49 % [") and "Hopper" not in lower


def test_of_many_pairs_a_finding_gives_the_number_and_the_table_that_has_them() -> None:
    agents = agents_of(
        "td3-table", tasks=("Pendulum", "Ant", "Hopper", "Walker"), methods=("plain", "damper")
    )
    records = [
        record(agent, total=50.0 if agent.identity["method"] == "damper" else 100.0)
        for agent in agents
    ]
    said = findings(setups(records), ())
    assert "**Costs.** The return is lower for [4 pairs](#damper-against-plain-pave)." in said
    assert "\n## DAMPER against plain, `pave`\n" in said
    three = [record for record in records if record.identity["task"] != "Ant"]
    assert "The return is lower for Pendulum, TD3 (−49 % [" in findings(setups(three), ())


def test_shorter_episodes_are_named_with_the_early_ends_behind_them() -> None:
    records = []
    tasks = ("LunarLander", "Ant", "Hopper", "Walker")
    for agent in agents_of("td3-table", tasks=tasks, methods=("plain", "damper")):
        task, ours = agent.identity["task"], agent.identity["method"] == "damper"
        # Hopper: seeds of 850 or 900 steps; LunarLander and Ant: 8 % shorter, all seeds alike;
        # Walker: as long.
        lengths = {"Hopper": 850 + 50 * (seed_of(agent) % 2), "LunarLander": 920, "Ant": 920}
        long = lengths.get(task, 1000) if ours else 1000
        own = record(agent)
        ends = {"length": [long] * 10, "terminated": [ours and i < 3 for i in range(10)]}
        records.append(replace(own, episodes={**own.episodes, **ends}))
    (costs,) = (line for line in findings(setups(records), ()).splitlines() if "**Costs.**" in line)
    ant, hopper = costs.split("beyond the noise or by more than 10 % in the mean, for ")[1].split(
        ") and "
    )
    early = "ended early: 0 of 50 with plain, 15 of 50 with DAMPER"
    assert ant == f"Ant, TD3 (−8.0 % [−8.0, −8.0]; {early}"
    # Hopper's mean is 870 with a squared error of 150: the logarithm of 0.87 ± 2.776 · √150 / 870.
    assert hopper == f"Hopper, TD3 (−13 % [−16, −10]; {early})."
    assert "LunarLander" not in costs, "there a shorter episode can be an earlier landing"
    table = findings(setups(records), ()).split("## DAMPER against plain")[1].replace("\u00a0", " ")
    rows = {
        line.split(",")[0]: line.split(" | ")[-1]
        for line in table.splitlines()
        if ", TD3 | " in line
    }
    assert rows["| Walker"] == "1000 |" and rows["| LunarLander"] == "1000 → 920.0 |"


def test_the_findings_say_what_one_eta_does_and_how_often_one_action_is_left() -> None:
    records = [record(agent) for agent in hopper("plain")]
    records += [record(agent, 0.05) for agent in hopper("damper", "eta-sweep", eta=0)]
    records += [record(agent, 0.00001, 50.0) for agent in hopper("damper", "eta-sweep", eta=1)]
    records += [
        record(agent, 0.00001, 4.0) for agent in hopper("unconditional-sum", "projection-ablation")
    ]
    said, advice = findings(setups(records), ()), choosing_eta(setups(records))
    counts = (
        "DAMPER's mean |Δa| is not counted in 1 of 1 task–backbone pair (most agents there "
        "hold one constant"
    )
    assert f"**One η.** With η = 1 everywhere, {counts} action); its return is lower in 1." in said
    place = "#policies-with-one-constant-action"
    assert (
        f"5 of the 5 agents trained with η = 1 ended in [one constant action]({place}).\n" in said
    )
    assert "\n## Policies with one constant action\n" in said
    assert "5 of 5 agents on Hopper, TD3 (mean return 6.00, with DAMPER 52.0)" in said
    (row,) = (line for line in advice.splitlines() if line.startswith("| Hopper, TD3 |"))
    changes = [cell.split(" [")[0] for cell in row.strip("| ").split(" | ")[1:]]
    assert changes == ["−50 %", "constant action, 5 of 5", "0.0 %", "−49 %"]
    assert advice.count("Hopper, TD3 (5 of 5)") == 1


def test_why_protocols_disagree_is_told_by_their_settings() -> None:
    records = [
        record(agent, total=total)
        for protocol, total in (("pave", 10.0), ("authors", 40.0))
        for agent in agents_of(
            "td3-table", tasks=("Pendulum",), methods=("plain",), protocol=protocol
        )
    ]
    said = findings(setups(records), ()).split("## Where the protocols disagree")[1]
    for setting in (
        "setting | `pave` | `authors`",
        "TD3 `learning_rate` | 0.001 | 0.0003",
        "TD3 `gamma`, LunarLander and Pendulum | 0.98 | 0.99",
        "SAC `learning_rate` | 0.001 | 0.0003",
        "SAC `learning_starts` | 10,000 | 100",
        "SAC `batch_size` | 100 | 256",
        "SAC `ent_coef` | 0.2 | auto",
    ):
        assert f"\n| {setting} |\n" in said
    assert said.count("SAC `learning_rate`") == 1, "not again for some tasks"
    assert "`tau`" not in said, "the same in both"


def test_a_return_below_the_paper_s_stands_with_what_can_be_its_cause() -> None:
    """On Hopper the paper has 3078."""
    low = [record(agent, total=2000.0, late=3000.0) for agent in hopper("damper")]
    said = returns_section(main_setups(setups(low)))
    assert (
        said.startswith("*Difference*: from the paper's mean, with its 95 % interval")
        and "not corrected" in said
        and "*`" not in said
    )
    head, _, row = (line.strip("| ").split(" | ") for line in said.splitlines()[-3:])
    assert head == [
        "cell",
        "return",
        "paper",
        "difference",
        "each seed",
        "end of training",
        "other η",
    ]
    # The paper's error is 599 / √5 with four degrees of freedom, the seeds' √½: 1076 ± 2.776 ·
    # 267.9.
    seeds = "2000; 2001; 2002; 2003; 2004"
    assert row == ["Hopper, TD3", "2002", "3078", "**−1076 [−1820, −332]**", seeds, "3000", "–"]
    spread = [
        replace(r, episodes={**r.episodes, "return": [3400.0 - 1500 * i] * 10})
        for i, r in enumerate(low[:3])
    ]
    row = returns_section(main_setups(setups(spread))).splitlines()[-1].split(" | ")
    assert row[3].startswith("−1178 [−4") and row[4] == "3400; 1900; 400", "chance is possible"
    twins = [
        record(agent, total=3000.0)
        for agent in agents_of(
            "td3-table", tasks=("Hopper",), methods=("damper",), protocol="authors"
        )
    ]
    others = [record(agent, total=2500.0) for agent in hopper("damper", "eta-sweep", eta=0)]
    said = returns_section(main_setups(setups([*low, *others, *twins])))
    assert (
        said.splitlines()[-1].endswith(" | 3000 | 2502 | **3002** |")
        and "*`authors`*: that protocol's" in said
    )
    more = [record(agent, total=1000.0) for agent in hopper("damper", "eta-sweep", eta=0.2)]
    less = [replace(r, episodes={**r.episodes, "return": [1000.0] * 10}) for r in twins]
    said = returns_section(main_setups(setups([*low, *others, *more, *less])))
    assert said.splitlines()[-1].endswith(" | 3000 | 1002 to 2502 | 1000 |"), "less is no cause"
    held = [replace(r, episodes={**r.episodes, "mean_change": [0.0] * 10}) for r in low[:2]]
    assert "| Hopper, TD3<br>constant action, 2 of 5 |" in returns_section(
        main_setups(setups([*held, *low[2:]]))
    )
    fine = [record(agent, total=2800.0) for agent in hopper("damper")]
    assert (
        returns_section(main_setups(setups(fine)))
        == "No mean return is that far below the paper's.\n"
    )


def test_a_seed_without_a_return_is_left_out_of_every_sentence() -> None:
    records = [
        record(agent, total=2000.0, late=3000.0) for agent in [*hopper("damper"), *hopper("plain")]
    ]
    lost = {"return": [None] * 10}
    one = [replace(records[0], episodes={**records[0].episodes, **lost}), *records[1:]]
    lost_twin = [
        replace(r := record(agent), episodes={**r.episodes, **lost})
        for agent in agents_of(
            "td3-table", tasks=("Hopper",), methods=("damper",), protocol="authors"
        )
    ]
    lost_eta = [
        replace(r := record(a), episodes={**r.episodes, **lost})
        for a in hopper("damper", "eta-sweep", eta=0)
    ]
    row = returns_section(main_setups(setups([*one, *lost_twin, *lost_eta]))).splitlines()[-1]
    assert row.endswith(" | 2001; 2002; 2003; 2004 | 3000 | – | – |")
    assert "2002 (2001; 2002; 2003; 2004) | 3000 (3000; 3000; 3000; 3000) |" in details(setups(one))
    every = [
        replace(r, episodes={**r.episodes, **lost}) if i < 5 else r for i, r in enumerate(records)
    ]
    assert returns_section(main_setups(setups(every))).startswith("No mean return")
    assert (
        "Hopper, TD3 DAMPER"
        not in details(setups(every)).split("## Last policies")[1].split("\n## ")[0]
    )
    assert "undecided in 1." in findings(setups(every), ()) and " – |" in headline(setups(every))


def test_a_return_of_zero_has_no_change_and_equal_ones_are_within_nothing() -> None:
    agents = [*hopper("plain"), *hopper("damper")]
    level = {"plain": 0.0, "damper": 1.0}
    zero = [
        replace(
            r := record(a), episodes={**r.episodes, "return": [level[a.identity["method"]]] * 10}
        )
        for a in agents
    ]
    row = next(line for line in headline(setups(zero)).splitlines() if line.startswith("| Hopper"))
    assert " | 0.00 → 1.00<br>– | " in row and "inf" not in row and "nan" not in row
    same = [replace(r, episodes={**r.episodes, "return": [7.0] * 10}) for r in zero]
    assert "return within 0 %" in headline(setups(same))


def test_sentences_at_one_and_none() -> None:
    (alone,) = [record(agent) for agent in hopper("plain")][:1]
    said = findings(setups([alone]), ())
    assert (
        "\n1 agent is on record; none diverged. Of the 84 cells " in said
        and "shown apart" not in said
    )
    assert "## DAMPER against plain, `pave`\n\nNothing to compare yet.\n\n## " in findings(
        setups([alone]), ()
    )
    said = details(setups([replace(alone, curve={"step": []})]))
    assert "## Returns against the paper's" not in said and "## Last policies" not in said
    pair = [
        record(agents[0], change)
        for agents, change in ((hopper("plain"), 0.5), (hopper("damper"), 0.01))
    ]
    said = findings(setups(pair), ())
    assert " in 1 of 1 task–backbone pair; " in said.splitlines()[0]
    assert "A lower mean |Δa|" not in said, "one seed has no interval"
    assert "One seed. Below" in headline(setups(pair))
    sums = [
        record(agent)
        for agent in [*hopper("damper"), *hopper("unconditional-sum", "projection-ablation")]
    ]
    assert (
        "(the unconditional sum), no policy ended in one constant action: none of 5 agents on"
        in findings(setups(sums), ())
    )


def test_protocols_that_agree_are_said_to_and_many_places_are_behind_a_link() -> None:
    def both(authors: float) -> str:
        records = [
            record(agent, total=total)
            for protocol, total in (("pave", 10.0), ("authors", authors))
            for agent in agents_of("td3-table", "sac-table", methods=("plain",), protocol=protocol)
        ]
        return findings(setups(records), ())

    agree = both(10.0)
    assert "differs beyond the noise in none of 36 comparisons." in agree
    assert (
        "In none of 36 [comparisons of the same method]" in agree
        and "The return differs" not in agree
    )
    assert (
        "The return differs for [12 of them](results/details.md#the-same-method-under-both-protocols).\n"
        in both(40.0)
    )


def test_a_complete_table_is_called_complete() -> None:
    agents = agents_of("td3-table", "sac-table")
    assert "two main tables, all 84 under `pave` have five" in findings(
        setups([record(agent) for agent in agents]), ()
    )


def test_the_readme_says_how_many_seeds_a_row_has() -> None:
    agents = agents_of(
        "td3-table", tasks=("Reacher", "Hopper", "Walker"), methods=("plain", "damper")
    )
    records = [
        record(a)
        for a in agents
        if a.identity["task"] != "Walker" or a.rank < (3 if "eta" in str(a) else 4)
    ]
    said = headline(setups(records))
    assert "Means of 5 seeds, unless a row gives another n." in said and said.count("n = ") == 1
    assert "| Walker, TD3<br><small>n = 3/4</small> |" in said


def test_what_is_missing_is_listed_with_its_time_on_the_machine_of_the_records() -> None:
    settings = {"device": "cuda", "backend": "envpool", "tf32": True}
    names = tuple(name for name, experiment in EXPERIMENTS.items() if experiment.trained)
    agents = expand_request(Request(names, settings=settings, trained_here=False))
    have = [
        agent for agent in agents if agent.identity["method"] not in ("scalarization", "pegrad")
    ]
    assert missing(setups([invented(agent) for agent in have[:5]])).startswith(
        "No record is from a GPU yet"
    )
    said = missing(setups([invented(agent, run=GPU, hardware=H200) for agent in have]))
    assert (
        "one NVIDIA H200 with 16 cores" in said
        and f"no more than {AGENT_STEPS_PER_SECOND:,} agent steps" in said
    )
    rows = {
        line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:]
        for line in said.splitlines()
        if "`pave`" in line
    }
    assert rows.keys() == {
        f"`pave` {name}" for name in ("`pegrad`", "`scalarization-sweep`", "**all together**")
    }
    assert rows["`pave` `pegrad`"] == [
        "15 of 30",
        "LunarLander 5, Hopper 5, Walker 5",
        duration(1000),
    ]
    sweep = sum(
        100 * agent.identity["training"]["steps"]
        for agent in agents_of("td3-table", methods=("damper",), seeds=1)
    )
    assert rows["`pave` `scalarization-sweep`"][2] == duration(sweep / AGENT_STEPS_PER_SECOND)
    older = [
        replace(
            invented(a, run=GPU, hardware=H200),
            identity={**a.identity, "physics": {"envpool": "0.1"}},
        )
        for a in have
    ]
    assert missing(setups(older)) == said, "whatever is installed here"
    assert "outside these experiments" not in said
    own = expand_request(
        Request(
            ("td3-table",),
            methods=("temporal-ramp",),
            tasks=("Hopper",),
            settings=settings,
            trained_here=False,
        )
    )
    more = missing(setups([invented(agent, run=GPU, hardware=H200) for agent in [*have, *own]]))
    assert "Agents on record outside these experiments are not counted: 5 under `pave`." in more


def test_the_further_comparisons_have_means_and_medians_of_the_sweep() -> None:
    records = [
        record(agent, total=10 * (1 + 2 * (seed_of(agent) == 4)))
        for agent in hopper("damper", "eta-sweep")
    ]
    said = details(setups(records)).split("## The sweep over eta")[1]
    (row,) = (
        line for line in said.splitlines() if line.startswith("| `pave` Hopper, TD3, return |")
    )
    # 10, 11, 12, 13 and 34: one seed carries the mean.
    assert (
        row.count(" | 16.00<br><small>") == 6 and row.count("<br><small>median 12.00</small>") == 6
    )
    assert details([]).endswith("No records yet.\n")
    shorter = [replace(one, deviations={"steps": 5}) for one in records]
    assert details(setups(shorter)).endswith("No records at the settings of a protocol yet.\n")


@pytest.mark.parametrize("write", [choosing_eta, missing])
def test_without_records_there_is_nothing_to_say(write: object) -> None:
    assert callable(write) and write([]).startswith("No record")
