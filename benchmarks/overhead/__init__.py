"""What a prediction costs beside its kernel, and what threads gain: ``python -m benchmarks.overhead``."""
