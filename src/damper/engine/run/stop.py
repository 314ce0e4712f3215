"""Handle Ctrl-C and SIGTERM as requests to stop after the next step, with everything saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Stopped(KeyboardInterrupt):
    """Training was stopped by a signal, with everything saved; the message says where."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message, number)
        self.message, self.number = message, number

    def __str__(self) -> str:
        return self.message


class StopSignals:
    """Inside its ``with`` block, the first SIGINT or SIGTERM is only stored in ``received``.

    A second one has its usual effect. Signals that the process ignores stay ignored. Outside the
    main thread, the only one that receives signals, it does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self.receive)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._restore()

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Store the first signal, and restore the handlers from before."""
        self.received = number
        self._restore()

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
