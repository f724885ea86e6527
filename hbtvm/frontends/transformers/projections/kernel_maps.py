"""Transformers that approximate kernels, or multiply kernels with training rows by a matrix."""

from __future__ import annotations

from typing import cast

import numpy as np

from hbtvm.frontends.matrices import type_of
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.dispatch import names_in
from hbtvm.frontends.transformers.projections.matrices import computed, finite
from hbtvm.frontends.transformers.typed import refuse_integers, unified
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.operators.base import Node
from hbtvm.operators.formulas import Kernel, kernel, least_norm
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat

_KERNELS = {
    "linear": (),
    "cosine": (),
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "poly": ("gamma", "degree", "coef0"),
    "polynomial": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
}
"""Parameters of each kernel that is supported."""


def rbf_sampler(record: Record, table: Table, where: Where) -> Table:
    """Read ``RBFSampler``: cosines of random projections."""
    rows = TableRows(table)
    factor = (2.0 / record.whole("n_components", 1)) ** 0.5
    return computed(table, rows, _cosines(record, rows, factor, where), "rbfsampler")


def skewed_chi2_sampler(record: Record, table: Table, where: Where) -> Table:
    """Read ``SkewedChi2Sampler``. Values that are too small make NaN here, an error in scikit-learn."""
    rows = TableRows(table)
    logs = apply("log", apply("add", rows, record.number("skewedness")))
    factor = np.sqrt(2.0) / np.sqrt(record.whole("n_components", 1))
    return computed(table, rows, _cosines(record, logs, factor, where), "skewedchi2sampler")


def _cosines(record: Record, x: Node, factor: float, where: Where) -> Node:
    weight = finite(record, "random_weights_", where, x.width, None)
    offset = finite(record, "random_offset_", where, weight.shape[1])
    phase = apply("add", Contract(x, np.ascontiguousarray(weight)).checked(), offset)
    return apply("multiply", apply("cos", phase), factor)


def additive_chi2_sampler(record: Record, table: Table, where: Where) -> Table:
    """Read ``AdditiveChi2Sampler``. Negative values make NaN here, an error in scikit-learn."""
    steps = record.whole("sample_steps", 1)
    if steps > 1000:
        raise where.damaged(f"it has {steps} steps.")
    interval = record.get("sample_interval", None)
    # Before scikit-learn 1.3 the fit stored the default of None.
    if interval is None and steps > 3:
        raise where.damaged("it has no sample_interval.")
    size = {1: 0.8, 2: 0.5, 3: 0.4}[steps] if interval is None else record.number("sample_interval")

    def in_their_type(x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.where(x > 0, x, 0) * size).astype(x.dtype)

    refuse_integers(unified(table), in_their_type, where, together=True)
    rows = TableRows(table)
    names = names_in(record, table)
    output_names = [f"additivechi2sampler_{name}_sqrt" for name in names or ()]
    parts: list[Node] = [apply("sqrt", apply("multiply", rows, size))]
    zero = apply("equal", rows, 0.0)
    # The result for 0 is replaced, so any number does.
    positive = apply("where", zero, 1.0, rows)
    phase, doubled = apply("multiply", apply("log", positive), size), apply("multiply", positive, 2.0 * size)
    for j in range(1, steps):
        factor = apply("sqrt", apply("divide", doubled, np.cosh(np.pi * j * size)))
        for function in ("cos", "sin"):
            wave = apply("multiply", factor, apply(function, apply("multiply", phase, float(j))))
            parts.append(apply("where", zero, 0.0, wave))
            output_names += [f"additivechi2sampler_{name}_{function}{j}" for name in names or ()]
    output = concat(parts)
    return computed(
        table,
        rows,
        output,
        "additivechi2sampler",
        tuple(output_names) if names else None,
        sparse=table.sparse,
    )


def nystroem(record: Record, table: Table, where: Where) -> Table:
    """Read ``Nystroem``: kernels with some training rows, normalised."""
    points = finite(record, "components_", where, None, len(table))
    parameters = record.get("kernel_params", None) or {}
    if not isinstance(parameters, dict) or parameters:
        raise where.unsupported("has kernel_params, which are not supported; give gamma, degree and coef0.")
    rows = TableRows(table)
    values = kernel_of(record, rows, points, least_norm(type_of(record, "components_")), where)
    weight = finite(record, "normalization_", where, None, len(points)).T
    return computed(table, rows, Contract(values, np.ascontiguousarray(weight)).checked(), "nystroem")


