"""Errors of damaged models: what reading raises where a file or an object contradicts itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hbtvm.errors import ModelError
from hbtvm.words.printable import shown

DAMAGE = (AttributeError, TypeError, KeyError, IndexError, ValueError, OverflowError)
"""What reading a damaged model raises, beside `ModelError`, which is a `ValueError` as well."""


@contextlib.contextmanager
def damage_of(title: str) -> Iterator[None]:
    """Turn `DAMAGE` that a block raises into a `ModelError`.

    `title`: the model, such as ``the ONNX model``.
    """
    try:
        yield
    except ModelError:
        raise
    except DAMAGE as error:
        raise ModelError(f"{title} is damaged: {type(error).__name__}: {shown(error, most=200)}.") from error
