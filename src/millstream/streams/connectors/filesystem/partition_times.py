"""Decides when a partition is complete, by the time in its directory name and the watermark or clock."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.streams.plan.tables import named_values

__all__ = ["CommitPolicy", "PartitionClock", "time_reader"]

_LENIENT = re.compile(
    r"(?P<y>\d{1,4})-(?P<M>\d{1,2})-(?P<d>\d{1,2})"
    r"(?: (?P<H>\d{1,2}):(?P<m>\d{1,2}):(?P<s>\d{1,2})(?:\.(?P<S>\d{1,9}))?)?"
)
"""What is read where no formatter is given. Source: Flink's default extractor of partition times."""

_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")
_LETTERS = "yMdHmsS"


def time_reader(formatter: str) -> re.Pattern[str]:
    """What texts of a formatter look like; blank is Flink's default. Raises ValueError for letters it cannot have."""
    if not formatter:
        return _LENIENT
    parts, place, seen = [], 0, ""
    while place < len(formatter):
        token = _TOKEN.match(formatter, place)
        if token is None:
            raise ValueError("a quote is not closed")
        place = token.end()
        letters = token["letters"]
        if letters is None:
            parts.append(re.escape(token["other"] or token["quoted"].replace("''", "'") or "'"))
            continue
        letter = {"u": "y"}.get(letters[0], letters[0])
        if letter not in _LETTERS or letter in seen:
            raise ValueError(f"it cannot have {letters} there")
        seen += letter
        digits = f"{{{len(letters)}}}" if len(letters) > 1 else "{1,4}" if letter == "y" else "{1,2}"
        parts.append(rf"(?P<{letter}>\d{digits})")
    if "y" not in seen:
        raise ValueError("it has no year")
    return re.compile("".join(parts))


@dataclass(frozen=True, slots=True)
class PartitionClock:
    """Reads the time of a partition from its directory.

    `pattern` names columns as in `$dt $hm:00`; blank: the first of `columns` is the time. `zone` is where it holds.
    """

    columns: Sequence[str]
    pattern: str
    reader: re.Pattern[str]
    zone: datetime.tzinfo
    default_name: str

    def time_ms(self, directory: str) -> int | None:
        """Milliseconds since 1970; None where the values are no time."""
        values = named_values(directory.split("/"), self.default_name)
        found = self.reader.fullmatch(self._text(values))
        if found is None:
            return None
        parts = {letter: int(text) for letter, text in found.groupdict().items() if text and letter != "S"}
        fraction = (found.groupdict().get("S") or "").ljust(6, "0")[:6]
        try:
            day = datetime.datetime(parts["y"], parts.get("M", 1), parts.get("d", 1), tzinfo=self.zone)
            clock = datetime.timedelta(
                hours=parts.get("H", 0),
                minutes=parts.get("m", 0),
                seconds=parts.get("s", 0),
                microseconds=int(fraction),
            )
            return int((day + clock).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None

    def _text(self, values: Mapping[str, str | None]) -> str:
        if not self.pattern:
            return values.get(self.columns[0]) or ""
        # The longest names first: $day is not $d with "ay" behind it.
        names = "|".join(re.escape(name) for name in sorted(self.columns, key=len, reverse=True))
        return re.sub(rf"\$({names})", lambda found: values.get(found[1]) or "", self.pattern)


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """`mark` is the file that says a partition is whole; it is, `delay_ms` after its time.

    With a `clock` that is the partition's own time, which the watermark passes; else the time of its first rows.
    """

    mark: str
    delay_ms: int
    clock: PartitionClock | None = None

    def is_whole(self, directory: str, since_ms: int, now_ms: int, watermark_ms: int | None) -> bool:
        """Whether a partition that has had new rows since `since_ms` is whole. Source: Flink's two triggers."""
        if self.clock is None:
            return self.delay_ms == 0 or now_ms > since_ms + self.delay_ms
        time_ms = self.clock.time_ms(directory)
        return time_ms is not None and watermark_ms is not None and watermark_ms > time_ms + self.delay_ms
