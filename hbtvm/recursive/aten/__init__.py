"""Cells from graphs of ATen operators, which is what ``torch.export`` makes of a module; without torch."""
