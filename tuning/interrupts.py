"""Ctrl-C that is never lost.

Python drops a `KeyboardInterrupt` that it raises inside a finalizer or a callback from C; the search would
continue for hours.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class NotedInterrupt:
    """Remembers Ctrl-C within a ``with`` block, besides raising `KeyboardInterrupt`.

    Does nothing outside the main thread, or if the handler is not Python's default.
    """

    def __init__(self) -> None:
        self._came = self._handles = False

    def __enter__(self) -> NotedInterrupt:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._handles = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise a lost interrupt.

        Raises `KeyboardInterrupt` if Ctrl-C came.
        """
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt
