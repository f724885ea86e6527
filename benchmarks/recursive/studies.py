"""What is measured beside the peers: Cortex's ablations, latency against hidden size, linearisation."""

from __future__ import annotations

from typing import Any

_PLAIN: dict[str, Any] = {
    "tile": 4,
    "tail": 0,
    "leaf_tile": 4,
    "leaf": "inner",
    "first": 0,
    "order": "panels",
    "fusion": 0,
    "unroll": 1,
}
_FUSED = {**_PLAIN, "fusion": 1}
_OWN_LEAVES = {**_FUSED, "leaf": "compute"}
_TAILS = {**_OWN_LEAVES, "tail": 2}
_LEAVES = {**_TAILS, "leaf": "table"}
_FIRST = {**_LEAVES, "first": 1}

STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("an operator at a time, level by level", _PLAIN),
    ("+ fusion", _FUSED),
    ("+ leaves of their own", _OWN_LEAVES),
    ("+ tails", _TAILS),
    ("+ leaf states as a table", _LEAVES),
    ("+ products of leaf states as tables", _FIRST),
    ("+ nodes outside, weights inside", {**_FIRST, "order": "nodes"}),
    ("refactored", {**_LEAVES, "refactor": 1}),
)
"""Steps of the ablation (figure 12 of the paper): a name, and schedule choices of strategy ``levels`` that
are taken in place of the default's where the model has them. Each has those before it, but for refactoring,
which goes without products of leaf states. Persistence on a CPU is the order of loops."""

WHOLE = "compiled, no search"
"""Name of the configuration that hbtvm chooses by itself, measured beside `STEPS`."""

UNROLLING: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (name, {"order": "nodes", "share": "nodes", "depth": depth})
    for name, depth in (("level by level", 1), ("unrolled", 2))
)
"""Recursive unrolling (figure 12b of the paper): a name and choices as in `STEPS`. Two threads share
a level's nodes, or subtrees of two levels."""

UNROLLING_MODELS = ("treernn", "treelstm", "rnn", "lstm", "gru")
"""Models of that study: those whose nodes have one parent each."""

HIDDEN = (64, 128, 256, 384, 512, 768, 1024)
"""Hidden sizes of the study of latency (figure 9)."""

HIDDEN_PEERS = ("node", "level", "dynet", "hbtvm")
"""Peers of that study."""

HIDDEN_MODELS = ("treefc", "treegru", "treelstm")
"""Models of that study."""

ABLATION_MODELS = ("treefc", "dagrnn", "treegru", "treelstm")
"""Models of the ablation."""

PAPER_LINEARISE = {
    "parse/1": 1.31e-6,
    "parse/10": 9.64e-6,
    "grid/1": 8.2e-6,
    "grid/10": 95e-6,
    "perfect/1": 3.04e-6,
    "perfect/10": 30.4e-6,
}
"""Seconds that Cortex takes to linearise, by kind and batch size, as published."""
