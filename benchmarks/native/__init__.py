"""hbtvm's exported C library against other libraries' C interfaces: ``python -m benchmarks.native``."""
