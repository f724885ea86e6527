"""Features of candidates: choices, loops and loop trees."""
