"""Packages on OpenCL devices, through the loader that drivers of all makers share (``libOpenCL.so``)."""
