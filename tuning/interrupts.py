"""Ctrl-C that is not lost.

Python raises `KeyboardInterrupt` in whatever runs in the main thread. Where that is a callback that C called,
or a finalizer, it cannot be passed on and is dropped; a search would go on for its hours.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class NotedInterrupt:
    """Notes for the length of a ``with`` block that Ctrl-C came, beside raising `KeyboardInterrupt`.

    A handler that is not Python's own stays; outside the main thread, which has none, nothing is done.
    """

    def __init__(self) -> None:
        self._came = self._handles = False

    def __enter__(self) -> NotedInterrupt:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._handles = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise what was lost.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C came.
        """
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt
