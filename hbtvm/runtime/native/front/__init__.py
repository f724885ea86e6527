"""The front of exported pipelines, laid out as constants for `hbtvm/native/arrow`."""
