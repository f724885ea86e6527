"""Progress and summary of a search on a terminal."""
