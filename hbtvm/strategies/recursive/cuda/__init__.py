"""Kernels of recursive models on GPUs."""
