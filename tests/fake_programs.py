"""Programs for the tuner's tests: without compiler and real runs, some with faults."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

from hbtvm.schedules.space import Config
from hbtvm.tuning.measuring.program import InvalidConfigError, fingerprint

LEAK: list[bytearray] = []


def cost(config: Config, scale: float = 1e-3) -> float:
    """Return the simulated seconds of one run: least at a=64, b=4, c=8, unrolled."""
    a, b = int(config["a"]), int(config["b"])
    p, q = a.bit_length(), b.bit_length()
    c = int(config.get("c", 8)).bit_length()
    away = abs(p - 7) + 1.5 * abs(q - 3) + 0.3 * abs(p - q - 4) + 0.5 * abs(c - 4)
    return scale * (1 + 0.3 * away + (0.0 if config.get("unroll") else 0.2))


class Run:
    def __init__(self, payload: dict[str, Any], config: Config) -> None:
        self.payload, self.config = payload, config

    def _misbehave(self, when: str) -> None:
        trouble = self.payload.get(when) if self.payload.get("only", self.config) == self.config else None
        misbehave(trouble)
        if when == "run":
            misbehave(self.payload.get("planted", {}).get(f"{self.config['a']},{self.config['b']}"))

    def check(self) -> str | None:
        self._misbehave("check")
        wrong = self.payload.get("wrong")
        return "row 3 is 1.0, expected 2.0" if wrong is True or wrong == self.config else None

    def run(self, number: int) -> float:
        self._misbehave("run")
        if self.payload.get("time") is not None:
            return float(self.payload["time"]) * number
        return cost(self.config, float(self.payload.get("scale", 1e-3))) * number


class Synthetic:
    """A program whose results and faults are set by its payload."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self.payload = payload
        misbehave(payload.get("make"))

    def build(self, config: Config, library_path: str) -> str | None:
        if self.payload.get("refuse") == config:
            raise InvalidConfigError("tile does not divide")
        if self.payload.get("only", config) == config:
            misbehave(self.payload.get("build"))
        with open(library_path, "w") as file:
            file.write(str(config["a"]) if self.payload.get("same") else str(config))
        return fingerprint(library_path) if self.payload.get("same") else None

    def load(self, config: Config, library_path: str) -> Run:
        assert os.path.exists(library_path)
        return Run(self.payload, config)


def misbehave(trouble: str | None) -> None:
    """Cause a fault by name; None for none."""
    match trouble:
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            sys.exit(3)
        case "hang":
            time.sleep(3600)
        case "raise":
            raise RuntimeError("no such intrinsic")
        case "print":
            for _ in range(2000):
                print("garbage" * 20)
                os.write(2, b"\x80\x04garbage" * 10)
        case "leak":
            LEAK.append(bytearray(os.urandom(2**20)) * 24)
        case "hog":
            LEAK.append(bytearray(b"x" * 2**20) * 400)
            time.sleep(3600)
        case "child":
            os.system("sleep 3600")
