"""Compiling recursive models: their kernels, candidates and packages."""
