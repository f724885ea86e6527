"""`PythonStep`: a step of a pipeline that stays in Python, in front of compiled steps."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Annotated, Any

from hbtvm import codec
from hbtvm.errors import PackageError
from hbtvm.words.printable import shown


@dataclass(frozen=True)
class PythonStep:
    """A function of the rows that the next step reads."""

    name: str  # the step's name in the pipeline
    kind: str  # module and name of its class or function
    # The pickle of `call`, which names classes and functions by their modules; empty until it is saved
    state: Annotated[bytes, codec.Member("python")] = b""
    # From rows to rows; None in a package that was read, until the caller trusts it
    call: Annotated[Any, codec.SKIP] = None

    def __str__(self) -> str:
        return f"step {shown(self.name, 60)!r} ({shown(self.kind, 200)})"

    def pickled(self) -> PythonStep:
        """Return the step with its pickle; `PackageError` if Python can't pickle it."""
        if self.call is None:
            return self
        try:
            return replace(self, state=pickle.dumps(self.call, protocol=5))
        except Exception as error:  # the step's code may raise anything
            raise PackageError(
                f"can't save {self}: {shown(error, 200)}; define its function or class in a module, so "
                "that it can be imported by name."
            ) from None

    def loaded(self) -> PythonStep:
        """Return the step with its function, whose modules are imported; `PackageError` if that fails."""
        if self.call is not None:
            return self
        try:
            return replace(self, call=pickle.loads(self.state))
        except Exception as error:
            raise PackageError(
                f"can't load {self}: {shown(error, 200)}; install the module that defines it, or add it "
                "to sys.path."
            ) from None
