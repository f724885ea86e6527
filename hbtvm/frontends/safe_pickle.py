"""Pickles of supported models, read without running what else they could call.

A pickle is a small program: it names functions and calls them. Here every name that it asks
for has to be on a list of exact names, and only what the list calls callable is called. So
neither ``os.system`` nor a harmless module's way to it (``sklearn.os.system``) gets through.
Parts of a model that predict nothing, such as random states, become `_Unused`.

Arrays that joblib writes between a pickle's instructions are read here and not by joblib,
because joblib loads arrays of objects with an unchecked unpickler.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hbtvm.errors import HbtvmError, ModelError, UnsupportedModel, UntrustedPickle
from hbtvm.frontends.pickle_names import CALLS, CLASSES, RENAMED, UNUSED
from hbtvm.frontends.supported import LIBRARIES, refusal

_OPENERS: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", gzip.decompress),
    (b"BZ", bz2.decompress),
    (b"\xfd7zXZ", lzma.decompress),
    (b"]\x00", lzma.decompress),
    (b"\x78", zlib.decompress),
)
"""First bytes of the compressed files that joblib writes, and how to expand them."""


def load(path: Path, *, trust: bool = False) -> Any:
    """Load a model object from a pickle or joblib file.

    Parameters
    ----------
    path
        The file; joblib's compressed files are recognised by their first bytes.
    trust
        Load without any check.

    Returns
    -------
    The object. Checked loading leaves parts out that don't predict, so its library can't use
    it for everything.

    Raises
    ------
    UntrustedPickle
        If the pickle asks for anything that no supported model needs.
    UnsupportedModel
        If it holds another kind of model of a supported library.
    ModelError
        If the file is damaged, or needs a library that is not installed.
    OSError
        If the file can't be read.
    """
    content = path.read_bytes()
    try:
        if trust:
            import joblib

            return joblib.load(path)
        return _SafeUnpickler(io.BytesIO(_expand(content))).load()
    except HbtvmError:
        raise
    except ImportError as error:
        raise ModelError(f"the model needs the module {error.name!r}, which can't be imported.") from error
    except EOFError as error:
        raise ModelError("expected a pickled model, but the file ends too early.") from error
    except Exception as error:
        # What a damaged pickle makes its objects raise can be anything.
        reason = str(error).splitlines()[0] if str(error) else "no more is known"
        raise ModelError(
            f"expected a pickled model, but the file is damaged or none ({type(error).__name__}: {reason})."
        ) from error


def _expand(content: bytes) -> bytes:
    for start, expand in _OPENERS:
        if content.startswith(start):
            return expand(content)
    return content


class _Unused:
    """Stands for a part of a model that predicts nothing: takes anything, does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


class _StoredTree:
    """The state of scikit-learn's Cython tree, which checks too little of it itself."""

    def __init__(self, *sizes: Any) -> None:
        self._state: dict[str, Any] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._state = state

    def __getstate__(self) -> dict[str, Any]:
        return self._state


class _StoredArray:
    """What joblib writes before an array's bytes; `pickle` gives it the attributes.

    Attributes
    ----------
    dtype, shape, order
        The array's; ``"F"`` for Fortran order.
    numpy_array_alignment_bytes
        Not None where a byte tells the padding that follows it.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: str
    numpy_array_alignment_bytes: int | None = None

    def read(self, file: io.BytesIO) -> np.ndarray:
        """The array, whose bytes begin where `file` stands."""
        if self.dtype.hasobject:
            nested: np.ndarray = _SafeUnpickler(file).load()
            return nested
        if self.numpy_array_alignment_bytes is not None:
            file.seek(file.read(1)[0], io.SEEK_CUR)
        count = int(np.prod(self.shape, dtype=np.int64))
        content = file.read(count * self.dtype.itemsize)
        array = np.frombuffer(bytearray(content), self.dtype, count)
        return array.reshape(self.shape, order="F" if self.order == "F" else "C")


def _bytes_of(text: str, encoding: str) -> bytes:
    """Bytes as pickles of protocol 2 hold them."""
    if encoding != "latin1":
        raise UntrustedPickle(f"the pickle encodes text as {encoding!r}, which no supported model needs.")
    return text.encode("latin1")


_OURS: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _bytes_of,
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): _StoredArray,
    ("sklearn.tree._tree", "Tree"): _StoredTree,
}
"""Names that stand for classes and functions of this module."""


def _check_dtype(dtype: np.dtype[Any], state: Any) -> None:
    """Refuse the state of a dtype that numpy would not write, such as objects stored as bytes."""
    fields = state[4]
    if fields is None:
        true = dtype
    else:
        parts = [fields[name] for name in state[3]]
        formats, offsets = [part[0] for part in parts], [part[1] for part in parts]
        if not all(isinstance(part, np.dtype) and not part.hasobject for part in formats):
            raise UntrustedPickle("the pickle has an array of records with objects.")
        aligned = bool(state[7] & _ALIGNED)
        record = {"names": list(state[3]), "formats": formats, "offsets": offsets, "itemsize": state[5]}
        true = np.dtype(record, align=aligned)  # type: ignore[call-overload]
    expected = true.__reduce__()[2]
    order = state[1] == expected[1] or (expected[1] != "|" and state[1] in ("<", ">"))
    if not order or tuple(state[2:]) != tuple(expected[2:]):
        raise UntrustedPickle(f"the pickle changes the type {dtype} to one that numpy does not have.")


_ALIGNED = 0x80
"""numpy's flag of an aligned record type."""


