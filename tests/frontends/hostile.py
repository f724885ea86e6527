"""Hostile pickles, opcode by opcode: parts of them, and files that ask for much memory."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np


def text(word: str) -> bytes:
    """The opcode that puts a short text on the stack."""
    return b"\x8c" + bytes([len(word)]) + word.encode()


def filed(content: bytes, tmp_path: Path) -> Path:
    """A file with this content."""
    path = tmp_path / "model.pkl"
    path.write_bytes(content)
    return path


COUNT = 1_000_000
_MINUS = (b"J\xff\xff\xff\xff", b"J\xfe\xff\xff\xff")
_PAIR = b"\x80\x04" + text("a") + text("b") + b"\x93\x94"
GREEDY: dict[str, bytes] = {
    "lists": b"\x80\x04" + b"]" * 3 * COUNT,
    "dictionaries": b"\x80\x04" + b"}" * 3 * COUNT,
    "sets": b"\x80\x04" + b"\x8f" * COUNT,
    "nothings": b"\x80\x04" + b"N" * COUNT,
    "marks": b"\x80\x04" + b"(" * COUNT,
    "floats": b"\x80\x04" + b"(" + b"G" + bytes(8) + (b"G" + bytes(8)) * (COUNT // 9) + b"l.",
    "numbers": b"\x80\x04]" + b"(" + b"M\xff\xff" * (COUNT // 3) + b"e.",
    "kept lists": b"\x80\x04" + b"]\x94" * COUNT + b".",
    "kept far apart": b"\x80\x04" + b"".join(
        b"Nr%b" % (i * 977).to_bytes(4, "little") for i in range(COUNT // 6)
    ),
    "lists in lists": b"\x80\x04]" + b"]" * (COUNT // 2) + b"a" * (COUNT // 2) + b".",
    "tuples in tuples": b"\x80\x04N" + b"\x85" * COUNT + b".",
    "kept tuples in tuples": b"\x80\x04N" + b"\x85\x94" * (COUNT // 2) + b".",
    "tuples as keys": b"\x80\x04}N" + b"\x85" * (COUNT // 2) + b"Ns.",
    "records": _PAIR + b"h\x00)\x81" * (COUNT // 4) + b".",
    "records in records": _PAIR + b"h\x00)\x81" * (COUNT // 6) + b"b" * (COUNT // 8) + b".",
    "calls": _PAIR + b"h\x00)R" * (COUNT // 4) + b".",
    "doubled": b"\x80\x04]" + b"2" * COUNT + b".",
    "small strings": b"\x80\x04(" + b"\x8c\x01a" * (COUNT // 3) + b"l.",
    "wide strings": b"\x80\x04(" + (b"X\x08\x00\x00\x00abcd\xf0\x9f\x98\x80") * (COUNT // 13) + b"l.",
    "one wide string": b"\x80\x04X" + (COUNT + 4).to_bytes(4, "little") + b"a" * COUNT + "😀".encode() + b".",
    "copies of bytes": b"\x80\x04\x8d" + COUNT.to_bytes(8, "little") + b"a" * COUNT + b"\x940"
    + (b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R") * 2000 + b".",
    "keys that collide": b"\x80\x04}(" + b"".join(
        b"\x8a\x0a" + (i * ((1 << 61) - 1)).to_bytes(10, "little") + b"N" for i in range(1, COUNT // 12)
    ) + b"u.",
    "tuples that collide": b"\x80\x04}(" + b"".join(
        b"(" + b"".join(_MINUS[i >> bit & 1] for bit in range(16)) + b"tN"
        for i in range(1 << 15)
    ) + b"u.",
    "arrays of the same bytes": b"\x80\x04\x8e" + COUNT.to_bytes(8, "little") + b"a" * COUNT + b"\x940"
    + b"cnumpy._core.numeric\n_frombuffer\n\x940cnumpy\ndtype\n\x8c\x02b1\x85R\x940" + (
        b"h\x01(h\x00h\x02J" + COUNT.to_bytes(4, "little") + b"\x85\x8c\x01CtR"
    ) * 500 + b".",
    "claimed array": pickle.dumps(np.zeros(3)).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"),
}  # fmt: skip

READER = """
import json, os, resource, sys
from pathlib import Path
from hbtvm.errors import ModelError
from hbtvm.frontends import load_model
def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
def read(path):
    try:
        load_model(path)
    except ModelError as error:
        return str(error)
    return "model"
first = Path(sys.argv[1]).with_name("first.pkl")
first.write_bytes(b"N.")
read(first)
for path in sys.argv[1:]:
    # Each in a process of its own, as memory once taken counts for ever.
    child = os.fork()
    if not child:
        before = memory()
        text = read(Path(path))
        print(json.dumps([path, text, memory() - before]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path}: the process died")
"""
