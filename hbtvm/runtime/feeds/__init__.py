"""A pipeline's feeds: the columns of the matrix that kernels read, computed from callers' rows."""
