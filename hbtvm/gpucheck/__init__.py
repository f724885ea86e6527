"""Check and time kernels on a machine with a GPU: ``python -m hbtvm.gpucheck bundle.tar``.

``python -m benchmarks.gpu.bundle`` builds the bundle on a machine without a GPU. The machine that runs it
needs numpy and NVIDIA's driver.
"""
