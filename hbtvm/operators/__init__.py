"""Operators of networks, each with a numpy reference; see `hbtvm.operators.base.Node`."""
