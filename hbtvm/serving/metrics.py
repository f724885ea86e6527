"""Counts and times of requests for Prometheus.

They are plain numbers that only the event loop's thread changes, and become Prometheus' metrics on request:
its counters take locks, which cost as much as a prediction of one row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
)  # fmt: skip
"""Upper bounds of the histogram's buckets: compiled models take microseconds per row."""

_BOUNDS = (*(f"{bound:g}" for bound in _SECONDS), "+Inf")


class ModelMetrics:
    """Metrics of a model."""

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.loads = {"loaded": 0, "failed": 0}
        self.rows, self.seconds = 0, 0.0
        self.buckets = [0] * len(_BOUNDS)

    def answered(self, rows: int, seconds: float) -> None:
        """Count an answered request."""
        self.rows += rows
        self.seconds += seconds
        self.buckets[bisect_left(_SECONDS, seconds)] += 1

    def refused(self, status: int) -> None:
        """Count a refused request."""
        self.statuses[str(status)] = self.statuses.get(str(status), 0) + 1

    def loaded(self, succeeded: bool) -> None:
        """Count a load."""
        self.loads["loaded" if succeeded else "failed"] += 1

    def add(self, state: Mapping[str, Any]) -> None:
        """Add another process's metrics of the model, in the form of ``vars``."""
        self.rows += state["rows"]
        self.seconds += state["seconds"]
        self.buckets = [count + other for count, other in zip(self.buckets, state["buckets"], strict=True)]
        for counts, others in ((self.statuses, state["statuses"]), (self.loads, state["loads"])):
            for key, count in others.items():
                counts[key] = counts.get(key, 0) + count


class Metrics(Collector):
    """The service's metrics.

    `waiting`: returns the number of requests that are running or waiting.
    `others`: returns the snapshots of the service's other processes.
    """

    def __init__(self) -> None:
        self.waiting: Callable[[], int] = int
        self.others: Callable[[], list[Any]] = list
        self._models: dict[str, ModelMetrics] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def of(self, model: str) -> ModelMetrics:
        """Return the metrics of a served model; only served names become labels."""
        metrics = self._models.get(model)
        if metrics is None:
            metrics = self._models[model] = ModelMetrics()
        return metrics

    def snapshot(self) -> dict[str, Any]:
        """Return this process's metrics as JSON."""
        return {
            "waiting": self.waiting(),
            "models": {name: vars(model) for name, model in self._models.items()},
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue the counts of a process that this process replaces."""
        for name, state in snapshot["models"].items():
            self.of(name).add(state)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as objects of Prometheus' library."""
        requests = CounterMetricFamily(
            "hbtvm_requests", "Requests for predictions, by HTTP status", labels=("model", "status")
        )
        rows = CounterMetricFamily("hbtvm_rows", "Rows predicted", labels=("model",))
        seconds = HistogramMetricFamily(
            "hbtvm_request_seconds",
            "Seconds from a request's last byte to its answer",
            labels=("model",),
        )
        loads = CounterMetricFamily("hbtvm_loads", "Packages loaded, and not", labels=("model", "result"))
        snapshots = [self.snapshot(), *self.others()]
        for name, model in _totals(snapshots).items():
            counts = list(accumulate(model.buckets))
            for status, count in {"200": counts[-1], **model.statuses}.items():
                requests.add_metric((name, status), count)
            rows.add_metric((name,), model.rows)
            seconds.add_metric((name,), list(zip(_BOUNDS, counts, strict=True)), model.seconds)
            for result, count in model.loads.items():
                loads.add_metric((name, result), count)
        yield from (requests, rows, seconds, loads)
        yield GaugeMetricFamily(
            "hbtvm_waiting_requests",
            "Requests that are computed or wait for it",
            value=sum(snapshot["waiting"] for snapshot in snapshots),
        )


def _totals(snapshots: Sequence[Mapping[str, Any]]) -> dict[str, ModelMetrics]:
    """Return the sums over processes, by model."""
    totals: dict[str, ModelMetrics] = {}
    for snapshot in snapshots:
        for name, state in snapshot["models"].items():
            totals.setdefault(name, ModelMetrics()).add(state)
    return totals
