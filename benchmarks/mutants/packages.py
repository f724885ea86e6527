"""Packages whose hashes are right and whose contents are not: loaded, and used for a few rows."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mutants.changes import EDGES, changed_bytes, changed_object, changed_value
from hbtvm.codec import binding
from hbtvm.errors import PackageError
from hbtvm.runtime.model import load
from hbtvm.runtime.package.archive import read_archive, write_archive
from hbtvm.runtime.package.file import read
from hbtvm.runtime.package.manifest import MANIFEST
from hbtvm.runtime.package.summary import facts, kernel_tables, tuning_facts

_DIGEST, _TRANSFORM = "manifest.sha256", "transform.tar"
TEXTS = ["the cat sat", "the dog, the cat!", "", "a dog sat on a mat"] * 20


def prepare(folder: Path) -> None:
    """Compile a forest, columns, texts, clusters, a transformer and a recursive model."""
    from sklearn.cluster import KMeans
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    import hbtvm
    import hbtvm.recursive as rec

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 4)), np.arange(80) % 3
    codes = rng.integers(0, 3, (80, 2)).astype(float)
    forest = RandomForestClassifier(3, max_depth=3, random_state=0).fit(X, np.array(["a", "b", "c"])[y])
    models: dict[str, tuple[Any, Any]] = {
        "forest": (forest, X[:3]),
        "columns": (make_pipeline(OneHotEncoder(), Ridge()).fit(codes, y), codes[:3]),
        "texts": (make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, y), TEXTS[:3]),
        "clusters": (make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(X), X[:3]),
        "scaler": (StandardScaler().fit(X), X[:3]),
        "tree": (_recursive(rec, rng), [[1, [0, 2]], [2, 1], [0, [1, [2, 0]]]]),
    }
    for name, (model, rows) in models.items():
        hbtvm.compile(model, batch_sizes=(1, 64), threads=1).save(folder / f"{name}.tar")
        told = rows if isinstance(rows, list) else rows.tolist()
        (folder / f"{name}.json").write_text(json.dumps(told))


def _recursive(rec: Any, rng: np.random.Generator) -> Any:
    def gate(node: Any, w: Any) -> Any:
        return {"h": rec.tanh(w.U @ rec.total(node.children.h) + node.word)}

    cell = rec.cell(children=2, state={"h": 4}, inputs={"word": rec.embedding("words", optional=True)})(gate)
    shapes = {"words": (3, 4), "U": (4, 4), "head": (2, 4)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return rec.Model(
        cell, weights, rec.roots("h") | rec.linear("head") | rec.softmax(), classes=("no", "yes")
    )


def trials(folder: Path) -> Callable[[int, int], str]:
    """Return what makes and tries a mutant; see `benchmarks.mutants`."""
    names = sorted(path.stem for path in folder.glob("*.tar"))
    samples = {name: (folder / f"{name}.tar").read_bytes() for name in names}
    rows: dict[str, Any] = {name: json.loads((folder / f"{name}.json").read_text()) for name in names}
    if "tree" in rows:
        import hbtvm.recursive as rec

        rows["tree"] = rec.trees(rows["tree"])
    for name in {"forest", "columns", "clusters", "scaler"} & rows.keys():
        rows[name] = np.array(rows[name])

    def trial(number: int, seed: int) -> str:
        rng = random.Random(f"{seed} {number}")
        name = rng.choice(names)
        return _use(mutant(samples[name], rng, list(samples.values())), rows[name])

    return trial


def _use(data: bytes, rows: Any) -> str:
    package = read(data)
    facts(package), kernel_tables(package), tuning_facts(package)
    model = load(data, threads=1)
    # Other rows than the mutant's may be refused; crashes and other errors are faults.
    with contextlib.suppress(ValueError), np.errstate(all="ignore"):
        if model.package.transforms:
            model.transform(rows)
        else:
            for output in (None, *model.package.output.outputs):
                model.predict(rows, output)
    return "used"


def mutant(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Return a changed package; the same for the same state of `rng`."""
    if rng.random() < 0.06:
        return _changed_archive(data, rng, others)
    members = {name: bytes(content) for name, content in read_archive(data, MANIFEST).items()}
    manifest = json.loads(members.pop(MANIFEST))
    members.pop(_DIGEST)
    objects = [name for name in members if name.startswith(("kernels/", "objects/"))]
    tables = [name for name in members if name.endswith(".npy")]
    kind = rng.random()
    if _TRANSFORM in members and kind < 0.4:
        members[_TRANSFORM] = mutant(members[_TRANSFORM], rng, others)
    elif kind < 0.5 and objects:
        name = rng.choice([name for name in objects if name.startswith("kernels/")] or objects)
        shorter = rng.random() < 0.2
        code = members[name]
        members[name] = code[: rng.randrange(len(code))] if shorter else changed_object(code, rng)
        if rng.random() < 0.02:
            members[name] = b""
    elif kind < 0.65 and tables:
        name = rng.choice(tables)
        members[name] = _changed_table(members[name], rng)
    else:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            changed_value(manifest, rng)
    return _sealed(manifest, members, rng)


def _changed_table(data: bytes, rng: random.Random) -> bytes:
    start = 10 + int.from_bytes(data[8:10], "little")
    if rng.random() < 0.2 or len(data) == start:
        return changed_bytes(data, rng, [data])
    made = bytearray(data)
    size = rng.choice((1, 2, 4, 8))
    for _ in range(rng.choice((1, 1, 4, 30))):
        at = start + rng.randrange(0, max(len(data) - start - size, 1), size)
        made[at : at + size] = (rng.choice(EDGES) & (1 << 8 * size) - 1).to_bytes(size, "little")
    return bytes(made[: len(data)])


def _sealed(manifest: Any, members: dict[str, bytes], rng: random.Random) -> bytes:
    """Pack a package with right hashes, unless the manifest lost its list of members."""
    if isinstance(manifest.get("members"), dict):
        for name, data in members.items():
            manifest["members"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    places = [manifest, *(manifest["stages"] if isinstance(manifest.get("stages"), list) else [])]
    for place in places if rng.random() < 0.8 else ():
        kernels = place.get("kernels") if isinstance(place, dict) else None
        for entry in kernels if isinstance(kernels, list) else ():
            if isinstance(entry, dict):
                with contextlib.suppress(Exception):
                    entry["binding"] = binding(copy.deepcopy(entry))
    text = json.dumps(manifest).encode()
    if rng.random() < 0.01:
        text = changed_bytes(text, rng, [text])
    file = io.BytesIO()
    digest = hashlib.sha256(text).hexdigest().encode() + b"\n"
    write_archive({MANIFEST: text, _DIGEST: digest, **members}, file)
    return file.getvalue()


def _changed_archive(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Bytes of the archive changed; or fields of a member's header, with a right checksum."""
    if rng.random() < 0.4:
        return changed_bytes(data, rng, others)
    try:
        names = list(read_archive(data, MANIFEST))
    except PackageError:
        return data
    starts = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"]
    at = rng.choice(starts[: len(names)])
    block = bytearray(data[at : at + 512])
    place, size = rng.choice(((0, 8), (100, 8), (124, 12), (156, 1), (157, 8), (257, 8), (345, 8), (124, 12)))
    new = rng.choice(
        (b"77777777777\0", b"-1", b"00000000000\0", b"\x80" + b"\xff" * 11, b"5", b"1", b"../x", b"L")
    )
    block[place : place + size] = new[:size].ljust(size, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return data[:at] + bytes(block) + data[at + 512 :]
