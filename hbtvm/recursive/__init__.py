"""Recursive models: a cell that is computed at every node of trees, graphs and sequences (Cortex, MLSys'21)."""
