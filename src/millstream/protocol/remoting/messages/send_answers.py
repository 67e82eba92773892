"""The answers to ordinary sends, made from a template: of one and the next only the places differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from millstream.protocol.remoting.command import FLAG_RESPONSE, RemotingCommand, encode_header
from millstream.protocol.remoting.frame import FRAME_HEAD

__all__ = ["REGION", "SendAnswers", "sent_fields"]

REGION: Final = "DefaultRegion"
"""The region that answers name; Java clients need the field, nobody needs its value."""

_OPAQUE: Final = 1_234_567_890
_LENGTH_WORD_BYTES: Final = 4
_PLACE: Final = "@"
"""Stands in the template where answers differ."""

_MAX_KEPT_HEADS: Final = 1024
_encoded = msgspec.json.Encoder().encode


def sent_fields(ids: str, queue_id: int | str, queue_offset: int | str) -> dict[str, str]:
    """Never empty: the Java client reads MSG_REGION and TRACE_ON without looking whether there are fields at all."""
    return {
        "msgId": ids,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "MSG_REGION": REGION,
        "TRACE_ON": "true",
    }


class SendAnswers:
    """Makes the frames of one broker's answers, with JSON headers. `id_prefix` begins its offset message ids."""

    def __init__(self, id_prefix: str) -> None:
        fields = sent_fields(id_prefix + _PLACE, _PLACE, _PLACE)
        answer = RemotingCommand(0, fields, opaque=_OPAQUE, flag=FLAG_RESPONSE)
        *self._before, self._end = _pieces(answer)
        fields["transactionId"] = _PLACE
        # The id is put in with its quotation marks, because some characters of it have to be escaped.
        *_, before_id, end = _pieces(answer)
        self._before_id, self._end_with_id = before_id.removesuffix('"'), end.removeprefix('"')
        self._heads: dict[int, bytes] = {}

    def frames(self, answers: Iterable[tuple[int, str | None, int, int, int]]) -> bytes:
        """The frames of (opaque, message id or None, queue, queue offset, log offset), one behind the other."""
        parts: list[bytes] = []
        before_opaque, before_place, before_queue, before_offset = self._before
        heads, plain_end = self._heads, self._end
        for opaque, message_id, queue_id, queue_offset, log_offset in answers:
            end = plain_end
            if message_id:
                end = f"{self._before_id}{_encoded(message_id).decode()}{self._end_with_id}"
            header = (
                f"{before_opaque}{opaque}{before_place}{log_offset:016X}{before_queue}{queue_id}"
                f"{before_offset}{queue_offset}{end}"
            ).encode()
            size = len(header)
            parts.append(heads.get(size) or self._head(size))
            parts.append(header)
        return b"".join(parts)

    def _head(self, size: int) -> bytes:
        head = FRAME_HEAD.pack(_LENGTH_WORD_BYTES + size, 0, size >> 16, size & 0xFFFF)
        if size < _MAX_KEPT_HEADS:
            self._heads[size] = head
        return head


def _pieces(answer: RemotingCommand) -> list[str]:
    """What stands around the places in the header that the general way gives."""
    return encode_header(answer).decode().replace(str(_OPAQUE), _PLACE).split(_PLACE)
