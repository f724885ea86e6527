"""Kinds of model files, recognised by their bytes, not by their endings.

XGBoost 3 writes UBJSON under any ending that it does not know, `model.model` among them; LightGBM
writes its text under any name at all.
"""

from __future__ import annotations

import re
from typing import Literal

FileKind = Literal[
    "pickle",
    "json",
    "ubjson",
    "lightgbm",
    "xgboost-binary",
    "package",
    "onnx",
    "rec",
    "zip",
    "catboost",
    "treelite",
    "unknown",
]

_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00", b"\x04\x22\x4d\x18", b"ZF")
"""First bytes of joblib's files: gzip, bzip2, xz, lzma, lz4, and joblib's old format."""

_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]", re.DOTALL)

_PICKLE = re.compile(rb"\x80[\x02-\x09]", re.DOTALL)

_UBJSON = re.compile(rb"\{[iUIlL#$]")
"""An object whose first key has a length, where JSON has a quote."""

_ONNX = re.compile(rb"\x08[\x01-\x1f][\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca]")
"""A version of ONNX's format, and the next field of a model: the producer, the graph, ..."""

_TREELITE = re.compile(rb"[\x03\x04]\0\0\0.\0\0\0.\0\0\0[\x02\x03][\x01-\x03]", re.DOTALL)
"""A version's three numbers, and the types of thresholds and leaves."""

_CATBOOST_JSON = re.compile(rb'\s*\{\s*"(ctr_data|features_info|model_info|oblivious_trees|scale_and_bias)"')

_OBJECTIVE = re.compile(rb"[a-z]{2,12}:[a-z0-9_]{2,24}")
_OBJECTIVE_AT = 136
"""In XGBoost's oldest files the objective's name follows parameters of this many bytes, and its length."""


_ZIP, _ZIP_NAME_AT = b"PK\x03\x04", 30
"""How a zip archive begins, and where the name of its first member stands."""

_REC = b"model.json"  # the first member of what `hbtvm.recursive.Model.save` writes, stored as it is


def kind_of(content: bytes) -> FileKind:
    """Return the kind of a model file, from its bytes (the first 600 are enough).

    Returns ``"pickle"`` for joblib's compressed files too; ``"xgboost-binary"`` for the format that XGBoost
    wrote before version 3; ``"package"`` for what hbtvm compiled; ``"catboost"`` for CatBoost's
    own format; ``"treelite"`` for treelite's checkpoints; ``"rec"`` for a recursive model's file,
    ``"zip"`` for other archives, of which only the names of members tell more; ``"unknown"`` for anything
    else, such as pickles of protocols 0 and 1, which begin like any text.
    """
    if content.startswith(_ZIP):
        size = int.from_bytes(content[_ZIP_NAME_AT - 4 : _ZIP_NAME_AT - 2], "little")
        return "rec" if content[_ZIP_NAME_AT : _ZIP_NAME_AT + size] == _REC else "zip"
    if _PICKLE.match(content) or _ZLIB.match(content) or content.startswith(_COMPRESSED):
        return "pickle"
    if re.match(rb"(\xef\xbb\xbf)?tree[ \t]*\r?\n", content):
        return "lightgbm"
    if content.startswith((b"binf", b"bs64")):
        return "xgboost-binary"
    size = int.from_bytes(content[_OBJECTIVE_AT : _OBJECTIVE_AT + 8], "little")
    if 4 <= size <= 40 and _OBJECTIVE.fullmatch(content[_OBJECTIVE_AT + 8 : _OBJECTIVE_AT + 8 + size]):
        return "xgboost-binary"
    if content[257:262] == b"ustar":
        return "package"
    if content.startswith(b"CBM1") or _CATBOOST_JSON.match(content):
        return "catboost"
    if _TREELITE.match(content):
        return "treelite"
    if _ONNX.match(content):
        return "onnx"
    if _UBJSON.match(content):
        return "ubjson"
    if content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return "json"
    return "unknown"
