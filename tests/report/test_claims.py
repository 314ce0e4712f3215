from __future__ import annotations

from collections.abc import Callable

import pytest

from damper.experiments.grids import ETAS, TABLE_METHODS, Wanted
from damper.experiments.paper import paper, printed
from damper.experiments.timings import Timing
from damper.report.cells import Setup, setups
from damper.report.claims import Check, Verdict, cost_table, judge, verdicts
from tests.experiments.helpers import agents_of, invented

EXPERIMENTS = ("td3-table", "sac-table", "projection-ablation", "pegrad", "scalarization-sweep", "eta-sweep")
EVERY = agents_of(*EXPERIMENTS)
SWEEP = paper()["scalarization_td3_lowest_sm"] | {"Ant": {"lambda": 0.75, "re": 5486, "sm": 1.574}}
# Between the paper's ends of its figure: falling on two tasks, a bump at 0.6 on Walker.
ETA_SHAPE = {"Walker": (1.0, 0.8, 0.6, 0.7, 0.4, 0.346)}

Change = Callable[[Wanted, float, float], tuple[float, float]]


def papers(agent: Wanted) -> tuple[float, float]:
    """Return and sm that the paper prints for an agent's cell, or shows in a figure."""
    who = agent.identity
    task, method, settings = who["task"], who["method"], who["method_settings"]
    if method == "scalarization":
        best = SWEEP[task]
        at_best = abs(settings["weight"] - best["lambda"]) < 1e-9
        return (best.get("re", 5000), best["sm"]) if at_best else (0.9 * best.get("re", 5000) - 20, 2 * best["sm"])
    re, sm = (printed(who["backbone"], method, task, measure) for measure in ("return", "smoothness"))
    assert re is not None and sm is not None
    main = {"LunarLander": 0.8}.get(task, 1.0)
    if who["backbone"] == "td3" and method == "damper" and task in ("LunarLander", "Hopper", "Walker"):
        place = ETAS.index(float(settings["eta"]))
        if task == "Walker":
            return re.mean, ETA_SHAPE["Walker"][place]
        return re.mean, sm.mean * (1 + 0.1 * (main - ETAS[place]))
    return re.mean, sm.mean


def timings(damper: float = 1.3) -> list[Timing]:
    cost = {"plain": 1.0, "caps": 1.6, "grad-caps": 1.4, "asap": 2.0, "l2c2": 2.5, "pave": 5.0, "damper": damper}
    return [
        Timing(backbone, method, "Hopper", cost[method], 1000, 1, 256, {"device": "cpu"}, {}, {"cpu": "x"}, None, "")
        for backbone in ("td3", "sac")
        for method in TABLE_METHODS
    ]


def world(change: Change = lambda agent, re, sm: (re, sm), agents: list[Wanted] = EVERY) -> Setup:
    records = []
    for agent in agents:
        re, sm = change(agent, *papers(agent))
        records.append(invented(agent, re - 0.45, sm))  # the invented returns' mean is re
    (setup,) = setups(records)
    return setup


def verdict(found: list[Verdict], claim: str) -> Verdict:
    return next(v for v in found if v.id == claim)


@pytest.fixture(scope="module")
def as_printed() -> list[Verdict]:
    return verdicts(world(), timings())


def test_the_papers_own_numbers_uphold_every_claim(as_printed: list[Verdict]) -> None:
    assert [v.id for v in as_printed] == [claim["id"] for claim in paper()["claims"]]
    assert {v.id: v.verdict for v in as_printed} == dict.fromkeys((v.id for v in as_printed), "holds")


def test_nothing_is_known_without_records() -> None:
    found = verdicts(Setup("pave", {}, "gymnasium", {}, {}, 10))
    assert {v.verdict for v in found} == {"not enough data"}


def is_damper(agent: Wanted) -> bool:
    return agent.identity["method"] == "damper"


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("lower-sm-all", lambda a, re, sm: (re, 99.0 if is_damper(a) and a.identity["task"] == "Reacher" else sm)),
        ("lowest-sm-eight", lambda a, re, sm: (re, 0.001 if a.identity["method"] == "asap" else sm)),
        ("td3-lunar-both", lambda a, re, sm: (re - 500 * is_damper(a), sm)),
        ("td3-hopper-walker-tradeoff", lambda a, re, sm: (re + 1e4 * is_damper(a), sm)),
        ("sac-best-return", lambda a, re, sm: (re - 1e4 * is_damper(a), sm)),
        ("sac-ant-walker-tradeoff", lambda a, re, sm: (re + 1e4 * is_damper(a), sm)),
        ("ablation-return", lambda a, re, sm: (re - 1e4 * is_damper(a), sm)),
        ("sum-collapses", lambda a, re, sm: (3000.0 if "sum" in a.identity["method"] else re, sm)),
        ("pegrad", lambda a, re, sm: (re, sm / 2 if a.identity["method"] == "pegrad" else sm)),
        ("scalarization-five", lambda a, re, sm: (re, 0.01 if a.identity["method"] == "scalarization" else sm)),
        ("scalarization-strong", lambda a, re, sm: (re - 9e3 * (a.identity["method"] == "scalarization"), sm)),
        ("eta-monotone", lambda a, re, sm: (re, 1.0 if is_damper(a) else sm)),
    ],
)
def test_a_world_in_which_a_claim_is_false(claim: str, change: Change) -> None:
    assert verdict(verdicts(world(change), timings()), claim).verdict == "fails"


def test_a_costly_update_fails_the_claim() -> None:
    assert verdict(verdicts(world(), timings(1.7)), "cost").verdict == "fails"
    assert cost_table([], "td3") == {}


def test_too_few_seeds_leave_a_claim_open_and_a_counterexample_settles_it() -> None:
    few = agents_of("td3-table", tasks=("LunarLander",), seeds=4)
    assert verdict(verdicts(world(agents=few)), "td3-lunar-both").verdict == "not enough data"
    some = agents_of("td3-table", tasks=("Pendulum",), methods=("plain", "damper"))
    worse = world(lambda a, re, sm: (re, sm + 99 * is_damper(a)), some)
    assert verdict(verdicts(worse), "lower-sm-all").verdict == "fails"
    assert verdict(verdicts(world(agents=some)), "lower-sm-all").verdict == "not enough data"


def test_one_smoother_weight_settles_the_sweep() -> None:
    part = agents_of("scalarization-sweep", tasks=("Hopper", "Reacher"))
    part = [agent for agent in part if agent.identity["method_settings"].get("weight", 0.5) in (0.5, 0.8, 0.95)]
    checks = verdict(verdicts(world(agents=part)), "scalarization-five").checks
    by_task = {task: next(c for c in checks if task in c.text).ok for task in ("Hopper", "Reacher", "Ant")}
    assert by_task == {"Hopper": None, "Reacher": True, "Ant": None}
    smooth = world(lambda a, re, sm: (re, 0.01 if a.identity["method"] == "scalarization" else sm), part)
    assert verdict(verdicts(smooth), "scalarization-five").verdict == "fails"


def test_numbers_stand_in_the_text(as_printed: list[Verdict]) -> None:
    first = verdict(as_printed, "td3-lunar-both").checks[1]
    assert "0.313" in first.text and "1.815" in first.text and "95 %" in first.text


def test_judging() -> None:
    assert judge([Check("", True), Check("", True)]) == "holds"
    assert judge([Check("", True), Check("", None)]) == "not enough data"
    assert judge([Check("", None), Check("", False)]) == "fails"
    assert judge([]) == "not enough data"
