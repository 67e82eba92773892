"""Metrics of clients: who is there, and how long their requests took."""

from __future__ import annotations

from collections import Counter
from typing import Final

from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.broker.statistics import MAX_COUNTED_PAIRS
from millstream.protocol.grpc import messages as m
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.proxy.processor import Processor
from millstream.server.metrics.labels import OTHER, UNKNOWN, bounded, group_flags
from millstream.server.metrics.watermarks import watermarks
from millstream.telemetry.exposition import MetricsPage
from millstream.transport.remoting_server import RemotingServer

__all__ = ["MAX_CLIENT_KINDS", "add_connections", "add_proxy", "add_remoting"]

MAX_CLIENT_KINDS: Final = 100
"""Pairs of language and version of producers that are told apart; clients may call themselves anything."""

_REQUESTS: Final[dict[int | str, str]] = {code.value: code.name.lower() for code in RequestCode}
_RESPONSES: Final[dict[int, str]] = {code.value: code.name.lower() for code in ResponseCode}
_WAITING_CODES: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.BULK_FETCH))
_WAITING_METHODS: Final = frozenset(("ReceiveMessage",))
_MODES_OF_KINDS: Final = {"PUSH_CONSUMER": "push", "SIMPLE_CONSUMER": "pop", "PULL_CONSUMER": "pull"}
_MODES_OF_TYPES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
_REFUSED: Final = "process_request_failed"
_BROKER: Final = "broker"
_LATENCY: Final = "rocketmq_rpc_latency_milliseconds"


def add_connections(
    page: MetricsPage,
    processor: Processor | None,
    consumers: ConsumerRegistry | None,
    producers: ProducerRegistry | None = None,
) -> None:
    """Producers and consumers. A producer that speaks remoting counts once for each of its groups."""
    producing: Counter[tuple[str, ...]] = Counter()
    consuming: Counter[tuple[str, ...]] = Counter()
    for client in processor.clients.all() if processor is not None else ():
        told = (client.language or UNKNOWN, client.version or UNKNOWN)
        if client.kind == "PRODUCER":
            producing[*told, "grpc"] += 1
        for group in client.groups:
            consuming[group, *told, _MODES_OF_KINDS.get(client.kind, UNKNOWN), "grpc"] += 1
    for known in producers.all() if producers is not None else ():
        producing[known.told.language.lower(), str(known.told.version), "remoting"] += 1
    for member in consumers.all() if consumers is not None else ():
        mode = _MODES_OF_TYPES.get(member.consume_type, UNKNOWN)
        consuming[member.group, member.language, str(member.version), mode, "remoting"] += 1
    for labels, number in bounded(producing, MAX_CLIENT_KINDS).items():
        page.add("rocketmq_producer_connections", number, *labels)
    for labels, number in bounded(consuming, MAX_COUNTED_PAIRS).items():
        page.add("rocketmq_consumer_connections", number, *labels, group_flags(labels[0], "")[1])


def add_proxy(page: MetricsPage, processor: Processor) -> None:
    """The proxy and its calls."""
    page.add("rocketmq_proxy_up", 1, "local", node_type="proxy")
    page.add("millstream_renewed_deliveries", len(processor.renewer.table), node_type="proxy")
    ok = _grpc_code(m.OK)
    for key, histogram in processor.latency.rows():
        method, code = (str(key[0]), _grpc_code(key[1])) if key is not None else (OTHER, OTHER)
        waits = "true" if method in _WAITING_METHODS else "false"
        result = "success" if code == ok else _REFUSED
        page.add_histogram(_LATENCY, histogram, "grpc", method, code, waits, result, node_type="proxy")


def add_remoting(page: MetricsPage, server: RemotingServer, node_type: str) -> None:
    """A remoting port and its requests."""
    page.add("millstream_remoting_connections", server.connections, node_type=node_type)
    if node_type == _BROKER:
        for kind, number in watermarks(server.unanswered).items():
            page.add("rocketmq_processor_watermark", number, kind, node_type=node_type)
    for key, histogram in server.latency.rows():
        request, response = key if key is not None else (-1, -1)
        labels = (
            _REQUESTS.get(request, OTHER),
            _RESPONSES.get(response, OTHER),
            "true" if request in _WAITING_CODES else "false",
        )
        result = "success" if response == ResponseCode.SUCCESS else _REFUSED
        page.add_histogram(_LATENCY, histogram, "remoting", *labels, result, node_type=node_type)


def _grpc_code(number: int) -> str:
    named = m.Code.DESCRIPTOR.values_by_number.get(number)
    return named.name.lower() if named else str(number)
