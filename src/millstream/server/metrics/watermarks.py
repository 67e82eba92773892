"""How many requests of each kind wait for their answer at a broker's remoting port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from millstream.protocol.remoting.codes import RequestCode

__all__ = ["watermarks"]

_ADMIN: Final = "admin"
_KINDS: Final[dict[str, tuple[RequestCode, ...]]] = {
    "send": (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.BULK_PUT,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.RECALL_MESSAGE,
    ),
    "reply": (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    "ack": (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME),
    "query_message": (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID),
    "client_manager": (RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "consumer_manager": (
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    ),
    "transaction": (RequestCode.END_TRANSACTION, RequestCode.END_TRANSACTION_BY_ID),
}
"""RocketMQ's names for kinds of requests; `_ADMIN` is that of all others."""

_WAITING_FOR_MESSAGES: Final = frozenset((
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.BULK_FETCH,
    RequestCode.POP_MESSAGE,
    RequestCode.SEGMENT_POP,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
))  # fmt: skip
"""They are answered at once or wait on purpose, so that a number of them would say nothing of load."""

_KIND_OF: Final[dict[int, str]] = {code: kind for kind, codes in _KINDS.items() for code in codes}


def watermarks(unanswered: Mapping[int, int]) -> dict[str, int]:
    """Requests that were read and are not answered yet, by kind; `unanswered` has them by request code."""
    found = Counter(dict.fromkeys((*_KINDS, _ADMIN), 0))
    for code, number in unanswered.items():
        if code not in _WAITING_FOR_MESSAGES:
            found[_KIND_OF.get(code, _ADMIN)] += number
    return found
