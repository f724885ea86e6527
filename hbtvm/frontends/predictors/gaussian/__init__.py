"""Models of Gaussian densities: processes, mixtures, discriminants."""
