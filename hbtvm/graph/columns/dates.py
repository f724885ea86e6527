"""Parts of dates and times: numbers of the year, month, day, hour, ... of each value of a column.

Values are numpy's datetime64, objects of ``datetime`` (or of subclasses, such as pandas' Timestamp), texts in
ISO 8601 or another format, or whole numbers, which are nanoseconds since 1970. Parts are those of the local
time if a value has a time zone.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.steps import Step, is_missing

Part = Literal[
    "year", "month", "day", "hour", "minute", "second", "microsecond", "nanosecond", "total_seconds",
    "quarter", "semester", "week", "weekday", "day_of_year", "weekend", "month_start", "month_end",
    "quarter_start", "quarter_end", "year_start", "year_end", "leap_year", "days_in_month",
]  # fmt: skip

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?")

_NAT = np.datetime64("NaT", "ns")

_EPOCH = np.datetime64(0, "s")


@dataclass(frozen=True, eq=False)
class Dates(Step):
    """Values as datetime64, NaT if missing."""

    format: str | None = None  # of texts, as `datetime.datetime.strptime` takes it; None for ISO 8601
    coerce: bool = False  # whether unreadable texts count as missing
    utc: bool = False  # whether values with a time zone count in Coordinated Universal Time
    unit: Literal["us", "ns"] = "us"  # of Python objects; nanoseconds reach from 1677 to 2262 only

    def apply(self, x: np.ndarray) -> np.ndarray:
        missing = ~np.isfinite(x)
        with np.errstate(invalid="ignore"):
            times = np.where(missing, 0, x).astype(np.int64).astype("M8[ns]")
        return np.where(missing, _NAT, times)

    def of_values(self, x: np.ndarray) -> np.ndarray:
        """Return the dates of values that are not floats: datetime64, shape (n,).

        `x`: datetime64, integers or objects, shape (n,).
        Raises `InputError` if a value is not a date.
        """
        if x.dtype.kind == "M":
            return x
        if x.dtype.kind in "iu":
            times: np.ndarray = x.astype(np.int64).astype("M8[ns]")
            return times
        return np.array([self._time(value) for value in x.tolist()], f"M8[{self.unit}]")

    def _time(self, value: Any) -> Any:
        if value is None or is_missing(value, np.nan) or type(value).__name__ in ("NaTType", "NAType"):
            return _NAT
        if isinstance(value, datetime.datetime):
            if value.tzinfo is not None:
                zone = datetime.timezone.utc
                value = (value.astimezone(zone) if self.utc else value).replace(tzinfo=None)
            # pandas' Timestamp has nanoseconds.
            exact: Any = getattr(value, "to_datetime64", None)
            return np.datetime64(value) if exact is None else exact()
        if isinstance(value, (datetime.date, np.datetime64)):
            return np.datetime64(value)
        if isinstance(value, str):
            return self._parsed(value)
        if type(value) is int and abs(value) < 1 << 62:
            return np.datetime64(value, "ns")
        raise InputError(f"expected a date, got {value!r:.60}.")

    def _parsed(self, text: str) -> Any:
        try:
            if self.format is not None:
                return np.datetime64(datetime.datetime.strptime(text, self.format).replace(tzinfo=None))
            if _ISO.fullmatch(text):
                return np.datetime64(text)
        except ValueError:
            pass
        if self.coerce:
            return _NAT
        example = "such as 2024-01-31 or 2024-01-31 12:30:00" if self.format is None else self.format
        raise InputError(f"expected a date {example}, got {text!r:.60}.")


@dataclass(frozen=True, eq=False)
class DatePart(Step):
    """A part of dates, behind `Dates`."""

    part: Part
    missing: float = np.nan  # the number of missing values

    def apply(self, x: np.ndarray) -> np.ndarray:
        missing = np.isnat(x)
        if missing.any():
            x = np.where(missing, np.zeros((), x.dtype), x)
        result = np.asarray(PARTS[self.part](x), np.float64)
        return np.where(missing, self.missing, result)


def _whole(times: np.ndarray, unit: str) -> Any:
    """Return whole units since 1970, rounded down: int64."""
    return times.astype(f"M8[{unit}]").astype(np.int64)


def _within(unit: str, count: int) -> Callable[[np.ndarray], Any]:
    return lambda times: _whole(times, unit) % count


def _month(times: np.ndarray) -> Any:
    return _whole(times, "M") % 12 + 1


def _day(times: np.ndarray) -> Any:
    return _whole(times, "D") - _whole(times.astype("M8[M]"), "D") + 1


def _day_of_year(times: np.ndarray) -> Any:
    return _whole(times, "D") - _whole(times.astype("M8[Y]"), "D") + 1


def _weekday(times: np.ndarray) -> Any:
    """Return 0 for Mondays to 6 for Sundays."""
    return (_whole(times, "D") + 3) % 7


def _week(times: np.ndarray) -> Any:
    """Return weeks of ISO 8601: a week belongs to the year of its Thursday."""
    thursday = (_whole(times, "D") - _weekday(times) + 3).astype("M8[D]")
    return (_day_of_year(thursday) - 1) // 7 + 1


def _days_in(unit: str) -> Callable[[np.ndarray], Any]:
    def days(times: np.ndarray) -> Any:
        first = times.astype(f"M8[{unit}]")
        return _whole(first + 1, "D") - _whole(first, "D")

    return days


def _quarter_start(times: np.ndarray) -> Any:
    return (_day(times) == 1) & (_month(times) % 3 == 1)


def _quarter_end(times: np.ndarray) -> Any:
    return (_day(times) == _days_in("M")(times)) & (_month(times) % 3 == 0)


PARTS: Mapping[str, Callable[[np.ndarray], Any]] = {
    "year": lambda times: _whole(times, "Y") + 1970,
    "month": _month,
    "day": _day,
    "hour": _within("h", 24),
    "minute": _within("m", 60),
    "second": _within("s", 60),
    "microsecond": _within("us", 1_000_000),
    "nanosecond": _within("ns", 1_000),
    "total_seconds": lambda times: (times - _EPOCH) / np.timedelta64(1, "s"),
    "quarter": lambda times: (_month(times) + 2) // 3,
    "semester": lambda times: (_month(times) > 6) + 1,
    "week": _week,
    "weekday": _weekday,
    "day_of_year": _day_of_year,
    "weekend": lambda times: _weekday(times) > 4,
    "month_start": lambda times: _day(times) == 1,
    "month_end": lambda times: _day(times) == _days_in("M")(times),
    "quarter_start": _quarter_start,
    "quarter_end": _quarter_end,
    "year_start": lambda times: _day_of_year(times) == 1,
    "year_end": lambda times: _day_of_year(times) == _days_in("Y")(times),
    "leap_year": lambda times: _days_in("Y")(times) == 366,
    "days_in_month": _days_in("M"),
}
"""By name, the function of datetime64 without missing values."""

assert tuple(PARTS) == get_args(Part)
