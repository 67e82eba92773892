"""The page says what was added, in a form that Prometheus' own parser reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from millstream.telemetry.counters import Histogram
from millstream.telemetry.metrics import METRICS, MetricKind, MetricsPage

NODE = {"cluster": "c", "node_type": "broker", "node_id": "b"}


def samples(page: MetricsPage) -> list[tuple[str, dict[str, str], float]]:
    families = text_string_to_metric_families(page.text())
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


@given(version=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_a_label_s_value(version: str) -> None:
    page = MetricsPage(cluster="c", node_id="b")
    page.add("millstream_build_info", 1, version)
    assert samples(page) == [("millstream_build_info", {**NODE, "version": version}, 1.0)]


def test_a_histogram_has_growing_counts_a_sum_and_a_count() -> None:
    page = MetricsPage(cluster="c", node_id="b")
    histogram = Histogram((10, 100))
    for value in (5, 50, 60, 500):
        histogram.add(value)
    page.add_histogram("millstream_delivery_lateness_milliseconds", histogram)
    found = {(name, labels.get("le")): value for name, labels, value in samples(page)}
    name = "millstream_delivery_lateness_milliseconds"
    assert found == {
        (f"{name}_bucket", "10"): 1,
        (f"{name}_bucket", "100"): 3,
        (f"{name}_bucket", "+Inf"): 4,
        (f"{name}_sum", None): 615,
        (f"{name}_count", None): 4,
    }


def test_a_metric_is_described_once_however_its_values_arrive() -> None:
    page = MetricsPage(cluster="c", node_id="b")
    for node_type in ("broker", "nameserver"):
        page.add("millstream_remoting_connections", 1, node_type=node_type)
        page.add("rocketmq_topic_number", 2, node_type=node_type)
    assert page.text().count("# TYPE millstream_remoting_connections gauge") == 1
    assert [labels["node_type"] for _, labels, _ in samples(page)] == ["broker", "nameserver"] * 2


def test_what_is_not_in_the_table_or_has_other_labels_cannot_be_added() -> None:
    page = MetricsPage(cluster="c", node_id="b")
    with pytest.raises(KeyError):
        page.add("rocketmq_made_up", 1)
    with pytest.raises(ValueError, match=r"shorter|longer"):
        page.add("millstream_build_info", 1)
    with pytest.raises(ValueError, match="no histogram"):
        page.add_histogram("rocketmq_topic_number", Histogram((1,)))


def test_the_table_keeps_prometheus_rules_of_names() -> None:
    for metric in METRICS.values():
        assert metric.name.startswith(("rocketmq_", "millstream_"))
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER), metric.name
        assert len(set(metric.labels)) == len(metric.labels)
        assert not set(metric.labels) & set(NODE)
