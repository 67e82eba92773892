"""Parses the messages of one post: events in binary, structured or batch mode, or a plain body. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.broker.delivery.admission import check_keys, check_user_properties
from millstream.model import properties as names
from millstream.model.errors import MessageRefused, Refused
from millstream.model.message import Address, OutgoingMessage
from millstream.model.moment import moment_ms
from millstream.model.outside_text import clean_text
from millstream.model.topic import MessageType
from millstream.protocol.cloud_events import (
    BATCH_TYPE,
    HEADER_PREFIX,
    STRUCTURED_TYPE,
    VERSION_HEADER,
    CloudEvent,
    check_event,
    expiry_of_event,
    read_binary_event,
    read_json_event,
    read_plain_events,
    split_array,
)
from millstream.protocol.content_fields import CONTENT_TYPE, TRACE_PARENT
from millstream.proxy.http.request import QueryParameters

__all__ = ["MAX_POST_EVENTS", "PARTITION_KEY", "PostOptions", "messages_of_post"]

MAX_POST_EVENTS: Final = 10_000
"""Events of one post at most."""

PARTITION_KEY: Final = "CE_partitionkey"
"""The property whose events stay in their order."""

_FORMATS: Final = "application/cloudevents"
_FORM: Final = "application/x-www-form-urlencoded"
_TRACE_ATTRIBUTE: Final = "CE_traceparent"


@dataclass(slots=True)
class PostOptions:
    """What the query of a post says of all its messages. `due_ms` is when they are to be delivered, since 1970."""

    tag: str | None = None
    key: str | None = None
    group: str | None = None
    priority: int | None = None
    due_ms: int | None = None
    user_properties: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, query: QueryParameters, now_ms: int) -> PostOptions:
        """The options of a query: tag, key, group, priority, delay or deliverat, property.NAME. Raises HTTP_REQUEST,
        ILLEGAL_KEY, ILLEGAL_PROPERTY."""
        if not query.left:
            return cls()
        delay_ms, at = query.duration_ms("delay"), query.text("deliverat")
        if delay_ms is not None and at is not None:
            raise Refused("HTTP_REQUEST", "The query has delay and deliverat; one of them is enough.")
        due_ms = None if delay_ms is None else now_ms + delay_ms
        if at is not None:
            try:
                due_ms = moment_ms(at, now_ms)
            except ValueError as error:
                raise Refused("HTTP_REQUEST", f"The parameter deliverat: {str(error)[:200]}.") from None
        found = cls(
            query.text("tag"),
            query.text("key"),
            query.text("group"),
            query.number("priority", 0, 0, names.MAX_PRIORITY) if "priority" in query.left else None,
            due_ms,
            query.with_prefix("property."),
        )
        query.finish()
        keys = () if found.key is None else (found.key,)
        check_keys(keys)
        check_user_properties(found.user_properties, found.tag, keys)
        return found


def messages_of_post(
    topic: str,
    headers: Mapping[str, str],
    body: bytes,
    options: PostOptions,
    *,
    peer: Address,
    now_ms: int,
    next_id: Callable[[], str],
) -> list[OutgoingMessage]:
    """The messages of a post, at least one. `headers` are in lower case. Raises EVENT_MALFORMED, HTTP_CONTENT_TYPE,
    REQUEST_TOO_LARGE for too many events."""
    trace = headers.get(TRACE_PARENT)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        words = f"The Content-Encoding {headers['content-encoding'][:80]!r} is not taken; send the body as it is."
        raise Refused("HTTP_CONTENT_TYPE", words)
    if kind.startswith(_FORMATS):
        events = _json_events(kind, headers, body)
    elif VERSION_HEADER in headers or any(name.startswith(HEADER_PREFIX) for name in headers):
        events = [_event("The request", lambda: read_binary_event(headers, body))]
    else:
        shown = {} if kind in ("", _FORM) else {CONTENT_TYPE: clean_text(headers["content-type"])}
        events = [CloudEvent(body, shown, None)]
    return [_message(topic, event, options, trace, peer, now_ms, next_id()) for event in events]


def _json_events(kind: str, headers: Mapping[str, str], body: bytes) -> list[CloudEvent]:
    if any(name.startswith(HEADER_PREFIX) for name in headers):
        raise MessageRefused("EVENT_MALFORMED", "The request has attributes in headers and an event in its body.")
    if kind == STRUCTURED_TYPE:
        return [_event("The body", lambda: read_json_event(body))]
    if kind != BATCH_TYPE:
        raise Refused(
            "HTTP_CONTENT_TYPE",
            f"Events are taken as {STRUCTURED_TYPE} or {BATCH_TYPE}, not as {kind[:80]}.",
        )
    plain = read_plain_events(body)
    if plain and len(plain) <= MAX_POST_EVENTS:
        return plain
    try:
        elements = split_array(body)
    except ValueError as error:
        raise MessageRefused("EVENT_MALFORMED", f"The body is no JSON array: {error}.") from None
    if not 1 <= len(elements) <= MAX_POST_EVENTS:
        name = "REQUEST_TOO_LARGE" if elements else "EVENT_MALFORMED"
        raise MessageRefused(name, f"A batch has {len(elements)} events; 1 to {MAX_POST_EVENTS} are taken.")
    return [
        _event(f"Element {number}", lambda element=element: read_json_event(element))  # type: ignore[misc]
        for number, element in enumerate(elements, 1)
    ]


def _event(what: str, read: Callable[[], CloudEvent]) -> CloudEvent:
    try:
        event = read()
        check_event(event)
    except ValueError as error:
        raise MessageRefused("EVENT_MALFORMED", f"{what} is no CloudEvent: {error}.") from None
    return event


def _message(
    topic: str,
    event: CloudEvent,
    options: PostOptions,
    trace: str | None,
    peer: Address,
    now_ms: int,
    message_id: str,
) -> OutgoingMessage:
    key = options.key if options.key is not None else event.key
    held = {names.UNIQUE_KEY: message_id}
    names.put_sorting_properties(
        held, options.tag, () if key is None else (key,), options.group, options.priority, None
    )
    held[names.PRODUCER_GROUP] = topic
    held[names.BORN_TIMESTAMP] = str(now_ms)
    if options.due_ms is not None:
        held[names.DELIVERY_TIME_MS] = str(options.due_ms)
    trace = trace or event.properties.get(_TRACE_ATTRIBUTE)
    if trace:
        held[names.TRACE_CONTEXT] = clean_text(trace)
    expires_ms = expiry_of_event(event)
    if expires_ms is not None:
        held[names.EXPIRES_MS] = str(expires_ms)
    held.update(event.properties)
    if options.user_properties:
        held.update(options.user_properties)
    # By position: names cost as much as the values, and every event makes one.
    return OutgoingMessage(topic, event.body, held, MessageType.NORMAL, born_timestamp_ms=now_ms, born_host=peer)
