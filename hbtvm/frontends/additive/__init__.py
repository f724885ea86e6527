"""Additive models of binned columns: InterpretML's explainable boosting machines."""
