"""The stream engine's interface to a messaging system: ranges, offsets by time, rows, and sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from millstream.model.message import Message
from millstream.streams.connectors.options import from_environment
from millstream.streams.errors import JobError
from millstream.streams.spark.source.cold_pieces import ColdSpan
from millstream.streams.spark.source.position import QueueSpan, Slice

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Access", "TopicLog", "open_log"]


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks a cluster, and what it is verified with: a file of certificates, or `system`.

    What is blank is taken from the environment (MILLSTREAM_ACCESS_KEY, MILLSTREAM_SECRET_KEY, MILLSTREAM_TLS_CA).
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Access:
        """What a table's options say. Raises JobError JOB_FAILED for a name that the environment has not."""
        try:
            return cls(*(from_environment(options.get(name, "")) for name in ("access-key", "secret-key", "tls")))
        except KeyError as missing:
            name = missing.args[0]
            words = f"The environment has no {name}, which the options of a topic name."
            raise JobError("JOB_FAILED", words, remedy=f"Set it before the start: export {name}=...") from None


class TopicLog(Protocol):
    """One connection to a cluster. A queue's name is `broker/queue id`."""

    def spans(self, topic: str) -> dict[str, QueueSpan]:
        """What each queue holds, in one look."""
        ...

    def offset_at(self, topic: str, queue: str, timestamp_ms: int) -> int:
        """The first offset whose store time is at or after `timestamp_ms`; the end if there is none."""
        ...

    def committed_offset(self, group: str, topic: str, queue: str) -> int | None:
        """Where the group stands; None where it has not been yet."""
        ...

    def read(self, topic: str, part: Slice, tag: str = "*") -> Iterator[Sequence[memoryview]]:
        """The whole records of a slice with one of the tags, in order; those that retention removed are passed over."""
        ...

    def takes_bulk(self, topic: str) -> bool:
        """Whether the topic can be read and written by the bulk lane; False for a topic that does not exist."""
        ...

    def read_bulk(self, topic: str, part: Slice, tag: str = "*") -> Iterator[pa.Table]:
        """As `read`, by the bulk lane: tables of `client.bulk.fetched.TABLE_SCHEMA`, without the damaged records."""
        ...

    def cold_spans(self, topic: str, part: Slice, *, bulk: bool) -> Sequence[ColdSpan]:
        """Where messages of a slice lie that the broker's disk has let go, as far as a reader can fetch them itself."""
        ...

    def send_bulk(self, topic: str, rows: pa.RecordBatch) -> None:
        """Store rows of the bulk lane's columns in one queue; returns when all are acknowledged."""
        ...

    def send(self, messages: Sequence[Message], *, by_key: bool = False, queue: str = "") -> None:
        """Store messages of one topic, those of a key in one queue if `by_key`; returns when all are acknowledged.

        With a `queue` all go there, in their order.

        A failed send is not repeated: its messages may be stored.
        """
        ...

    def is_compacted(self, topic: str) -> bool:
        """Whether the topic keeps the last message of each key; False where it does not exist."""
        ...

    def ensure_topic(self, topic: str, *, compacted: bool = False) -> None:
        """Create the topic if it does not exist; a `compacted` one with one queue, so that all is in order."""
        ...

    def show_progress(self, group: str, topic: str, offsets: Mapping[str, int]) -> None:
        """Tell the broker how far `group` is; for display only."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


def open_log(nameserver: str, *, timeout_s: float, access: Access | None = None, read_from: str = "master") -> TopicLog:
    """A connection to the cluster of `nameserver`; `timeout_s` bounds each call. `access` None: by the environment.

    `read_from` is `master` or `replica`: who is asked first for messages.
    """
    from millstream.client.replica_reads import ReadFrom
    from millstream.streams.spark.source.client_log import ClientLog

    return ClientLog(nameserver, timeout_s=timeout_s, access=access or Access(), read_from=ReadFrom(read_from))
