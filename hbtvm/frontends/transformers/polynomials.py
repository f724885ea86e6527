"""``PolynomialFeatures``: products of columns, computed only if they are read."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations, combinations_with_replacement
from math import comb

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.dispatch import names_in, require_width
from hbtvm.frontends.transformers.projections.matrices import computed
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.operators.products import Monomials

_MOST_DEGREE = 64  # factors of a product; files may claim any number


def polynomial(record: Record, table: Table, where: Where) -> Table:
    """Read ``PolynomialFeatures``."""
    width = len(table)
    # Releases before 1.0 had the largest degree alone.
    most = record.whole("_max_degree") if "_max_degree" in record else record.whole("degree")
    least = record.whole("_min_degree", default=0)
    alone = bool(record.get("interaction_only", False))
    bias = bool(record.get("include_bias", True))
    if most > _MOST_DEGREE:
        raise where.unsupported(f"has the degree {most}; at most {_MOST_DEGREE} is supported.")
    degrees = range(max(1, least), most + 1)
    require_width(bias + sum(comb(width + (0 if alone else d - 1), d) for d in degrees), where)
    choose = combinations if alone else combinations_with_replacement
    terms: list[tuple[int, ...]] = [()] if bias else []
    terms += chain.from_iterable(choose(range(width), d) for d in degrees)
    if not terms:
        raise where.damaged("it makes no column.")
    factors = np.full((len(terms), max(1, *map(len, terms), 1)), width, np.int32)
    for i, term in enumerate(terms):
        # From the last factor on, as the library multiplies: the same roundings.
        factors[i, : len(term)] = term[::-1]
    inputs = accepting(unified(table), nan=False)
    rows = TableRows(inputs)
    names = names_in(record, table)
    named = None if names is None else tuple(_name(term, names) for term in terms)
    monomials = computed(inputs, rows, Monomials(rows, factors).checked(), "", narrow=True)
    return Table(monomials.columns, table.sparse, named)


def _name(term: tuple[int, ...], names: tuple[str, ...]) -> str:
    powers = Counter(term)
    parts = [names[i] if power == 1 else f"{names[i]}^{power}" for i, power in sorted(powers.items())]
    return " ".join(parts) or "1"
