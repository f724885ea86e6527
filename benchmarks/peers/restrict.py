"""Restricts oneDAL to instructions that older CPUs have; no environment variable does.

Imported in the worker process of oneDAL: standard library only.
"""

from __future__ import annotations

import ctypes

_CODE_PATHS = {"x86-64": 0, "x86-64-v2": 2, "x86-64-v3": 4}
"""oneDAL's numbers (``daal::CpuType``) of its code paths for SSE2, SSE4.2 and AVX2."""

_METHOD = "_ZN4daal8services10interface111Environment{}"


def restrict_onedal(mcpu: str | None) -> None:
    """Restrict oneDAL to the code path for a CPU; call it after daal4py is imported, before a model is made.

    ``Environment::setCpuId`` works until something asks for the code path; oneDAL does so while it is loaded.
    So the number is replaced in memory: the third word of the environment.

    Parameters
    ----------
    mcpu
        A level of x86-64 up to v3. Nothing happens for None and other names.

    Raises
    ------
    RuntimeError
        If this version of oneDAL has the number elsewhere.
    """
    if mcpu not in _CODE_PATHS:
        return
    library = ctypes.CDLL("libonedal_core.so.4")
    instance = library[_METHOD.format("11getInstanceEv")]
    instance.restype = ctypes.c_void_p
    environment = instance()
    best = library[_METHOD.format("8getCpuIdEi")](ctypes.c_void_p(environment), 0)
    field = ctypes.c_size_t.from_address(environment + 2 * ctypes.sizeof(ctypes.c_size_t))
    if field.value != best:
        raise RuntimeError("this version of oneDAL has its code path at another address")
    field.value = min(best, _CODE_PATHS[mcpu])
