"""The parts of packages on GPUs that CUDA and OpenCL share."""
