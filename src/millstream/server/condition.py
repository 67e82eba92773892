"""Liveness and readiness of a server: the pages /healthz and /readyz."""

from __future__ import annotations

import json
from dataclasses import dataclass

from millstream.broker.broker import Broker
from millstream.server.replicas.replicated_broker import ReplicaRole, ReplicatedBroker
from millstream.store.message_store import MessageStore
from millstream.transport.http_pages import Page

__all__ = ["Condition"]


@dataclass(slots=True)
class Condition:
    """The state of one server. `broker` is set once its log is recovered, `state` tells how far the server is."""

    state: str = "starting"
    broker: Broker | None = None
    holds_log: bool = True
    """Whether there will be a broker."""
    replicated: ReplicatedBroker | None = None
    """The replica that the broker is, where it is one of a set."""

    async def health(self) -> Page:
        """200 while nothing but a restart could be needed; 503 once the store has failed for good."""
        failure = self._failure()
        return self._page(failure is None, [] if failure is None else [failure])

    async def readiness(self) -> Page:
        """200 while messages are stored and delivered, else 503 and why not."""
        reasons = []
        if self.replicated is not None and self.broker is None:
            if self.replicated.role is ReplicaRole.REGISTERING:
                reasons.append("The broker does not know the master of its set.")
        elif self.broker is None and self.holds_log:
            reasons.append("The log is being opened and recovered.")
        elif self.state != "serving":
            reasons.append(f"The server is {self.state}.")
        failure = self._failure()
        if failure is not None:
            reasons.append(failure)
        if self.broker is not None and self.broker.maintenance.store.is_disk_full:
            reasons.append("The disk is filled beyond its watermark; messages are refused until there is room.")
        return self._page(not reasons, reasons)

    def _failure(self) -> str | None:
        store = self._store()
        return None if store is None else store.failure

    def _store(self) -> MessageStore | None:
        if self.broker is not None:
            return self.broker.maintenance.store
        return None if self.replicated is None else self.replicated.store

    def _page(self, is_good: bool, reasons: list[str]) -> Page:
        report = {"ok": is_good, "state": self.state, "reasons": reasons, "log": self._log()}
        return Page(200 if is_good else 503, "application/json", json.dumps(report) + "\n")

    def _log(self) -> dict[str, int | bool] | None:
        """The log's offsets in bytes; None while it is not open."""
        store = self._store()
        if store is None:
            return None
        return {
            "start": store.log_start,
            "written": store.written_log_offset,
            "flushed": store.flushed_log_offset,
            "visible": store.visible_log_offset,
            "clean_stop_before": store.was_clean_stop,
            "disk_full": store.is_disk_full,
        }
