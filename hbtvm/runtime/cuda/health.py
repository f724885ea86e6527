"""A GPU's clock and temperature, read by NVIDIA's management library (NVML), which comes with the driver."""

from __future__ import annotations

import ctypes

from hbtvm.runtime.cuda.driver import Gpu

LIBRARY = "libnvidia-ml.so.1"

_MULTIPROCESSORS, _CORE = 1, 0  # NVML's numbers of a clock and of a sensor


class Health:
    """Reads a device's state; empty without NVML."""

    def __init__(self, gpu: Gpu) -> None:
        self._handle = ctypes.c_void_p()
        self._library: ctypes.CDLL | None = None
        try:
            library = ctypes.CDLL(LIBRARY)
            place = gpu.place.encode()
            # The two libraries number devices differently, but agree on PCI addresses.
            if library.nvmlInit_v2() == 0 and (
                library.nvmlDeviceGetHandleByPciBusId_v2(place, ctypes.byref(self._handle)) == 0
            ):
                self._library = library
        except (OSError, AttributeError):
            return

    def read(self) -> dict[str, int]:
        """Return the multiprocessors' ``clock`` in MHz and ``temperature`` in degrees Celsius, if known."""
        if self._library is None:
            return {}
        state = {}
        for name, function, which in (
            ("clock", "nvmlDeviceGetClockInfo", _MULTIPROCESSORS),
            ("temperature", "nvmlDeviceGetTemperature", _CORE),
        ):
            value = ctypes.c_uint()
            call = getattr(self._library, function, None)
            if call is not None and call(self._handle, which, ctypes.byref(value)) == 0:
                state[name] = int(value.value)
        return state
