"""A pipeline's feeds: the matrix that its kernels read, computed from callers' rows."""
