"""PPO's page says what its records hold."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damper.errors import DamperError
from paper.experiments.ppo_records import fold_ppo, ppo_line, read_ppo_records
from paper.experiments.store import Store
from paper.statistics.estimates import difference, mean_interval
from paper.statistics.numbers import with_interval
from paper.tables.ppo import Runs, draw_ppo, ppo_tables, read_ppo
from tests.pictures import texts

ROOT = Path(__file__).parents[3]
LARGE = "Pendulum-v1, minibatches of 1,024"
PICTURE = ROOT / "docs" / "results" / "figures" / "ppo.svg"


@pytest.fixture(scope="module")
def runs() -> Runs:
    return read_ppo(ROOT / "results")


def means(runs: Runs, env: str, label: str, measure: str = "return") -> Any:
    return np.array([np.mean(record["measures"][measure]) for record in runs[env][label]])


def test_every_method_has_the_same_settings_and_seeds_and_says_where_it_comes_from(
    runs: Runs,
) -> None:
    assert list(runs) == ["Pendulum-v1", LARGE, "Hopper-v5"]
    for labels in runs.values():
        assert all(
            [record["seed"] for record in records] == list(range(5)) for records in labels.values()
        )
        assert list(labels) == ["plain", "CAPS", "DAMPER 0", "DAMPER 0.5", "DAMPER 1"]
        for name in (
            "steps",
            "backend",
            "n_envs",
            "vec_normalize",
            "ppo",
            "evaluation_seeds",
            "source",
        ):
            assert (
                len({str(record[name]) for records in labels.values() for record in records}) == 1
            ), name
        for label, records in labels.items():
            for record in records:
                assert (
                    record["source"]
                    and record["hardware"]["cpu"]
                    and len(record["measures"]["return"]) == 10
                )
                assert label[7:] == (
                    f"{record['settings']['eta']:g}" if label.startswith("DAMPER") else ""
                )


def test_the_picture_is_that_of_the_records(runs: Runs, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (fresh,) = draw_ppo(runs, tmp_path, ["svg"])
    assert texts(fresh) == texts(PICTURE), "run python -m paper report"
    assert "](results/figures/ppo.svg)" in (ROOT / "docs" / "ppo.md").read_text(encoding="utf-8")


def undecided(ours: Any, theirs: Any) -> bool:
    _, interval = difference(ours, theirs)
    return interval is not None and interval.low < 0 < interval.high


def ends(runs: Runs, env: str, label: str, at: float = 1.0) -> float:
    """The training return at a share of the steps."""
    curves = [record["curve"]["return"] for record in runs[env][label]]
    return float(np.mean([curve[int(at * (len(curve) - 1))] for curve in curves]))


def test_what_the_page_says_of_pendulum_holds(runs: Runs) -> None:
    env, plain = "Pendulum-v1", means(runs, "Pendulum-v1", "plain")
    rough = means(runs, env, "plain", "sm").mean()
    for label, share in (("DAMPER 0", 1 / 5), ("DAMPER 0.5", 3 / 8)):
        ours = means(runs, env, label)
        gap, interval = difference(ours, plain)
        assert interval is not None and gap == pytest.approx(20, abs=3)
        assert interval.high - gap == pytest.approx(95, abs=1)
        assert undecided(
            means(runs, env, label, "mean_change"), means(runs, env, "plain", "mean_change")
        )
        assert 1 - means(runs, env, label, "sm").mean() / rough == pytest.approx(share, abs=0.02)
    assert ends(runs, env, "DAMPER 0.5", 0.5) < ends(runs, env, "plain", 0.5) - 100
    assert means(runs, env, "CAPS").mean() < plain.mean() - 100 and undecided(
        means(runs, env, "CAPS"), plain
    )
    assert means(runs, env, "CAPS", "sm").mean() == pytest.approx(rough, rel=0.05)
    assert (
        means(runs, env, "DAMPER 1").max() < -1200
        and means(runs, env, "DAMPER 1", "mean_change").max() < 1e-4
    )


def test_what_the_page_says_of_large_minibatches_holds(runs: Runs) -> None:
    plain, rough = means(runs, LARGE, "plain"), means(runs, LARGE, "plain", "sm").mean()
    for label, share in (("DAMPER 0.5", 1 / 5), ("DAMPER 1", 0.3)):
        assert undecided(means(runs, LARGE, label), plain)
        assert (
            means(runs, LARGE, label, "mean_change").mean()
            > means(runs, LARGE, "plain", "mean_change").mean()
        )
        assert 1 - means(runs, LARGE, label, "sm").mean() / rough == pytest.approx(share, abs=0.02)
    assert (
        means(runs, LARGE, "DAMPER 1").min() > -600
        and means(runs, LARGE, "DAMPER 1").mean() < plain.mean() - 100
    )
    assert ends(runs, LARGE, "DAMPER 1", 0.75) < ends(runs, LARGE, "plain", 0.75) - 100
    cosines = [
        np.mean(
            [
                v
                for record in runs[env]["DAMPER 1"]
                for v in record["curve"]["cosine"]
                if v is not None
            ]
        )
        for env in (LARGE, "Pendulum-v1")
    ]
    assert [round(float(cosine), 2) for cosine in cosines] == [-0.37, -0.04]


def test_what_the_page_says_of_hopper_holds(runs: Runs) -> None:
    env = "Hopper-v5"
    plain, rough = means(runs, env, "plain"), means(runs, env, "plain", "sm")
    least, smooth = means(runs, env, "DAMPER 0"), means(runs, env, "DAMPER 0", "sm")
    assert undecided(least, plain) and least.mean() > plain.mean()
    assert smooth.mean() == pytest.approx(rough.mean() / 4, rel=0.1) and smooth.max() < rough.min()
    changes = [means(runs, env, label, "mean_change") for label in ("DAMPER 0", "plain")]
    assert changes[0].mean() == pytest.approx(changes[1].mean() / 6, rel=0.1) and undecided(
        *changes
    )
    assert ends(runs, env, "DAMPER 0") < 0.9 * ends(runs, env, "plain")
    assert means(runs, env, "DAMPER 0.5").mean() == pytest.approx(plain.mean() / 4, rel=0.1)
    caps = means(runs, env, "CAPS")
    assert caps.mean() > 3000 and not undecided(caps, plain) and caps.mean() > least.mean()
    caps_smooth = means(runs, env, "CAPS", "sm").mean()
    assert caps_smooth == pytest.approx(rough.mean() / 2, rel=0.1) and caps_smooth == pytest.approx(
        2 * smooth.mean(), rel=0.1
    )
    assert (
        means(runs, env, "DAMPER 1").max() < 150
        and means(runs, env, "DAMPER 1", "mean_change").max() < 1e-4
    )


def test_no_setting_that_learns_is_shown_to_be_smoother_by_mean_change(runs: Runs) -> None:
    for env, labels in runs.items():
        for label in labels.keys() - {"plain"}:
            ours, plain = (means(runs, env, name, "mean_change") for name in (label, "plain"))
            _, interval = difference(ours, plain)
            assert interval is not None
            if label != "DAMPER 1" or env == LARGE:
                assert interval.high > 0, (env, label)


def test_numbers_read_as_in_the_other_tables(runs: Runs) -> None:
    plain = means(runs, "Pendulum-v1", "plain", "sm")
    assert with_interval(plain.mean(), mean_interval(plain), "sm") in ppo_tables(runs)


def test_the_store_does_not_take_them_for_its_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any(
            "ppo" in str(record.identity["protocol"]) for record in Store(ROOT / "results")
        )


def test_a_broken_record_is_named_and_none_is_no_table(tmp_path: Path) -> None:
    assert ppo_tables(read_ppo(tmp_path)) == ""
    spool = tmp_path / "spool" / "ppo"
    spool.mkdir(parents=True)
    (first, *_) = read_ppo_records(ROOT / "results")
    assert first["label"] == "CAPS"
    (spool / "one.json").write_text(ppo_line(first))
    assert "1 seeds each" not in ppo_tables(read_ppo(tmp_path)) and "| CAPS | " in ppo_tables(
        read_ppo(tmp_path)
    )
    assert fold_ppo(tmp_path) == 1 and not list(spool.iterdir())
    assert read_ppo_records(tmp_path) == [first] and fold_ppo(tmp_path) == 0
    (spool / "two.json").write_text("{")
    with pytest.raises(
        DamperError, match=r"two.json is not a complete record .*: delete it and train again"
    ):
        read_ppo(tmp_path)
