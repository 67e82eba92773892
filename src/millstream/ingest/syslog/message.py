"""Parses a syslog message (RFC 5424, RFC 3164 and common deviations) and turns it into an event."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import orjson

from millstream.ingest.event_batch import EventBatch
from millstream.ingest.syslog.framing import SyslogFrame
from millstream.ingest.topic_writer import InputStatistics

__all__ = ["CUT_PROPERTY", "FACILITIES", "PEER_PROPERTY", "SEVERITIES", "SyslogBatchBuilder", "parse"]


FACILITIES: Final = tuple(
    "kern user mail daemon auth syslog lpr news uucp cron authpriv ftp ntp audit alert clock "
    "local0 local1 local2 local3 local4 local5 local6 local7".split()
)
SEVERITIES: Final = tuple("emerg alert crit err warning notice info debug".split())

_DEFAULT_PRIORITY: Final = 13
"""user.notice: what RFC 3164 takes a message for that names no priority."""

_MAX_PRIORITY: Final = 191

_PRIORITY: Final = re.compile(r"<(0|[1-9][0-9]{0,2})>")
_HEADER: Final = re.compile(r"1 (\S{1,64}) (\S{1,255}) (\S{1,48}) (\S{1,128}) (\S{1,32}) (?=[\[-])")
_ELEMENT: Final = re.compile(r'\[([^\s="\]]{1,32})((?: [^\s="\]]{1,32}="(?:[^"\\\]]|\\.)*")*)\]', re.DOTALL)
_PARAMETER: Final = re.compile(r' ([^\s="\]]{1,32})="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(r'\\(["\\\]])')

_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_OLD_TIME: Final = re.compile(
    rf"({'|'.join(_MONTHS)}) ([ 0-9][0-9]) ([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})(\.[0-9]{{1,6}})? "
)
_NEW_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?) "
)
_OLD_HOST: Final = re.compile(r"([^\s:\[\]]+) ")
_OLD_TAG: Final = re.compile(r"([^\s:\[\]]{1,48})(?:\[([^\]\s]{0,128})\])?: ?")

Fields = dict[str, str | int | dict[str, dict[str, str]]]


def parse(text: str, now: datetime) -> Fields:
    """What the message says, by name; a part that is missing or `-` is left out.

    `format` is rfc5424, rfc3164 or, where only the priority or nothing at all could be read, unknown; what could not
    be read stands in `message`. A time without a year gets the one that brings it closest before `now` (the sender's
    local time, so at most a day after it).
    """
    found = _PRIORITY.match(text)
    number = int(found[1]) if found is not None else _DEFAULT_PRIORITY
    if found is None or number > _MAX_PRIORITY:
        return {**_fields_of_priority(_DEFAULT_PRIORITY), "format": "unknown", "message": text}
    fields = _fields_of_priority(number)
    rest = text[found.end() :]
    header = _HEADER.match(rest)
    if header is not None and _read_new(fields, header, rest):
        return fields
    if not _read_old(fields, rest, now):
        fields["format"] = "unknown"
        fields["message"] = rest
    return fields


def _fields_of_priority(priority: int) -> Fields:
    facility, severity = divmod(priority, 8)
    return {"facility": FACILITIES[facility], "severity": SEVERITIES[severity], "severity_code": severity}


def _read_new(fields: Fields, header: re.Match[str], rest: str) -> bool:
    """RFC 5424; False, and nothing added, where its structured data cannot be read."""
    place, elements = header.end(), {}
    if rest.startswith("-", place):
        place += 1
    else:
        while (element := _ELEMENT.match(rest, place)) is not None:
            elements[element[1]] = {
                name: _ESCAPE.sub(r"\1", value) if "\\" in value else value
                for name, value in _PARAMETER.findall(element[2])
            }
            place = element.end()
        if not elements:
            return False
    if place < len(rest) and rest[place] != " ":
        return False
    fields["format"] = "rfc5424"
    for name, value in zip(("timestamp", "host", "app", "process_id", "message_id"), header.groups(), strict=True):
        if value != "-":
            fields[name] = value
    if elements:
        fields["structured_data"] = elements
    fields["message"] = rest[place + 1 :].removeprefix("\ufeff")
    return True


def _read_old(fields: Fields, rest: str, now: datetime) -> bool:
    """RFC 3164, also with a time as RFC 5424 writes it, as some relays send; False where it has no time."""
    old, new = _OLD_TIME.match(rest), _NEW_TIME.match(rest)
    if old is not None:
        moment = _with_year(old, now)
        if moment is None:
            return False
        fields["timestamp"] = moment
        rest = rest[old.end() :]
    elif new is not None:
        fields["timestamp"] = new[1]
        rest = rest[new.end() :]
    else:
        return False
    fields["format"] = "rfc3164"
    host = _OLD_HOST.match(rest)
    # A message of the own machine has no host: what stands there is the tag.
    if host is not None:
        fields["host"] = host[1]
        rest = rest[host.end() :]
    tag = _OLD_TAG.match(rest)
    if tag is not None:
        fields["app"] = tag[1]
        if tag[2]:
            fields["process_id"] = tag[2]
        rest = rest[tag.end() :]
    fields["message"] = rest
    return True


def _with_year(found: re.Match[str], now: datetime) -> str | None:
    month = _MONTHS.index(found[1]) + 1
    # Four years hold a 29th of February.
    for year in range(now.year + 1, now.year - 9, -1):
        try:
            moment = datetime(year, month, int(found[2]), int(found[3]), int(found[4]), min(int(found[5]), 59))
        except ValueError:
            continue
        if moment - now <= timedelta(days=1):
            return moment.isoformat() + (found[6] or "")
    return None


PEER_PROPERTY: Final = "peer"
"""The property that holds the address a message came from."""

CUT_PROPERTY: Final = "cut-from-bytes"
"""The property of a message that was cut: how long it was."""


@dataclass(frozen=True, slots=True)
class SyslogBatchBuilder:
    """Makes batches of one sender's messages, and counts them."""

    tally: InputStatistics
    is_raw: bool = False

    def make_batch(self, peer: str, frames: Sequence[SyslogFrame], now: datetime) -> EventBatch | None:
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
