"""What GPU kernels are worth: ``python -m benchmarks.gpu``, and ``python -m benchmarks.gpu.check``."""