def kernel_pca(record: Record, table: Table, where: Where) -> Table:
    """Read ``KernelPCA``: centred kernels with the training rows, projected."""
    points = finite(record, "X_fit_", where, None, len(table))
    # Before scikit-learn 1.0 these were called lambdas_ and alphas_.
    new = "eigenvalues_" in record
    eigenvalues = finite(record, "eigenvalues_" if new else "lambdas_", where, None)
    vectors = finite(record, "eigenvectors_" if new else "alphas_", where, len(points), len(eigenvalues))
    if (eigenvalues < 0).any():
        raise where.damaged("an eigenvalue is negative.")
    scale = np.sqrt(np.where(eigenvalues == 0, 1.0, eigenvalues))
    weight = np.where(eigenvalues == 0, 0.0, vectors / scale)
    centerer = record.record("_centerer")
    means = finite(centerer, "K_fit_rows_", where, len(points))
    overall = centerer.number("K_fit_all_")
    rows = TableRows(table)
    # A row of a precomputed kernel's matrix is that row's kernels already.
    precomputed = record.get("kernel") == "precomputed"
    values: Node = rows
    if not precomputed:
        values = kernel_of(record, rows, points, least_norm(type_of(record, "X_fit_")), where)
    # Subtracting a row's mean from its kernels is a product with centred weights.
    centred = weight - weight.sum(axis=0) / len(points)
    output = apply("add", Contract(values, centred).checked(), (overall - means) @ weight)
    return computed(table, rows, output, "kernelpca")


def polynomial_count_sketch(record: Record, table: Table, where: Where) -> Table:
    """Read ``PolynomialCountSketch``: a circular convolution of random projections, by Fourier's matrices."""
    width, count = len(table), record.whole("n_components", 1)
    places = record.array("indexHash_", "iu", 2)
    signs = finite(record, "bitHash_", where, *places.shape)
    shift = record.number("coef0") != 0
    if places.shape[1] != width + shift or not len(places) or not np.all((places >= 0) & (places < count)):
        raise where.damaged(f"its indexHash_ has the shape {places.shape}.")
    turns = np.exp(-2j * np.pi * np.outer(np.arange(count), np.arange(count)) / count)
    rows = TableRows(table)
    real: Node | None = None
    for at, sign in zip(places, signs, strict=True):
        spectrum = sign[:, None] * turns[at]
        spectrum[:width] *= np.sqrt(record.number("gamma"))
        offset = np.sqrt(record.number("coef0")) * spectrum[width] if shift else np.zeros(count, complex)
        a, b = (
            apply("add", Contract(rows, np.ascontiguousarray(part[:width])).checked(), constant)
            for part, constant in ((spectrum.real, offset.real), (spectrum.imag, offset.imag))
        )
        if real is None:
            real, imaginary = a, b
            continue
        products = [
            apply("multiply", x, y) for x, y in ((real, a), (imaginary, b), (real, b), (imaginary, a))
        ]
        real, imaginary = apply("subtract", *products[:2]), apply("add", *products[2:])
    assert real is not None
    back = turns.conj() / count
    output = Contract(concat([real, imaginary]), np.concatenate([back.real, -back.imag])).checked()
    return computed(table, rows, output, "polynomialcountsketch")


def kernel_of(record: Record, rows: TableRows, points: np.ndarray, least: float, where: Where) -> Node:
    """Return the kernel of an estimator's parameters, with scikit-learn's defaults for None."""
    name = record.get("kernel")
    if not isinstance(name, str) or name not in _KERNELS:
        actual = repr(name)[:40] if isinstance(name, str) else "a custom function"
        raise where.unsupported(f"has {actual} as its kernel; supported are {', '.join(_KERNELS)}.")
    values = {"gamma": 1.0 / rows.width, "degree": 3.0, "coef0": 1.0}
    for parameter in _KERNELS[name]:
        fitted = f"{parameter}_"
        source = fitted if record.get(fitted, None) is not None else parameter
        if record.get(source, None) is not None:
            values[parameter] = record.number(source)
    kind = cast(Kernel, "poly" if name == "polynomial" else name)
    return kernel(rows, points, kind, values["gamma"], values["coef0"], values["degree"], least)
