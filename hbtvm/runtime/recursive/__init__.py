"""Recursive models at run time: structures in, states of their nodes, readouts."""
