"""Metrics as text: one page of the Prometheus text format, version 0.0.4.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (facts only). Written here because the client
library for Python takes a quarter of a second to import and 24 times as long for a page of a thousand topics, all of
it in the process that answers messages.
"""

from __future__ import annotations

from typing import Final

from millstream.telemetry.histogram import Histogram
from millstream.telemetry.metrics import METRICS, NODE_LABELS, Metric, MetricKind

__all__ = ["CONTENT_TYPE", "MetricsPage"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """One page, filled and then read by `text`. Only metrics of the table can be added, with exactly their labels."""

    def __init__(self, *, cluster: str, node_id: str) -> None:
        self._node = (cluster, node_id)
        self._lines: dict[str, list[str]] = {}
        self._prefixes: dict[str, str] = {}

    def add(self, name: str, number: float, *labels: str, node_type: str = "broker") -> None:
        """A value of a counter or gauge; the labels in the order of the table."""
        written = self._labels(METRICS[name], labels, node_type)
        self._lines.setdefault(name, []).append(f"{name}{{{written}}} {number}")

    def add_histogram(self, name: str, histogram: Histogram, *labels: str, node_type: str = "broker") -> None:
        """A distribution."""
        metric = METRICS[name]
        if metric.kind is not MetricKind.HISTOGRAM:
            raise ValueError(f"{name} is no histogram")
        written = self._labels(metric, labels, node_type)
        lines = self._lines.setdefault(name, [])
        count = 0
        for bound, found in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
            count += found
            lines.append(f'{name}_bucket{{{written},le="{bound}"}} {count}')
        lines.append(f"{name}_sum{{{written}}} {histogram.total}")
        lines.append(f"{name}_count{{{written}}} {count}")

    def text(self) -> str:
        """The page; metrics without a value are not on it."""
        parts = []
        for name, lines in self._lines.items():
            metric = METRICS[name]
            parts.append(f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind.value}")
            parts += lines
        return "\n".join(parts) + "\n"

    def _labels(self, metric: Metric, labels: tuple[str, ...], node_type: str) -> str:
        prefix = self._prefixes.get(node_type)
        if prefix is None:
            cluster, node_id = self._node
            prefix = self._prefixes[node_type] = _pairs(NODE_LABELS, (cluster, node_type, node_id))
        return f"{prefix},{_pairs(metric.labels, labels)}" if metric.labels or labels else prefix


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join([f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)])


def _escape(value: str) -> str:
    if value.isidentifier():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
