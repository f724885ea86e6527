"""A model of the least time that CUDA kernels take on an H100, from their machine code: no GPU is needed.

Kernels are compiled and disassembled, and a few of their blocks are executed by an interpreter on a trained
model and real rows. That yields the scores, which are compared with the model's, and counts of what bounds
the time: instructions by pipe, lines and conflicts of banks, traffic between caches, dependent latencies.
See `python -m benchmarks.gpu.bounds --help`.
"""
