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
_encoded = msgspec.json.Encoder().encode
_head = FRAME_HEAD.pack


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
        fields = sent_fields(id_prefix + "%016X", "%d", "%d")
        answer = RemotingCommand(0, fields, opaque=_OPAQUE, flag=FLAG_RESPONSE)
        self._plain = _template(answer)
        fields["transactionId"] = "%s"
        # The id is put in with its quotation marks, because some characters of it have to be escaped.
        self._with_id = _template(answer).replace('"%s"', "%s")

    def frames(self, answers: Iterable[tuple[int, str | None, int, int, int]]) -> bytes:
        """The frames of (opaque, message id or None, queue, queue offset, log offset), one behind the other."""
        parts: list[bytes] = []
        plain, with_id = self._plain, self._with_id
        for opaque, message_id, queue_id, queue_offset, log_offset in answers:
            if message_id:
                # Only this text can have others than ASCII characters.
                text = with_id % (opaque, log_offset, queue_id, queue_offset, _encoded(message_id).decode())
                header = text.encode()
            else:
                header = (plain % (opaque, log_offset, queue_id, queue_offset)).encode()
            size = len(header)
            parts.append(_head(_LENGTH_WORD_BYTES + size, 0, size >> 16, size & 0xFFFF))
            parts.append(header)
        return b"".join(parts)


def _template(answer: RemotingCommand) -> str:
    """The header that the general way gives, with a place for the number of the request."""
    return encode_header(answer).decode().replace(str(_OPAQUE), "%d")
