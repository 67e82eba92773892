"""What a port for one protocol tells the page of metrics."""

from __future__ import annotations

from millstream.telemetry.metrics import MetricsPage
from millstream.telemetry.port_traffic import PortTraffic, add_port


def test_each_protocol_has_lines_of_its_own() -> None:
    page = MetricsPage(cluster="c", node_id="n")
    add_port(page, "mqtt", 7, PortTraffic(sessions=6, messages_in=5, messages_out=4, refused=3, dropped=2))
    add_port(page, "amqp", 1, PortTraffic())
    lines = set(page.text().splitlines())
    node = 'cluster="c",node_type="proxy",node_id="n"'
    for name, number in {
        "connections": 7, "sessions": 6, "messages_in_total": 5, "messages_out_total": 4, "refused_total": 3,
        "dropped_total": 2,
    }.items():  # fmt: skip
        assert f'millstream_port_{name}{{{node},protocol_type="mqtt"}} {number}' in lines
    assert f'millstream_port_connections{{{node},protocol_type="amqp"}} 1' in lines
