"""Maps each row of the error catalogue to a status code of the service."""

from __future__ import annotations

from google.protobuf.message import Message

from millstream.model.errors import MillstreamError
from millstream.protocol.grpc import messages as m

__all__ = ["CODES", "OK", "internal_error", "ok", "status_of", "topic_of"]

CODES: dict[str, m.Code] = {
    "TOPIC_NOT_FOUND": m.TOPIC_NOT_FOUND,
    "ILLEGAL_TOPIC": m.ILLEGAL_TOPIC,
    "QUEUE_NOT_FOUND": m.BAD_REQUEST,
    "FORBIDDEN": m.FORBIDDEN,
    "BROKER_DRAINED": m.FORBIDDEN,
    "GROUP_NOT_FOUND": m.CONSUMER_GROUP_NOT_FOUND,
    "ILLEGAL_GROUP": m.ILLEGAL_CONSUMER_GROUP,
    "GROUP_DISABLED": m.FORBIDDEN,
    "UNAUTHORIZED": m.UNAUTHORIZED,
    "ACCESS_DENIED": m.FORBIDDEN,
    "BODY_EMPTY": m.MESSAGE_BODY_EMPTY,
    "BODY_TOO_LARGE": m.MESSAGE_BODY_TOO_LARGE,
    "PROPERTIES_TOO_LARGE": m.MESSAGE_PROPERTIES_TOO_LARGE,
    "ILLEGAL_TAG": m.ILLEGAL_MESSAGE_TAG,
    "ILLEGAL_KEY": m.ILLEGAL_MESSAGE_KEY,
    "ILLEGAL_MESSAGE_GROUP": m.ILLEGAL_MESSAGE_GROUP,
    "ILLEGAL_PROPERTY": m.ILLEGAL_MESSAGE_PROPERTY_KEY,
    "MESSAGE_TYPE_MISMATCH": m.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    "MESSAGE_MALFORMED": m.MESSAGE_CORRUPTED,
    "ILLEGAL_MESSAGE_ID": m.ILLEGAL_MESSAGE_ID,
    "ILLEGAL_DELIVERY_TIME": m.ILLEGAL_DELIVERY_TIME,
    # Official clients take MESSAGE_NOT_FOUND for an empty answer to a receive, not for a failure.
    "MESSAGE_NOT_FOUND": m.BAD_REQUEST,
    "ILLEGAL_RECALL_HANDLE": m.BAD_REQUEST,
    "TRANSACTION_NOT_FOUND": m.INVALID_TRANSACTION_ID,
    "ILLEGAL_TRANSACTION_ID": m.INVALID_TRANSACTION_ID,
    "TRANSACTION_ENDED": m.PRECONDITION_FAILED,
    "ILLEGAL_RECOVERY_TIME": m.BAD_REQUEST,
    "CLIENT_NOT_CONNECTED": m.NOT_FOUND,
    "ILLEGAL_PRIORITY": m.BAD_REQUEST,
    "ILLEGAL_LITE_TOPIC": m.ILLEGAL_LITE_TOPIC,
    "LITE_TOPIC_QUOTA_EXCEEDED": m.LITE_TOPIC_QUOTA_EXCEEDED,
    "LITE_SUBSCRIPTION_QUOTA_EXCEEDED": m.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    "ILLEGAL_ROUTE": m.BAD_REQUEST,
    "LIGHT_QUEUE_QUOTA_EXCEEDED": m.TOO_MANY_REQUESTS,
    "LIGHT_QUEUE_GROUP": m.FORBIDDEN,
    "TOO_MANY_LIGHT_QUEUES": m.BAD_REQUEST,
    "ILLEGAL_FILTER": m.ILLEGAL_FILTER_EXPRESSION,
    "INVALID_RECEIPT_HANDLE": m.INVALID_RECEIPT_HANDLE,
    "ILLEGAL_INVISIBLE_TIME": m.ILLEGAL_INVISIBLE_TIME,
    "ILLEGAL_POLLING_TIME": m.ILLEGAL_POLLING_TIME,
    "CLIENT_ID_REQUIRED": m.CLIENT_ID_REQUIRED,
    "ILLEGAL_OFFSET": m.ILLEGAL_OFFSET,
    "OFFSET_NOT_FOUND": m.OFFSET_NOT_FOUND,
    "TOO_MANY_REQUESTS": m.TOO_MANY_REQUESTS,
    "CLIENT_THROTTLED": m.TOO_MANY_REQUESTS,
    "FILE_NOT_OPENED": m.TOO_MANY_REQUESTS,
    "UNSUPPORTED_CLIENT_TYPE": m.UNRECOGNIZED_CLIENT_TYPE,
    "UNSUPPORTED_FEATURE": m.NOT_IMPLEMENTED,
    "REQUEST_NOT_SUPPORTED": m.NOT_IMPLEMENTED,
    "ILLEGAL_NAMESPACE": m.BAD_REQUEST,
    "ILLEGAL_ACCESS_POINT": m.ILLEGAL_ACCESS_POINT,
    "REQUEST_MALFORMED": m.BAD_REQUEST,
    "REQUEST_TOO_LARGE": m.PAYLOAD_TOO_LARGE,
    "REQUEST_TOO_SLOW": m.REQUEST_TIMEOUT,
    "HEADERS_TOO_LARGE": m.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "FLUSH_TIMEOUT": m.MASTER_PERSISTENCE_TIMEOUT,
    "REPLICAS_TIMEOUT": m.SLAVE_PERSISTENCE_TIMEOUT,
    "TOO_FEW_REPLICAS": m.HA_NOT_AVAILABLE,
    "NOT_MASTER": m.HA_NOT_AVAILABLE,
    "TIMED_OUT": m.PROXY_TIMEOUT,
    "USERS_NOT_KNOWN_YET": m.PROXY_TIMEOUT,
    "UNREACHABLE": m.PROXY_TIMEOUT,
}
"""Catalogue name -> code. A name that is not here is a failure of the server: INTERNAL_SERVER_ERROR."""


OK = m.Status(code=m.OK, message="OK")
"""Success, for a response that is being made: a message copies the parts it is made of. Never to be changed."""


def ok(message: str = "OK") -> m.Status:
    """Success."""
    return m.Status(code=m.OK, message=message)


def status_of(error: MillstreamError, topic: str = "") -> m.Status:
    """The status of an error that a user may see. `topic` is the one of the request, for clients that read the text."""
    text = str(error)
    if error.name == "TOPIC_NOT_FOUND":
        # Programs of users match RocketMQ's words.
        text = f"CODE: 17  DESC: No topic route info in name server for the topic: {topic} {text}"
    return m.Status(code=CODES.get(error.name, m.INTERNAL_SERVER_ERROR), message=text)


def internal_error() -> m.Status:
    """The status of a failure that has no row of its own; its details stand in the server's log only."""
    error = MillstreamError("INTERNAL_ERROR", "The server met an error that it does not expect.")
    return m.Status(code=m.INTERNAL_SERVER_ERROR, message=str(error))


def topic_of(request: Message) -> str:
    """The name of the topic that a request speaks of, or blank."""
    queue = getattr(request, "message_queue", None)
    sent = getattr(request, "messages", None)
    named = getattr(queue, "topic", None) or getattr(request, "topic", None)
    if sent:
        named = sent[0].topic
    return str(getattr(named, "name", ""))
