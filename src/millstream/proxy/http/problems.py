"""Maps each row of the error catalogue to an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from millstream.model.errors import MillstreamError
from millstream.protocol.problem import PROBLEM_TYPE, encode_problem
from millstream.proxy.http.answer import HttpAnswer

__all__ = ["RETRY_AFTER_S", "STATUSES", "internal_problem", "problem_answer", "status_of"]

RETRY_AFTER_S: Final = 1
"""Seconds that Retry-After names where a client is to slow down or a server is away."""

STATUSES: Final[dict[str, HTTPStatus]] = {
    "TOPIC_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "ILLEGAL_TOPIC": HTTPStatus.BAD_REQUEST,
    "QUEUE_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "BROKER_DRAINED": HTTPStatus.SERVICE_UNAVAILABLE,
    "GROUP_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "ILLEGAL_GROUP": HTTPStatus.BAD_REQUEST,
    "GROUP_DISABLED": HTTPStatus.FORBIDDEN,
    "UNAUTHORIZED": HTTPStatus.UNAUTHORIZED,
    "ACCESS_DENIED": HTTPStatus.FORBIDDEN,
    "USERS_NOT_KNOWN_YET": HTTPStatus.SERVICE_UNAVAILABLE,
    "CLIENT_THROTTLED": HTTPStatus.TOO_MANY_REQUESTS,
    "TOO_MANY_REQUESTS": HTTPStatus.TOO_MANY_REQUESTS,
    "FILE_NOT_OPENED": HTTPStatus.SERVICE_UNAVAILABLE,
    "BODY_EMPTY": HTTPStatus.BAD_REQUEST,
    "BODY_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "PROPERTIES_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "ILLEGAL_TAG": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_KEY": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_MESSAGE_GROUP": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_PROPERTY": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_PRIORITY": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_DELIVERY_TIME": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_NAMESPACE": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_LITE_TOPIC": HTTPStatus.BAD_REQUEST,
    "MESSAGE_TYPE_MISMATCH": HTTPStatus.BAD_REQUEST,
    "MESSAGE_MALFORMED": HTTPStatus.BAD_REQUEST,
    "EVENT_MALFORMED": HTTPStatus.BAD_REQUEST,
    "MESSAGE_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "ILLEGAL_RECALL_HANDLE": HTTPStatus.UNPROCESSABLE_ENTITY,
    "ILLEGAL_FILTER": HTTPStatus.BAD_REQUEST,
    "INVALID_RECEIPT_HANDLE": HTTPStatus.CONFLICT,
    "ILLEGAL_INVISIBLE_TIME": HTTPStatus.BAD_REQUEST,
    "ILLEGAL_OFFSET": HTTPStatus.BAD_REQUEST,
    "UNSUPPORTED_FEATURE": HTTPStatus.NOT_IMPLEMENTED,
    "HTTP_RESOURCE": HTTPStatus.NOT_FOUND,
    "HTTP_METHOD": HTTPStatus.METHOD_NOT_ALLOWED,
    "HTTP_REQUEST": HTTPStatus.BAD_REQUEST,
    "HTTP_CONTENT_TYPE": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "HTTP_ACCEPT": HTTPStatus.NOT_ACCEPTABLE,
    "HTTP_UPGRADE": HTTPStatus.UPGRADE_REQUIRED,
    "HTTP_ORIGIN": HTTPStatus.FORBIDDEN,
    "REQUEST_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "REQUEST_TOO_SLOW": HTTPStatus.REQUEST_TIMEOUT,
    "REQUESTS_OVER_BUDGET": HTTPStatus.SERVICE_UNAVAILABLE,
    "HEADERS_TOO_LARGE": HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "ILLEGAL_SUBSCRIPTION": HTTPStatus.BAD_REQUEST,
    "SUBSCRIPTION_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "SUBSCRIPTION_LIMIT": HTTPStatus.TOO_MANY_REQUESTS,
    "SINK_REFUSED": HTTPStatus.UNPROCESSABLE_ENTITY,
    "STORE_FAILED": HTTPStatus.SERVICE_UNAVAILABLE,
    "DISK_FULL": HTTPStatus.SERVICE_UNAVAILABLE,
    "FLUSH_TIMEOUT": HTTPStatus.SERVICE_UNAVAILABLE,
    "REPLICAS_TIMEOUT": HTTPStatus.SERVICE_UNAVAILABLE,
    "TOO_FEW_REPLICAS": HTTPStatus.SERVICE_UNAVAILABLE,
    "NOT_MASTER": HTTPStatus.SERVICE_UNAVAILABLE,
    "TIMED_OUT": HTTPStatus.SERVICE_UNAVAILABLE,
    "UNREACHABLE": HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Catalogue name -> status. A name that is not here is a failure of the server: 500."""

_PATIENT: Final = frozenset((HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE))


def status_of(error: MillstreamError) -> HTTPStatus:
    """The status of an error that a user may see."""
    return STATUSES.get(error.name, HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_answer(
    error: MillstreamError, more: Mapping[str, Any] | None = None, *, status: HTTPStatus | None = None
) -> HttpAnswer:
    """The answer that tells of an error; `more` are further members of the problem."""
    status = status or status_of(error)
    headers: list[tuple[bytes, bytes]] = []
    if status in _PATIENT:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    elif status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Basic realm="millstream", charset="UTF-8"'))
    return HttpAnswer(status, encode_problem(status, error, more), PROBLEM_TYPE.encode(), headers)


def internal_problem() -> HttpAnswer:
    """The answer to a failure that has no row of its own; its details stand in the server's log only."""
    return problem_answer(MillstreamError("INTERNAL_ERROR", "The server met an error that it does not expect."))
