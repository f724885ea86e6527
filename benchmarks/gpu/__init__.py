"""GPU benchmarks and checks: ``python -m benchmarks.gpu``, and ``python -m benchmarks.gpu.check``."""
