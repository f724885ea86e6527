"""Operators of networks: few, algebraic, each with a reference in numpy; see `hbtvm.operators.base.Node`."""
