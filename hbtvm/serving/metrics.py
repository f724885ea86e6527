"""Counts and times of requests, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (
    50e-6,
    100e-6,
    250e-6,
    500e-6,
    1e-3,
    2.5e-3,
    5e-3,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
"""Upper bounds of the histogram's buckets: compiled models take microseconds for a row."""


class Metrics:
    """The service's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "hbtvm_requests",
            "Requests for predictions, by model and HTTP status",
            ("model", "status"),
            registry=registry,
        )
        self._rows = Counter("hbtvm_rows", "Rows predicted, by model", ("model",), registry=registry)
        self._seconds = Histogram(
            "hbtvm_request_seconds",
            "Seconds from a request's last byte to its answer, by model",
            ("model",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.waiting = Gauge(
            "hbtvm_waiting_requests", "Requests whose answers are being computed", registry=registry
        )
        self._loads = Counter(
            "hbtvm_loads",
            "Packages loaded, by model and result: loaded or failed",
            ("model", "result"),
            registry=registry,
        )
        self._models: dict[str, ModelMetrics] = {}

    def of(self, model: str) -> ModelMetrics:
        """The metrics of a model that is served; no other names are ever labels."""
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = ModelMetrics(
                self._requests, self._rows.labels(model), self._seconds.labels(model), model
            )
        return found

    def loaded(self, model: str, succeeded: bool) -> None:
        """Count a load."""
        self._loads.labels(model, "loaded" if succeeded else "failed").inc()

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self.registry)


class ModelMetrics:
    """Those of one model."""

    def __init__(self, requests: Counter, rows: Counter, seconds: Histogram, model: str) -> None:
        self._requests, self._model = requests, model
        self._rows, self._seconds = rows, seconds
        self._ok = requests.labels(model, "200")

    def answered(self, rows: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._ok.inc()
        self._rows.inc(rows)
        self._seconds.observe(seconds)

    def refused(self, status: int) -> None:
        """Count a request that was not."""
        self._requests.labels(self._model, str(status)).inc()
