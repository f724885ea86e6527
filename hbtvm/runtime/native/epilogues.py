"""Stand-in."""

import ctypes


class EpilogueFields(ctypes.Structure):
    """``struct epilogue``."""

    _fields_ = (("type", ctypes.c_int64), ("row_bytes", ctypes.c_int64), ("plain", ctypes.c_int64), ("first", ctypes.c_int64), ("last", ctypes.c_int64))
