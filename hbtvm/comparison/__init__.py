"""Compare a compiled model with its library: answers, and times in turns."""
