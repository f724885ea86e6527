"""The replay bench: searches on spaces that were measured once.

A search is judged by how many trials it needs, over many seeds. On a machine that would
take days and depend on its luck; here every candidate's time is looked up.

- `spaces`: which strategies, models and batch sizes;
- `measure`: fills the cache, one log for each space;
- `replay`: a search on recorded times, and what it came to;
- `studies`: which searches are held against each other (AutoTVM, figures 4 to 9);
- `quality`: how well models rank;
- `report`: tables and plots.
"""
