"""Networks of operators as kernels."""
