"""HTTP/1.1 over connections, with limits."""
