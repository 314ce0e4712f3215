"""Recorded actions and observations of an episode, from a CSV or NPZ file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from damper.errors import DamperError, did_you_mean

Array = NDArray[np.float64]

TIME_NAMES = ("time", "t", "timestamp", "stamp")


@dataclass(frozen=True)
class Log:
    """One recorded episode of T steps."""

    actions: Array  # [T, A]
    action_names: tuple[str, ...]
    observations: Array  # [T, O], O may be 0
    observation_names: tuple[str, ...]
    period: float | None  # seconds per step, if the log tells


def read_log(
    path: Path | str,
    actions: Sequence[str] = (),
    observations: Sequence[str] = (),
    time: str | None = None,
    period: float | None = None,
) -> Log:
    """Read the named columns of a CSV or NPZ file of one episode, a row per step.

    An NPZ array ``q`` of several columns is ``q``, and its columns are ``q[0]``, ``q[1]``, ...
    Without ``actions`` these are the columns that are not named otherwise, and without ``time`` the
    seconds are in one of ``TIME_NAMES``; ``period`` is their step, in place of such a column.
    """
    path = Path(path)
    if period is not None and not 0 < period < math.inf:
        raise DamperError(f"dt must be a positive number of seconds, but {period:g} was given.")
    columns = _read(path)
    if time is None:
        time = next((name for name in columns if name.lower() in TIME_NAMES), None)
    times = _select(path, columns, [time]) if time is not None else []
    observed = _select(path, columns, observations)
    rest = [name for name in columns if name not in (*times, *observed)]
    acted = _select(path, columns, actions) if actions else rest
    if not acted:
        raise DamperError(f"{path} must have a column of actions, but has none besides the others.")
    for name in (*acted, *observed, *times):
        if not np.isfinite(columns[name]).all():
            step = int(np.argmin(np.isfinite(columns[name])))
            raise DamperError(
                f"column {name!r} of {path} must be numbers, but is empty or not finite at step "
                f"{step}: cut the log there, or name the columns of the actions."
            )
    if period is None and times:
        period = _period(path, columns[times[0]])
    length = len(columns[acted[0]])
    if length < 3:
        raise DamperError(f"{path} must have at least three steps, but has {length}.")
    action_values = np.column_stack([columns[name] for name in acted])
    # The empty part keeps the shape where nothing is observed.
    observed_values = [np.empty((length, 0)), *(columns[name] for name in observed)]
    observation_values = np.column_stack(observed_values)
    return Log(action_values, tuple(acted), observation_values, tuple(observed), period)


def _select(path: Path, columns: dict[str, Array], names: Iterable[str]) -> list[str]:
    """The columns of these names, an array's name standing for all of its columns."""
    selected = []
    for name in names:
        matching = [column for column in columns if column == name or column.startswith(f"{name}[")]
        if not matching:
            arrays = dict.fromkeys(column.split("[")[0] for column in columns)
            hint = did_you_mean(name, [*columns, *arrays], f"it has {', '.join(arrays)}.")
            raise DamperError(f"{path} has no column {name!r}: {hint}")
        selected += matching
    return selected


def _period(path: Path, times: Array) -> float:
    steps = np.diff(times)
    if not (steps > 0).all():
        raise DamperError(
            f"the times of {path} must grow at every step, but do not: give --dt, the seconds per "
            "step, or cut the log into episodes."
        )
    return float(np.median(steps))


def _read(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise DamperError(f"{path} must be a CSV or NPZ file, but there is no such file.")
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    if path.suffix.lower() in (".csv", ".txt", ".tsv"):
        return _read_csv(path)
    raise DamperError(
        f"{path} must be a CSV or NPZ file, but ends in {path.suffix or 'nothing'}: convert it."
    )


def _read_csv(path: Path) -> dict[str, Array]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamperError(f"{path} must be text, but is not: is it a CSV file?") from error
    delimiter = next((sign for sign in "\t;," if sign in text.partition("\n")[0]), ",")
    rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
    if not rows:
        raise DamperError(f"{path} must have a row per step, but is empty.")
    header = [cell.strip() for cell in rows[0]]
    if all(_is_number(cell) for cell in header):
        header = [f"column {i}" for i in range(len(header))]
    else:
        rows = rows[1:]
    if len(set(header)) < len(header):
        what = f"the columns of {path} must have different names"
        raise DamperError(f"{what}, but two have the same.")
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise DamperError(
                f"every row of {path} must have {len(header)} values, but row {i + 1} of the data "
                f"has {len(row)}: was the recording cut off?"
            )
    # Words become NaN, which raises only where the column is used: logs hold labels too.
    values = [[float(cell) if _is_number(cell) else math.nan for cell in row] for row in rows]
    table = np.array(values, np.float64).reshape(len(rows), len(header))
    return dict(zip(header, table.T, strict=True))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_npz(path: Path) -> dict[str, Array]:
    columns: dict[str, Array] = {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                array = np.asarray(arrays[name], np.float64)
                if array.ndim == 2:
                    columns |= {f"{name}[{i}]": column for i, column in enumerate(array.T)}
                elif array.ndim == 1:
                    columns[name] = array
    except (OSError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise DamperError(
            f"{path} must be an NPZ file of arrays of numbers, but cannot be read: write it with "
            "numpy.savez."
        ) from error
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        given = f"lengths {', '.join(map(str, sorted(lengths)))}" if lengths else "no such array"
        raise DamperError(
            f"{path} must hold arrays [T] or [T, d] of one length T, but has {given}: save one "
            "episode per file."
        )
    return columns
