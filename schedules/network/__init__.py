"""Plans of networks: stages of a kernel, shared by all targets."""
