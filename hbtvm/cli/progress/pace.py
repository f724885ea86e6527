"""When to print a line of progress."""

from __future__ import annotations


class Pace:
    """Prints at every tenth of the work, and every ten seconds, later less often."""

    def __init__(self) -> None:
        self._tenth = 0
        self._printed = 0.0

    def due(self, share: float, elapsed: float, at_once: bool = False) -> bool:
        """Whether to print a line now.

        `share`: share of the work that is done, 0 to 1.
        `elapsed`: seconds since the start.
        `at_once`: print in any case.
        """
        tenth = int(10 * share)
        late = elapsed - self._printed >= max(10.0, elapsed / 20)
        if not (at_once or late or tenth > self._tenth):
            return False
        self._tenth, self._printed = max(tenth, self._tenth), elapsed
        return True
