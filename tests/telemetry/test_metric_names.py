"""Names and labels of metrics are those of RocketMQ 5.3.3's page, as `python -m interop.reference metrics` kept it."""

from __future__ import annotations

from interop.reference.metric_names import RECORDED, page_names, read_names, unmeant

from millstream.telemetry.metrics import METRICS, NODE_LABELS, MetricKind

_SUFFIXES = {MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum")}


def test_the_table_has_the_names_and_labels_of_the_reference_s_page_but_where_it_is_meant() -> None:
    ours = {
        metric.name + suffix: frozenset((*NODE_LABELS, *metric.labels))
        for metric in METRICS.values()
        for suffix in _SUFFIXES.get(metric.kind, ("",))
    }
    assert not unmeant(read_names(RECORDED), ours)


def test_what_differs_without_a_reason_is_named() -> None:
    reference = page_names('rocketmq_a{x="1",otel_scope_name="m"} 1\n# HELP rocketmq_b b\nrocketmq_b 2\n')
    ours = page_names('rocketmq_a{y="a\\"b"} 1\nrocketmq_c 2\n')
    assert unmeant(reference, ours) == [
        "only the reference has rocketmq_a{x}",
        "only the reference has rocketmq_b",
        "only ours has rocketmq_a{y}",
        "only ours has rocketmq_c",
    ]
