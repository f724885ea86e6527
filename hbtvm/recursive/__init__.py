"""Recursive models: a cell, computed at every node of trees, graphs and sequences (Cortex, MLSys'21)."""
