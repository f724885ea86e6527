"""GPU benchmarks: ``python -m benchmarks.gpu``, and the bundle of `hbtvm.gpucheck`."""
