"""The OpenAPI 3.1 description of the HTTP port, served by GET /v1/openapi.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from millstream import __version__
from millstream.protocol.cloud_events import BATCH_TYPE, STRUCTURED_TYPE
from millstream.protocol.problem import PROBLEM_TYPE
from millstream.proxy.grpc.namespace import NAMESPACE_HEADER
from millstream.proxy.http.answer import HttpAnswer, json_answer
from millstream.proxy.http.request import HttpRequest

__all__ = ["describe_api", "show_api"]

_JSON: Final = "application/json"
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_DURATION: Final = {"type": "string", "examples": ["250ms", "30s", "5m"]}
_FILTERS: Final = {"filter": ("Tags, as in a || b.", _TEXT), "sql": ("A condition in SQL92: docs/filters.md.", _TEXT)}

_WITHOUT_BODY: Final = frozenset(("101", "204"))

_Parameters = Mapping[str, tuple[str, Mapping[str, Any]]]


def describe_api() -> dict[str, Any]:
    """The whole document."""
    group = ("GROUP", "TOPIC")
    deliveries = "/v1/groups/{GROUP}/topics/{TOPIC}"
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millstream over HTTP", "version": __version__},
        "paths": {
            "/v1/topics/{TOPIC}/messages": {
                "post": _operation(
                    "Store an event, a batch of events or a plain body.",
                    ("TOPIC",),
                    {
                        "tag": ("The tag of the messages.", _TEXT),
                        "key": ("Their key; of an event it is its id.", _TEXT),
                        "group": ("Their message group, in topics of the type FIFO.", _TEXT),
                        "priority": ("Their priority, in topics of the type PRIORITY.", _NUMBER),
                        "delay": ("After what time they are delivered.", _DURATION),
                        "deliverat": ("When they are delivered, as 2026-11-24T08:30:00Z.", _TEXT),
                        "property.NAME": ("A user property of the messages, of any name.", _TEXT),
                    },
                    body=("application/octet-stream", STRUCTURED_TYPE, BATCH_TYPE),
                ),
            },
            "/v1/topics/{TOPIC}/messages/{HANDLE}": {
                "delete": _operation("Take a delayed message back.", ("TOPIC", "HANDLE")),
            },
            "/v1/topics/{TOPIC}/stream": {
                "get": _operation(
                    "New messages as server-sent events.",
                    ("TOPIC",),
                    {**_FILTERS, "from": ("The id of the last event that was read, or earliest.", _TEXT)},
                    answers=("text/event-stream",),
                    headers={"Last-Event-ID": "The id of the last event that was read; goes before from."},
                ),
            },
            f"{deliveries}/receive": {
                "post": _operation(
                    "Receive messages, which nobody else of the group gets for a time.",
                    group,
                    {
                        **_FILTERS,
                        "max": ("How many at most, 1 to 32.", _NUMBER),
                        "wait": ("How long to wait for the first, up to 20s.", _DURATION),
                        "invisible": ("For how long they are hidden from others, 10s to 12h.", _DURATION),
                    },
                    answers=(_JSON, BATCH_TYPE),
                ),
            },
            f"{deliveries}/websocket": {
                "get": _operation(
                    "Open a WebSocket (RFC 6455) over which messages come as they do from receive, and which takes "
                    '{"action": "ack" | "nack" | "extend" | "dead-letter", "handles": ["..."]}, with "delay" of nack '
                    'and "invisible" of extend: docs/http.md.',
                    group,
                    {
                        **_FILTERS,
                        "max_in_flight": ("How many messages may wait to be settled, 1 to 1000.", _NUMBER),
                        "invisible": ("For how long they are hidden from others, 10s to 12h.", _DURATION),
                    },
                    status="101",
                ),
            },
            f"{deliveries}/ack": {"post": _settling("Acknowledge deliveries.")},
            f"{deliveries}/nack": {
                "post": _settling("Give deliveries back.", {"delay": ("After what time they come again.", _DURATION)})
            },
            f"{deliveries}/extend": {
                "post": _settling(
                    "Keep deliveries longer; each has a new handle.", {"invisible": ("For how long.", _DURATION)}
                )
            },
            f"{deliveries}/dead-letter": {"post": _settling("Move deliveries to the dead-letter topic.")},
            "/v1/subscriptions": {
                "get": _operation("All subscriptions of the user.", ()),
                "post": _operation("Have events posted to a sink.", (), body=(_JSON,), status="201"),
            },
            "/v1/subscriptions/{ID}": {
                "get": _operation("One subscription.", ("ID",)),
                "put": _operation("Put another subscription in its place.", ("ID",), body=(_JSON,)),
                "delete": _operation("Have it no more.", ("ID",), status="204"),
            },
            "/v1/openapi.json": {"get": _open("This page.")},
            "/health": {"get": _open("Whether the port answers.")},
        },
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "security": [{}, {"basic": []}],
    }


def _open(summary: str) -> dict[str, Any]:
    """An operation that asks for no user."""
    found = _operation(summary, (), headers={})
    return {**found, "parameters": [], "security": [{}]}


def _settling(summary: str, parameters: _Parameters | None = None) -> dict[str, Any]:
    return _operation(summary, ("GROUP", "TOPIC"), parameters or {}, body=(_JSON,))


def _operation(
    summary: str,
    names: Sequence[str],
    parameters: _Parameters | None = None,
    *,
    body: Sequence[str] = (),
    answers: Sequence[str] = (_JSON,),
    status: str = "200",
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    described: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names
    ]
    for name, (meaning, schema) in (parameters or {}).items():
        described.append({"name": name, "in": "query", "description": meaning, "schema": schema})
    for name, meaning in {**(headers or {}), NAMESPACE_HEADER: "The namespace of the topics and groups."}.items():
        described.append({"name": name, "in": "header", "description": meaning, "schema": _TEXT})
    problem = {
        "description": "What is wrong, with its number in docs/errors.md.",
        "content": {PROBLEM_TYPE: {"schema": {"type": "object"}}},
    }
    content: dict[str, Any] = (
        {} if status in _WITHOUT_BODY else {"content": {answer: {"schema": {}} for answer in answers}}
    )
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": described,
        "responses": {status: {"description": "Done.", **content}, "default": problem},
    }
    if body:
        found["requestBody"] = {"content": {kind: {"schema": {}} for kind in body}}
    return found


async def show_api(request: HttpRequest) -> HttpAnswer:
    """The document."""
    request.query.finish()
    return json_answer(describe_api())
