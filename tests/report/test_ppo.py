"""PPO's page says what its records hold."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damper.errors import DamperError
from damper.experiments.store import Store
from damper.report.ppo import Runs, draw_ppo, ppo_tables, read_ppo
from damper.report.statistics import difference
from tests.pictures import texts

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "results" / "figures" / "ppo.svg"


@pytest.fixture(scope="module")
def runs() -> Runs:
    return read_ppo(ROOT / "results")


def means(runs: Runs, env: str, label: str, measure: str = "return") -> Any:
    return np.array([np.mean(record["measures"][measure]) for record in runs[env][label]])


def test_every_method_has_the_same_settings_and_seeds_and_says_where_it_comes_from(runs: Runs) -> None:
    for env, labels in runs.items():
        seeds = [[record["seed"] for record in records] for records in labels.values()]
        assert all(own == list(range(max(len(own), 5 if env == "Pendulum-v1" else 2))) for own in seeds)
        for name in ("steps", "backend", "n_envs", "vec_normalize", "ppo", "evaluation_seeds", "source"):
            assert len({str(record[name]) for records in labels.values() for record in records}) == 1, name
        for label, records in labels.items():
            for record in records:
                assert record["source"] and record["hardware"]["cpu"] and len(record["measures"]["return"]) == 10
                assert label[7:] == (f"{record['settings']['eta']:g}" if label.startswith("DAMPER") else "")


def test_the_picture_is_that_of_the_records(runs: Runs, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (fresh,) = draw_ppo(runs, tmp_path / "ppo.svg")
    assert texts(fresh) == texts(PICTURE), "run damper report"
    assert "](results/figures/ppo.svg)" in (ROOT / "docs" / "ppo.md").read_text(encoding="utf-8")


def test_what_the_page_says_of_pendulum_holds(runs: Runs) -> None:
    env, plain = "Pendulum-v1", means(runs, "Pendulum-v1", "plain")
    for label, share in (("DAMPER 0", 1 / 5), ("DAMPER 0.5", 1 / 3)):
        gap, interval = difference(means(runs, env, label), plain)
        assert interval is not None and interval.low < 0 < interval.high and gap > 0
        less = 1 - means(runs, env, label, "smoothness").mean() / means(runs, env, "plain", "smoothness").mean()
        assert less == pytest.approx(share, abs=0.03)
    assert means(runs, env, "CAPS").mean() < plain.mean() - 100
    assert means(runs, env, "CAPS", "smoothness").mean() > means(runs, env, "plain", "smoothness").mean()
    assert means(runs, env, "DAMPER 1").max() < -1200 and means(runs, env, "DAMPER 1", "mean_change").max() < 1e-4


def test_what_the_page_says_of_hopper_holds(runs: Runs) -> None:
    env = "Hopper-v5"
    plain, rough = means(runs, env, "plain"), means(runs, env, "plain", "smoothness")
    least, smooth = means(runs, env, "DAMPER 0"), means(runs, env, "DAMPER 0", "smoothness")
    assert least.mean() == pytest.approx(plain.mean(), rel=0.05)
    assert smooth.mean() == pytest.approx(rough.mean() / 6, rel=0.1) and smooth.max() < rough.min()
    assert [(own < 2000).sum() for own in (plain, least)] == [1, 1] and len(plain) == len(least) == 3
    ends = [np.mean([record["curve"]["return"][-1] for record in runs[env][label]]) for label in ("plain", "DAMPER 0")]
    assert ends[1] < 0.75 * ends[0]
    assert means(runs, env, "DAMPER 0.5").mean() == pytest.approx(plain.mean() / 4, rel=0.1)
    assert means(runs, env, "CAPS").mean() > 0.8 * plain.mean()
    assert smooth.mean() == pytest.approx(means(runs, env, "CAPS", "smoothness").mean() / 2, rel=0.1)
    assert means(runs, env, "DAMPER 1").max() < 150 and means(runs, env, "DAMPER 1", "mean_change").max() < 1e-4


def test_the_store_does_not_take_them_for_its_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any("ppo" in str(record.identity["protocol"]) for record in Store(ROOT / "results"))


def test_a_broken_record_is_named_and_none_is_no_table(tmp_path: Path) -> None:
    assert ppo_tables(read_ppo(tmp_path)) == ""
    (tmp_path / "ppo").mkdir()
    shutil.copy(next((ROOT / "results" / "ppo").glob("Pend*plain*-0.json")), tmp_path / "ppo" / "one.json")
    assert "1 seeds each" not in ppo_tables(read_ppo(tmp_path)) and "| plain | " in ppo_tables(read_ppo(tmp_path))
    (tmp_path / "ppo" / "two.json").write_text("{")
    with pytest.raises(DamperError, match=r"two.json is no whole record .*: delete it and train again"):
        read_ppo(tmp_path)
