"""The search for the nearest points, lowered."""
