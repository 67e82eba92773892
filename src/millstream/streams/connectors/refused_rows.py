"""Rows that a sink's target rejects permanently: sent to a dead-letter topic, or the job fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.model.message import Message
from millstream.streams.connectors.options import DEAD_LETTER_TOPIC
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError

__all__ = ["RefusedRows"]

_TIMEOUT_S: Final = 10.0


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
