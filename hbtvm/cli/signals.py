"""SIGTERM and SIGHUP as requests to stop, and output that may be lost while a command runs."""

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
    """Turns SIGTERM and SIGHUP into `KeyboardInterrupt` for the length of a ``with`` block.

    So ``docker stop``, a batch system or a closed terminal end a command as Ctrl-C does. A signal that is
    ignored at the start (``nohup``) stays ignored, and outside the main thread nothing is changed, as
    Python delivers signals there alone. Once a signal has come, SIGHUP is ignored until the end of the block:
    one closed terminal sends it twice, by the kernel and by the shell, and systemd sends it after SIGTERM.
    A second SIGTERM or Ctrl-C interrupts again.

    The interrupt of a signal, Ctrl-C's too, is lost where Python cannot pass it on: inside a callback from C
    or a finalizer. So that it came is noted, and `checked` asks for it later.

    Attributes
    ----------
    received
        The first of SIGTERM and SIGHUP that came; None if none did.
    asked
        Whether any signal asked to stop, Ctrl-C or one of these.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in _HANDLED:
                before = signal.getsignal(number)
                # None: set by something that is not Python, and that could not be restored.
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
        """What stopped the command, for people: the signal's name, or Ctrl-C."""
        return self.received.name if self.received is not None else "Ctrl-C"

    @property
    def status(self) -> int:
        """Exit status of a command that was stopped before it had a result, as shells count."""
        return 128 + (self.received or signal.SIGINT)

    def checked(self, call: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
        """A function that does the same and then raises `KeyboardInterrupt` if a signal asked to stop."""

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
    """A text stream that never fails, see `LastingStream`."""
    return cast("IO[str]", LastingStream(stream))


class LastingStream:
    """Text output that goes nowhere, instead of raising, once it cannot be written any more.

    A closed terminal gives EIO and a reader that went away EPIPE, neither of which should cost a search its
    result. The file descriptor is then replaced by the null device, so that what is still buffered
    cannot fail at exit either.

    Parameters
    ----------
    stream
        Where text goes as long as that works.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text; its length is returned also where it was lost."""
        try:
            return self._stream.write(text)
        except OSError:
            silence(self._stream)
            return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except OSError:
            silence(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def silence(stream: IO[str]) -> None:
    """Let all that a stream still holds, or will be given, go to the null device."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # a stream of Python's own, without a descriptor
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, descriptor)
    finally:
        os.close(null)
