"""Checks and times kernels on the machine that they are for; needs numpy, and a GPU's driver for a GPU.

`hbtvm.measuring.archive` holds candidates that were built elsewhere, `hbtvm.measuring.run` measures them, and
`hbtvm.measuring.times` keeps what came of it.
"""
