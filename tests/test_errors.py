"""A missing extra is a mistake that one sentence mends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from damper.engine.envs.envpool_pool import _import_envpool
from damper.engine.run.tensorboard import TensorBoard
from damper.errors import DamperError, MissingExtraError
from damper.intervals import import_scipy
from damper.plots.style import import_matplotlib
from damper.plots.video import check_video
from damper.policies.exported import import_onnx


def import_sb3(tmp_path):
    import damper.sb3  # noqa: F401


def import_rsl_rl(tmp_path):
    import damper.rsl_rl  # noqa: F401


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("envpool", "envpool", lambda _: _import_envpool()),
        ("torch.utils.tensorboard", "tensorboard", lambda path: TensorBoard(None, path)),
        ("matplotlib", "plot", lambda _: import_matplotlib()),
        ("matplotlib", "video", lambda _: check_video(Path("film.gif"))),
        ("scipy.special", "report", lambda _: import_scipy("special")),
        ("onnxruntime", "onnx", lambda _: import_onnx("onnxruntime")),
        ("stable_baselines3", "sb3", import_sb3),
        ("rsl_rl", "rsl-rl", import_rsl_rl),
    ],
)
def test_a_missing_extra_is_an_import_error_too(monkeypatch, tmp_path, package, extra, use):
    for name in [
        name
        for name in sys.modules
        if f"{name}.".startswith(("damper.sb3.", "damper.rsl_rl.", "rsl_rl."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'pip install "damper-rl\[{extra}\]"') as raised:
        use(tmp_path)
    assert isinstance(raised.value, DamperError) and type(raised.value) is MissingExtraError
