"""What S7 runs on a small disk in a mount namespace: `python -m crash.small_disk MOUNT write|read-only`."""

from __future__ import annotations

import sys
from pathlib import Path

from crash.ledger import Sent, content_of
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError, StartRefused
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore, StoreOptions

__all__ = ["main"]

OPTIONS = StoreOptions(segment_bytes=1024 * 1024, consume_queue_entries=1000, sync_flush=True)
BALLAST_BYTES = 1024 * 1024
_KEY = ("orders", 0)


def _require(holds: object, what: str) -> None:
    if not holds:
        raise SystemExit(f"broken: {what}")


def _open(mount: Path) -> MessageStore:
    return MessageStore.open(mount / "store", OPTIONS, clock=ManualClock(step_ms=1), files=FileLayer())


def _send_until_full(store: MessageStore, sent: list[bytes]) -> str:
    """The name of the refusal that ends it."""
    for number in range(1_000_000):
        body = b"%d %d " % (len(sent), number) + b"x" * 2000
        try:
            store.put([Sent(*_KEY, body).pending()])
            store.flush()
        except MillstreamError as error:
            return error.name
        sent.append(body)
    return "never full"


def _write(mount: Path) -> None:
    ballast = mount / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    store, sent = _open(mount), list[bytes]()
    refusal = _send_until_full(store, sent)
    _require(refusal == "DISK_FULL", refusal)
    _require(sent, "nothing was taken")
    _require(content_of(store, {_KEY})[_KEY] == (0, sent), "reads do not go on beside a full disk")
    ballast.unlink()
    before = len(sent)
    refusal = _send_until_full(store, sent)
    _require(refusal == "DISK_FULL", refusal)
    _require(len(sent) > before, "nothing is taken after there is room again")
    try:
        store.close()
    except MillstreamError as error:
        _require(error.name == "DISK_FULL", error.name)
    # A start needs a little room of its own; the log is whole.
    try:
        again = _open(mount)
    except StartRefused as error:
        _require(error.name == "DISK_FULL", error.name)
        return
    _require(content_of(again, {_KEY})[_KEY] == (0, sent), "a restart on a full disk lost or altered something")
    again.close()


def _read_only(mount: Path) -> None:
    try:
        _open(mount).close()
    except StartRefused as error:
        _require(error.name == "DATA_DIRECTORY_NOT_WRITABLE", error.name)
    else:
        _require(False, "a start on a read-only disk was not refused")


def main() -> int:
    """0 if every promise holds; otherwise the broken one is written to the standard error."""
    mount, part = Path(sys.argv[1]), sys.argv[2]
    {"write": _write, "read-only": _read_only}[part](mount)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
