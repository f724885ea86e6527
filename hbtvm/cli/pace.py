"""When to tell of progress where nothing can be drawn over: a line now and then."""

from __future__ import annotations


class Pace:
    """A line is due at every tenth of the way, and after each ten seconds, later more seldom."""

    def __init__(self) -> None:
        self._tenth = 0
        self._told = 0.0

    def due(self, share: float, elapsed: float, at_once: bool = False) -> bool:
        """Whether to tell now; if so, the next line is due later.

        Parameters
        ----------
        share
            Part of the way that is done, 0 to 1.
        elapsed
            Seconds since the start.
        at_once
            Whether there is something to tell anyway.
        """
        tenth = int(10 * share)
        late = elapsed - self._told >= max(10.0, elapsed / 20)
        if not (at_once or late or tenth > self._tenth):
            return False
        self._tenth, self._told = max(tenth, self._tenth), elapsed
        return True
