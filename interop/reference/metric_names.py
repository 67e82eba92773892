"""Which names and labels a broker's Prometheus page has, and which of the reference's ours has not, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

__all__ = [
    "ABSENT",
    "OWN",
    "RECORDED",
    "SCRIPTS_OF_PAGES",
    "Names",
    "page_names",
    "read_names",
    "unmeant",
    "write_names",
]

Names = Mapping[str, frozenset[str]]
"""Labels by the name of the sample, `le` left out. A label counts if any sample of the name has it."""

RECORDED: Final = Path(__file__).parent.parent.parent / "tests" / "telemetry" / "reference_metrics.json"
"""What the reference's page has; tests of the table of metrics go by it where there is no Maven."""

SCRIPTS_OF_PAGES: Final = ("sending", "pulling", "retries", "delays", "transactions", "pop")
"""What is played before the pages are compared: each metric that a broker alone can have gets a value."""

_SAMPLE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? \S")
_LABEL: Final = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')

_EXPORTER: Final = "OpenTelemetry's exporter says what library made the metric."
_NO_REVIVE: Final = "Deliveries are kept in a ledger of the broker; there are no revive topics and no buffers for them."
_BY_RPC: Final = "rocketmq_rpc_latency_milliseconds tells it, by request_code."

ABSENT: Final[Mapping[str, str]] = {
    "target_info": _EXPORTER,
    "otel_scope_info": _EXPORTER,
    "*{otel_scope_name}": _EXPORTER,
    "rocketmq_pop_buffer_scan_time_consume_milliseconds_*": _NO_REVIVE,
    "rocketmq_pop_offset_buffer_size": _NO_REVIVE,
    "rocketmq_pop_revive_in_message_total": _NO_REVIVE,
    "rocketmq_pop_revive_out_message_total": _NO_REVIVE,
    "rocketmq_pop_revive_lag_milliseconds": _NO_REVIVE,
    "rocketmq_pop_revive_latency_milliseconds": _NO_REVIVE,
    "rocketmq_pop_revive_retry_messages_total{put_status}": "A message comes again in its place, and is put nowhere.",
    "rocketmq_topic_create_execution_time_milliseconds_*": _BY_RPC,
    "rocketmq_consumer_group_create_execution_time_milliseconds_*": _BY_RPC,
    "rocketmq_half_messages{topic}": "Pending transactions are known by their places, without their topics.",
    "rocketmq_timing_messages{topic}": "Waiting messages are known by their places and times, without their topics.",
}
"""What only the reference's page has, as patterns of `NAME` or `NAME{LABEL}`, and why."""

OWN: Final[Mapping[str, str]] = {
    "millstream_*": "Of our own.",
    "rocketmq_proxy_up": "A proxy of RocketMQ has it on a page of its own.",
    "rocketmq_pop_revive_retry_messages_total{is_system}": "As with the other metrics of deliveries.",
}
"""What only our page has, likewise."""


def page_names(page: str) -> Names:
    """The names of a page's samples and their labels."""
    found: dict[str, frozenset[str]] = {}
    for line in page.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.match(line)
        if sample is not None:
            labels = frozenset(_LABEL.findall(sample[2] or "")) - {"le"}
            found[sample[1]] = found.get(sample[1], frozenset()) | labels
    return found


def unmeant(reference: Names, ours: Names) -> list[str]:
    """What differs without a reason in the tables, one line each."""
    lines = [f"only the reference has {place}" for place in _places(reference, ours) if not _is_listed(place, ABSENT)]
    return lines + [f"only ours has {place}" for place in _places(ours, reference) if not _is_listed(place, OWN)]


def read_names(path: Path) -> Names:
    """What `write_names` wrote."""
    return {name: frozenset(labels) for name, labels in json.loads(path.read_text()).items()}


def write_names(path: Path, names: Names) -> None:
    """As JSON, one line for each name."""
    lines = [f"{json.dumps(name)}: {json.dumps(sorted(labels))}" for name, labels in sorted(names.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _places(names: Names, others: Names) -> list[str]:
    """The names that the others do not have, and the labels of those that both have."""
    found = []
    for name, labels in sorted(names.items()):
        if name not in others:
            found.append(name)
        else:
            found += [f"{name}{{{label}}}" for label in sorted(labels - others[name])]
    return found


def _is_listed(place: str, table: Mapping[str, str]) -> bool:
    return any(fnmatchcase(place, pattern) for pattern in table)
