"""Execution of kernels on chunks of rows on a GPU."""
