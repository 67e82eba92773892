"""Time windows: their assignment, and the columns that they add."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.types import DataType, Field, Schema, TypeKind

__all__ = ["Attached", "Cumulate", "Emit", "Hop", "Session", "Tumble", "Window", "window_fields"]


@dataclass(frozen=True, slots=True)
class Tumble:
    """Windows of `size_ms`, one after another, aligned to 1970 plus `offset_ms`, over a time attribute."""

    time_column: str
    size_ms: int
    offset_ms: int = 0

    def __str__(self) -> str:
        return f"TUMBLE({self.time_column}, {self.size_ms} ms{_offset(self.offset_ms)})"


@dataclass(frozen=True, slots=True)
class Hop:
    """Windows of `size_ms`, one of which begins every `slide_ms`."""

    time_column: str
    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __str__(self) -> str:
        return f"HOP({self.time_column}, {self.slide_ms} ms, {self.size_ms} ms{_offset(self.offset_ms)})"


@dataclass(frozen=True, slots=True)
class Cumulate:
    """Windows that begin every `size_ms` and end after each `step_ms` of it; `size_ms` is a multiple of `step_ms`."""

    time_column: str
    size_ms: int
    step_ms: int
    offset_ms: int = 0

    def __str__(self) -> str:
        return f"CUMULATE({self.time_column}, {self.step_ms} ms, {self.size_ms} ms{_offset(self.offset_ms)})"


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that end when the rows of one key pause for `gap_ms`; `keys` are columns of the input.

    The end is the last row's time plus the gap.
    """

    time_column: str
    gap_ms: int
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        by = f" PARTITION BY {', '.join(self.keys)}" if self.keys else ""
        return f"SESSION({self.time_column}, {self.gap_ms} ms{by})"


@dataclass(frozen=True, slots=True)
class Attached:
    """The windows that the input's rows carry already, in columns that an earlier window added."""

    start_column: str
    end_column: str
    time_column: str

    def __str__(self) -> str:
        return f"ATTACHED({self.start_column}, {self.end_column})"


Window = Tumble | Hop | Cumulate | Session | Attached


@dataclass(frozen=True, slots=True)
class Emit:
    """When a window speaks beside its end: early, each `early_ms` (0: at every change); late, each `late_ms`.

    None leaves that out. `lateness_ms` is how long a window takes late rows after its end.
    """

    early_ms: int | None = None
    late_ms: int | None = None
    lateness_ms: int = 0


def window_fields(schema: Schema, window: Window) -> tuple[Field, Field, Field]:
    """`window_start`, `window_end`, `window_time`; their type follows the time column's (with a local zone or not).

    In windows over processing time `window_time` is a processing-time attribute, else an event-time attribute.
    """
    time = schema.find(window.time_column)
    if time is None:
        raise ValueError(f"no column {window.time_column!r} under the window")
    kind = TypeKind.TIMESTAMP if time.proctime else time.type.kind
    bound = DataType(kind, nullable=False, precision=3)
    return (
        Field("window_start", bound),
        Field("window_end", bound),
        Field("window_time", time.type if time.proctime else bound, rowtime=not time.proctime, proctime=time.proctime),
    )


def _offset(offset_ms: int) -> str:
    return f", offset {offset_ms} ms" if offset_ms else ""
