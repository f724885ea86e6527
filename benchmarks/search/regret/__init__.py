"""Regret: the time of the kernels that `hbtvm.compile` chooses without a search, over the fastest known.

- `models`: 24 models;
- `measure`: searches them, and measures today's choices against the fastest known, in turns;
- `report`: tables of what was measured.
"""
