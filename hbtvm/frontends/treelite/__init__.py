"""Checkpoints of treelite, by which cuML and other libraries store forests."""
