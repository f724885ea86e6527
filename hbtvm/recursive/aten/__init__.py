"""Cells from graphs of ATen operators, the result of ``torch.export``; needs no torch."""
