"""Recursive models as level kernels: from a cell to functions over the tiles of a level's nodes."""
