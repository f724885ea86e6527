"""What threads share of a call."""

from typing import Literal

Parallel = Literal["none", "rows", "trees"]
"""Nothing, where the tuner timed a kernel on one thread; rows; or trees: each thread sums some tiles of
trees, and the partial sums are added in a fixed order."""
