"""Stop on SIGTERM and SIGHUP as on Ctrl-C, and survive the loss of the terminal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import IO, Any, ParamSpec, cast

_HANDLED = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

_Arguments = ParamSpec("_Arguments")


class StopSignals:
    """Turns SIGTERM and SIGHUP into `KeyboardInterrupt` within a ``with`` block.

    ``docker stop``, a batch system or a closed terminal then stop a command as Ctrl-C does. A signal that is
    ignored at the start (``nohup``) stays ignored; outside the main thread nothing changes. After the first
    signal, SIGHUP is ignored: a closed terminal sends it twice, and systemd sends it after SIGTERM. A second
    SIGTERM or Ctrl-C interrupts again.

    Python drops an interrupt inside a finalizer or a callback from C; the object remembers it, and `checked`
    raises it later.

    `received`: the first SIGTERM or SIGHUP, or None.
    `asked`: whether any signal, Ctrl-C included, asked to stop.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in _HANDLED:
                before = signal.getsignal(number)
                # None: not set by Python, so it could not be restored.
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._stop)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before[signal.SIGINT] = signal.default_int_handler
                signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @property
    def name(self) -> str:
        """The signal's name, or Ctrl-C."""
        return self.received.name if self.received is not None else "Ctrl-C"

    @property
    def status(self) -> int:
        """Exit status of a command that was stopped without a result, as shells define it."""
        return 128 + (self.received or signal.SIGINT)

    def checked(self, call: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
        """Wrap a function to raise `KeyboardInterrupt` afterwards if a signal asked to stop."""

        def checking(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> None:
            call(*arguments, **named)
            if self.asked:
                raise KeyboardInterrupt

        return checking

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self.received is None:
            self.received = signal.Signals(number)
            hangup = getattr(signal, "SIGHUP", None)
            if hangup in self._before:
                signal.signal(hangup, signal.SIG_IGN)
        raise KeyboardInterrupt


def lasting(stream: IO[str]) -> IO[str]:
    """Return a text stream that never fails (see `LastingStream`)."""
    return cast("IO[str]", LastingStream(stream))


class LastingStream:
    """Text output that is discarded once it can no longer be written.

    A closed terminal gives EIO, a reader that is gone EPIPE; neither may cost a search its result. The null
    device then replaces the file descriptor, so that buffered text cannot fail at exit.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text; return its length, even if it was lost."""
        try:
            return self._stream.write(text)
        except OSError:
            silence(self._stream)
            return len(text)

    def flush(self) -> None:
        """Write buffered text."""
        try:
            self._stream.flush()
        except OSError:
            silence(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def silence(stream: IO[str]) -> None:
    """Redirect a stream, its buffer included, to the null device."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # a stream without a descriptor
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, descriptor)
    finally:
        os.close(null)
