"""All connectors by name: our own rows, and those of other packages, found by the entry point group
`millstream.connectors` and loaded when they are named. Nothing here imports the code behind a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.datagen.options import DATAGEN
from millstream.streams.connectors.elasticsearch.options import ELASTICSEARCH
from millstream.streams.connectors.filesystem.options import FILESYSTEM
from millstream.streams.connectors.http.options import HTTP
from millstream.streams.connectors.jdbc.options import JDBC
from millstream.streams.connectors.nexmark.options import NEXMARK
from millstream.streams.connectors.print.options import BLACKHOLE, PRINT
from millstream.streams.connectors.rocketmq.options import ROCKETMQ, UPSERT_ROCKETMQ
from millstream.streams.connectors.rules.options import PACKED_HITS, RULES

__all__ = ["CONNECTORS", "GROUP", "KnownConnectors", "connector_of"]

GROUP = "millstream.connectors"
"""The group whose entries name a `Connector` each; the entry's name is the connector's."""

_log = logging.getLogger(__name__)


def _entries() -> Iterable[EntryPoint]:
    return entry_points(group=GROUP)


class KnownConnectors(Mapping[str, Connector]):
    """All connectors by name: our own, then those of installed packages.

    A package is imported when its connector is named, or when all are listed. One that cannot be used is left out of
    the list; `problem` says why.
    """

    def __init__(self, own: Iterable[Connector], entries: Callable[[], Iterable[EntryPoint]] = _entries) -> None:
        self.own = {connector.name: connector for connector in own}
        self._entries = entries
        self._loaded: dict[str, Connector] = {}
        self._problems: dict[str, str] = {}

    def __getitem__(self, name: str) -> Connector:
        if name in self.own:
            return self.own[name]
        if name not in self._loaded:
            entry = next((entry for entry in self._entries() if entry.name == name), None)
            if entry is None or not self._load(entry):
                raise KeyError(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        for entry in sorted(self._entries(), key=lambda entry: entry.name):
            if entry.name not in self.own and (entry.name in self._loaded or self._load(entry)):
                yield entry.name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def problem(self, name: str) -> str | None:
        """Why an installed connector of that name cannot be used, as a sentence; None where there is none."""
        return None if name in self else self._problems.get(name)

    def _load(self, entry: EntryPoint) -> bool:
        reason = self._refusal(entry)
        if reason is None:
            self._problems.pop(entry.name, None)
            return True
        package = entry.dist.name if entry.dist is not None else entry.module
        words = f"The connector '{entry.name}' of the package {package} cannot be used: {reason}."
        if self._problems.get(entry.name) != words:
            _log.warning("%s", words)
        self._problems[entry.name] = words
        return False

    def _refusal(self, entry: EntryPoint) -> str | None:
        try:
            found = entry.load()
        except Exception as error:  # noqa: BLE001 - another package's code; it may raise anything
            return f"{type(error).__name__}: {error}"
        if not isinstance(found, Connector):
            return f"{entry.value} is {type(found).__name__}, not Connector"
        if found.name != entry.name:
            return f"{entry.value} calls itself '{found.name}'"
        if (found.reads, found.writes, found.looks_up) != _doable(found) or found.overwrites:
            return "it is read where it names a source, written where it names a sink, asked where it names a lookup"
        self._loaded[entry.name] = found
        return None


def _doable(connector: Connector) -> tuple[bool, bool, bool]:
    """What there is code for: to read, to write, to look up."""
    reads, writes = connector.source or connector.job_source, connector.sink or connector.job_sink
    return bool(reads), bool(writes), bool(connector.lookup)


CONNECTORS = KnownConnectors(
    (
        ROCKETMQ,
        UPSERT_ROCKETMQ,
        FILESYSTEM,
        JDBC,
        NEXMARK,
        DATAGEN,
        RULES,
        PRINT,
        BLACKHOLE,
        HTTP,
        ELASTICSEARCH,
    )
)
"""Those that a table may name."""

_BETWEEN_QUERIES = {PACKED_HITS.name: PACKED_HITS}


def connector_of(name: str) -> Connector:
    """The row of that name, also of connectors between queries of one job; of no connector one that can do nothing."""
    # Those of installed packages are looked for last: that takes far longer.
    return CONNECTORS.own.get(name) or _BETWEEN_QUERIES.get(name) or CONNECTORS.get(name) or Connector(name, ())
