"""Found ahead of torch by processes of tests that do not need it: TVM then starts in half the time."""

raise ImportError("torch is hidden")
