"""Rows that the other side refuses for good: to a dead-letter topic with the reason, or the end of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.model.message import Message
from millstream.streams.connectors.options import Option, text
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError

__all__ = ["DEAD_LETTER_OPTIONS", "DEAD_LETTER_TOPIC", "RefusedRows"]

DEAD_LETTER_TOPIC: Final = "sink.dead-letter.topic"
_TIMEOUT_S: Final = 10.0

DEAD_LETTER_OPTIONS: tuple[Option, ...] = (
    text(DEAD_LETTER_TOPIC, "Topic for rows that are refused for good; default: the job ends.",
         pattern=r"[%|a-zA-Z0-9_-]{1,127}", wanted="a legal topic name (letters, digits, _ - % |)"),
    text("nameserver", "Nameserver of that topic; default: the session's.", wanted="host:port",
         pattern=r"[^\s:;]+:\d{1,5}(;[^\s:;]+:\d{1,5})*"),
)  # fmt: skip
"""What connectors with such rows declare."""


class RefusedRows:
    """Sends rows to the topic that the table's options name. A replay sends them again."""

    def __init__(self, table: ConnectedTable) -> None:
        self._table = table.name
        self._topic = table.options.get(DEAD_LETTER_TOPIC, "")
        self._nameserver = table.options.get("nameserver", table.nameserver)

    def take(self, bodies: Sequence[bytes], reason: str) -> None:
        """All are in the topic when this returns. Raises JobError SINK_FAILED with the reason where there is none."""
        if not self._topic:
            words = f"The sink {self._table} refuses {len(bodies)} rows: {reason}"
            raise JobError("SINK_FAILED", words, remedy=f"Set '{DEAD_LETTER_TOPIC}' to go on without such rows.")
        self.take_each([(body, reason) for body in bodies])

    def take_each(self, rows: Sequence[tuple[bytes, str]]) -> None:
        """Bodies with a reason each; all are in the topic, of which there is one, when this returns."""
        from millstream.streams.spark.source.topic_log import open_log

        log = open_log(self._nameserver, timeout_s=_TIMEOUT_S)
        try:
            log.ensure_topic(self._topic)
            log.send(
                [
                    Message(
                        self._topic,
                        body or b" ",
                        user_properties={"reason": _printable(reason), "sink_table": self._table},
                    )
                    for body, reason in rows
                ]
            )
        finally:
            log.close()


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
