"""The table of ``damper compare``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from damper.cli.compare import changes_against_plain, present
from damper.compare import Comparison
from damper.errors import MissingExtraError
from damper.metrics import MEASURES
from damper.policies.episodes import Episode
from damper.policies.evaluate import Evaluation

BOUND = np.ones(1, np.float32)
ROUGH, SMOOTH, STILL = (0.4, 0.5, 0.6), (0.1, 0.2, 0.3), (0.0, 0.0, 0.1)


def evaluated(*sizes: float, **swept: float) -> Evaluation:
    """Agents that go to and fro by so much each, and earn a little more for it."""
    steps = np.tile([1.0, -1.0], 5).astype(np.float32)[:, None]
    actions = [size * steps for size in sizes]
    episodes = [
        [Episode(0, 100.0 + size, False, own, own, -BOUND, BOUND)]
        for own, size in zip(actions, sizes, strict=True)
    ]
    return Evaluation(
        "Pendulum-v1", [{**swept, "seed": i} for i in range(len(sizes))], episodes, {}
    )


def changes(comparison: Comparison) -> list[dict[str, str]]:
    return [dict(zip(MEASURES, row, strict=True)) for row in changes_against_plain(comparison)]


def compared(folder: Path, **evaluations: Evaluation) -> Comparison:
    return Comparison("Pendulum-v1", "td3", folder, {}, evaluations)


def test_changes_are_against_plain_with_an_interval_over_seeds(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    plain, ours = changes(
        compared(tmp_path, plain=evaluated(*ROUGH), damper=evaluated(*SMOOTH, eta=1.0))
    )
    assert set(plain.values()) == {""}
    # By hand: ln(0.2/0.5) ± 4.3027 · sqrt(0.01/3/0.2² + 0.01/3/0.5²), and the same of returns
    # without the logarithm.
    assert ours["mean_change"] == "−60 % [−90, +52]"
    assert ours["return"] == "−0.3 % [−0.6, +0.1]"
    assert ours["length"] == "", "ten steps everywhere"


def test_no_change_where_there_is_nothing_to_compare(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    for two in (
        {"plain": ROUGH[:2], "damper": SMOOTH},
        {"plain": ROUGH, "damper": SMOOTH[:2]},
        {"caps": SMOOTH},
    ):
        found = changes(
            compared(tmp_path, **{name: evaluated(*sizes) for name, sizes in two.items()})
        )
        assert {change for row in found for change in row.values()} == {""}
    _, ours = changes(compared(tmp_path, plain=evaluated(*ROUGH), damper=evaluated(*STILL)))
    assert ours["mean_change"] == ours["sm"] == ours["spectral_roughness"] == "" != ours["return"]


def test_a_setting_that_all_share_is_compared_with_plain_s_own(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    one, two = evaluated(*ROUGH, gamma=0.9), evaluated(*SMOOTH, gamma=0.99)
    both = Evaluation("Pendulum-v1", one.agents + two.agents, one.episodes + two.episodes, {})
    found = changes(compared(tmp_path, plain=both, damper=both))
    assert [row["mean_change"][:5] for row in found] == ["", "", "0.0 %", "0.0 %"]


def test_the_file_says_what_its_numbers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without(*_: object) -> None:
        raise MissingExtraError("no matplotlib")

    monkeypatch.setattr("damper.cli.compare.draw_traces", without)
    pytest.importorskip("scipy")
    comparison = compared(tmp_path, plain=evaluated(*ROUGH), damper=evaluated(*SMOOTH))
    present(comparison, tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert text.startswith(
        "**Pendulum-v1 td3: mean (spread over seeds; pooled over episodes), change against plain "
        "[95 %"
    )
    assert (
        "−60 % [−90, +52] |" in text
        and "Spread is the sample standard deviation of the seeds' means; pooled is" in text
    )
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    present(comparison, tmp_path)
    assert "changes against plain are not shown: intervals need scipy" in capsys.readouterr().out
    assert "%" not in (tmp_path / "table.md").read_text()
