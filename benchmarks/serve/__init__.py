"""hbtvm's HTTP service against what its HTTP stack reaches, and against MLServer."""
