"""Damaged and hostile packages, caches and logs by the thousand: ``python -m benchmarks.mutants --help``.

Each kind is a module with two functions:

``prepare(folder)``
    Write what mutants are made of; called once, in the parent.
``trials(folder)``
    Return a function of ``(number, seed)`` that makes the mutant, lets hbtvm use it, and returns in a word
    how that ended, such as ``"used"``. An `HbtvmError` counts as ``"refused"``; any other exception, an
    `AssertionError` among them, is a fault.
"""