# Only the unpickler in Python lets a subclass see each call; joblib builds on it, too.
_PythonUnpickler: Any = pickle._Unpickler


class _SafeUnpickler(_PythonUnpickler):  # type: ignore[misc]
    """Unpickler for the names of `CLASSES`, `CALLS` and `UNUSED` only."""

    dispatch: ClassVar[dict[int, Any]] = dict(_PythonUnpickler.dispatch)

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._file = file
        self._asked = False
        self._classes: set[int] = set()
        self._callables: set[int] = set()

    def find_class(self, module: str, name: str) -> Any:
        """The object of a name on the lists.

        Raises
        ------
        UntrustedPickle
            If it is on none.
        UnsupportedModel
            If the first name asked for, thus the model's class, is another one of a library.
        """
        module = RENAMED.get(module, module)
        first, self._asked = not self._asked, True
        if name in UNUSED.get(module, ()):
            return self._admit(_Unused, self._classes, self._callables)
        if (module, name) in _OURS:
            return self._admit(_OURS[module, name], self._classes, self._callables)
        if name in CLASSES.get(module, ()):
            return self._admit(_attribute(module, name), self._classes)
        if name in CALLS.get(module, ()):
            return self._admit(_attribute(module, name), self._classes, self._callables)
        library = module.partition(".")[0]
        if first and library in LIBRARIES and name.isidentifier() and name[0].isupper():
            raise UnsupportedModel(refusal(library, name))
        raise UntrustedPickle(
            f"the pickle asks for {module}.{name}, which no supported model needs, so it was not loaded; "
            "trust=True (in the shell: --trust) loads it all the same, and runs whatever program it holds."
        )

    @staticmethod
    def _admit(found: Any, *places: set[int]) -> Any:
        for place in places:
            place.add(id(found))
        return found

    def _check(self, found: Any, known: set[int]) -> None:
        if id(found) not in known:
            name = getattr(found, "__qualname__", type(found).__qualname__)
            raise UntrustedPickle(f"the pickle calls {name}, which no supported model does.")

    def load_reduce(self) -> None:
        self._check(self.stack[-2], self._callables)
        super().load_reduce()

    def load_newobj(self) -> None:
        self._check(self.stack[-2], self._classes)
        super().load_newobj()

    def load_newobj_ex(self) -> None:
        self._check(self.stack[-3], self._classes)
        super().load_newobj_ex()

    def _instantiate(self, klass: Any, args: Any) -> None:
        self._check(klass, self._callables)
        super()._instantiate(klass, args)

    def load_build(self) -> None:
        # A state for a class or a function would change it for the whole process.
        owner = self.stack[-2]
        if isinstance(owner, type) or id(owner) in self._callables:
            raise UntrustedPickle(f"the pickle changes {owner.__qualname__}, which no supported model does.")
        if isinstance(owner, np.dtype):
            _check_dtype(owner, self.stack[-1])
        super().load_build()
        if isinstance(owner, _StoredArray):
            self.stack[-1] = owner.read(self._file)

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.BUILD[0]] = load_build


def _attribute(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        library = module.partition(".")[0]
        raise ModelError(
            f"the model needs {module}.{name}, which the {library} installed here does not have."
        ) from error
