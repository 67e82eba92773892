"""A guard with a few users, and requests signed by them."""

from __future__ import annotations

import hmac
from pathlib import Path

from millstream.broker.access_file import open_access_book
from millstream.model.clock import Clock, SystemClock
from millstream.security.guard import AuditLog, Guard
from millstream.security.policy import PolicyEntry
from millstream.security.signature import Credentials
from millstream.security.users import User, UserKind

ROOT = Credentials("root", "secret-of-root")
ANN = Credentials("ann", "secret-of-ann")
"""May send to `orders` and consume it as `billing`, and look at the cluster."""
BOB = Credentials("bob", "secret-of-bob")
"""May do nothing."""


def sample_guard(directory: Path, clock: Clock | None = None) -> Guard:
    """A guard whose book is kept in `directory`."""
    clock = clock or SystemClock()
    book = open_access_book(directory)
    book.create_user(User(ROOT.access_key, ROOT.secret_key, UserKind.SUPER))
    for credentials in (ANN, BOB):
        book.create_user(User(credentials.access_key, credentials.secret_key))
    book.put_entries(
        "ann",
        [
            PolicyEntry.read("Topic:orders", ["Pub", "Sub"], [], "Allow"),
            PolicyEntry.read("Group:billing", ["Sub"], [], "Allow"),
            PolicyEntry.read("Cluster:*", ["Get"], [], "Allow"),
        ],
    )
    return Guard(book, AuditLog(clock), clock=clock)


def signed_headers(credentials: Credentials, date: str = "20260730T120000Z") -> dict[str, str]:
    """The headers by which official clients sign their calls."""
    digest = hmac.new(credentials.secret_key.encode(), date.encode(), "sha1").hexdigest()
    said = f"MQv2-HMAC-SHA1 Credential={credentials.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": date, "authorization": said}
