"""A package shipped to worker processes, each of which loads it once."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hbtvm.errors import package_file_error
from hbtvm.runtime.model import Model, load
from hbtvm.streaming.scorer import Scorer

_MOST = 4  # maximal number of loaded models in a process

_loaded: OrderedDict[tuple[str, int | None], Model] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class Shipped:
    """A package's content and prediction options; can be pickled."""

    content: bytes  # bytes of the ``.tar``
    digest: str  # its SHA-256, the key of loaded models
    # `output`, `keep`, `drop`, `threads`: as for `Scorer`
    output: str | None
    keep: tuple[str, ...]
    drop: tuple[str, ...]
    threads: int | None

    @classmethod
    def of(
        cls,
        package: str | os.PathLike[str] | bytes,
        output: str | None = None,
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
        threads: int | None = None,
    ) -> Shipped:
        """Read a package.

        `package`: its path or content.
        Raises `PackageFileError` if it can't be read.
        """
        content = package if isinstance(package, bytes) else _read(Path(package))
        digest = hashlib.sha256(content).hexdigest()
        return cls(content, digest, output, tuple(keep), tuple(drop), threads)

    def scorer(self, schema: pa.Schema) -> Scorer:
        """Return a scorer for rows of a schema; each process loads the model once.

        Raises `InputError`, `PackageError` as for `Scorer`.
        """
        model = loaded(self.content, self.digest, self.threads)
        return Scorer(model, schema, self.output, keep=self.keep, drop=self.drop)


def loaded(content: bytes, digest: str, threads: int | None) -> Model:
    """Return the package's model, loaded earlier or now."""
    key = digest, threads
    with _lock:
        model = _loaded.get(key)
        if model is None:
            model = _loaded[key] = load(content, threads=threads)
        _loaded.move_to_end(key)
        while len(_loaded) > _MOST:
            _loaded.popitem(last=False)
    return model


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"{path}: the package can't be read ({error.strerror})."
        raise package_file_error(text, error, path) from error
