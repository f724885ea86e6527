"""How threads share a call."""

from typing import Literal

Parallel = Literal["none", "rows", "trees"]
"""``"none"``: the kernel runs on one thread; ``"rows"``: threads share rows; ``"trees"``: each thread sums
some tiles of trees, and the partial sums are added in a fixed order."""
