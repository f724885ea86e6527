"""How far kernels are from forests written by hand for one shape.

    python -m benchmarks.bound

Two shapes, 500 trees over 28 columns of random float32: 31 leaves, and perfect trees of depth 8. The C beside
this file is compiled with the machine's own instruction sets; it needs AVX-512. Both sides take the same
forest and rows, run in turns on one thread, and are compared with numpy's sums. Prints a table in markdown.
"""
