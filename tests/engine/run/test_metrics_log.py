"""The metrics file of a run that is being written, or was killed while it was."""

from __future__ import annotations

from pathlib import Path

from damper.engine.run.metrics_log import MetricsLog, read_metrics


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert read_metrics(log.path) == []
    for step in (50, 100):
        log.write({"step": step})
    text = log.path.read_text()
    # Also a half that happens to be valid JSON: a line ends with its newline.
    for missing in range(1, len('{"step": 100}\n')):
        log.path.write_text(text[:-missing])
        assert read_metrics(log.path) == [{"step": 50}]
