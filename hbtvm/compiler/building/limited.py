"""Build logged configurations in worker processes, within the time that a search allows a build.

Nothing bounds the compile time of a configuration that a log names: the log may come from a faster machine,
a smaller model, or a text editor.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from hbtvm.errors import BuildError
from hbtvm.schedules.space import Config
from hbtvm.tuning.measuring.messages import Candidate, Failure
from hbtvm.tuning.measuring.pool import Pool, PoolOptions
from hbtvm.tuning.measuring.program import Runnable
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.measuring.worker_process import Limits

PROGRAM = "hbtvm.compiler.building.limited:Call"

LIMITS = Limits()  # limits of each call: those of a search's builds

_Result = TypeVar("_Result")


class Call:
    """A pickled call, as a `hbtvm.tuning.measuring.program.Program` whose library is the pickled result.

    `payload`: ``call``: the path of the pickle.
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        self._call: Callable[[], Any] = pickle.loads(Path(payload["call"]).read_bytes())

    def build(self, config: Config, library_path: str) -> None:
        """Make the call, and write its result."""
        Path(library_path).write_bytes(pickle.dumps(self._call()))

    def load(self, config: Config, library_path: str) -> Runnable:
        """Raise an error: a result is not run here."""
        raise NotImplementedError


def results(calls: Sequence[tuple[str, Callable[[], _Result]]]) -> list[_Result]:
    """Make calls in parallel in worker processes, and return their results.

    `calls`: what each call builds, in words, and the picklable call.
    Raises `BuildError` if a call fails, takes too long or takes too much memory.
    """
    if not calls:
        return []
    options = PoolOptions(min(PoolOptions().builders, len(calls)), LIMITS, measures=False)
    with Scratch("hbtvm-") as folder, Pool([PROGRAM], options) as pool:
        candidates = []
        for number, (_, call) in enumerate(calls):
            path = folder / f"{number}.pickle"
            path.write_bytes(pickle.dumps(call))
            candidates.append(Candidate(PROGRAM, {"call": str(path)}, {}))
        values = []
        for (name, _), built in zip(calls, pool.build(candidates, math.inf), strict=True):
            assert built is not None  # `build` leaves out no candidate without a time limit
            if isinstance(built, Failure):
                raise BuildError(
                    f"the log's configuration for {name} can't be built: {built.message}; compile without "
                    "this log"
                )
            values.append(cast(_Result, pickle.loads(Path(built.path).read_bytes())))
        return values
