"""Strategies on CUDA: the same algorithms, expressed for threads that each have rows and trees of their own."""
