"""Check and time kernels on their machine, which needs numpy and, for a GPU, its driver.

`hbtvm.measuring.archive` reads candidates that were built elsewhere, `hbtvm.measuring.run` measures them, and
`hbtvm.measuring.times` keeps the times.
"""
