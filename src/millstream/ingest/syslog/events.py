"""Syslog messages made events: taken apart as JSON, or as they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from millstream.ingest.event_batch import EventBatch
from millstream.ingest.input_statistics import InputStatistics
from millstream.ingest.syslog.framing import SyslogFrame
from millstream.ingest.syslog.message import parse

__all__ = ["CUT_PROPERTY", "PEER_PROPERTY", "SyslogBatchBuilder"]

PEER_PROPERTY: Final = "peer"
"""The property that holds the address a message came from."""

CUT_PROPERTY: Final = "cut-from-bytes"
"""The property of a message that was cut: how long it was."""


@dataclass(frozen=True, slots=True)
class SyslogBatchBuilder:
    """Makes parcels of one sender's messages, and counts them."""

    tally: InputStatistics
    is_raw: bool = False

    def parcel(self, peer: str, frames: Sequence[SyslogFrame], now: datetime) -> EventBatch | None:
        """The events; None where all frames are blank."""
        kept = [frame for frame in frames if frame.body]
        if not kept:
            return None
        tally = self.tally
        tally.taken += len(kept)
        tally.taken_bytes += sum([len(frame.body) for frame in kept])
        own: dict[int, Mapping[str, str]] = {
            place: {CUT_PROPERTY: str(frame.whole_bytes)}
            for place, frame in enumerate(kept)
            if frame.whole_bytes is not None
        }
        tally.cut += len(own)
        bodies = [frame.body for frame in kept] if self.is_raw else [self._json(frame.body, now) for frame in kept]
        return EventBatch(bodies, {PEER_PROPERTY: peer}, own)

    def _json(self, body: bytes, now: datetime) -> bytes:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = body.decode(errors="replace")
            self.tally.malformed += 1
            return orjson.dumps(parse(text, now))
        fields = parse(text, now)
        if fields["format"] == "unknown":
            self.tally.malformed += 1
        return orjson.dumps(fields)
