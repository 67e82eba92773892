"""Access control of a data directory, and the initial super user."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import StartRefused
from millstream.security.guard import AuditLog, Guard
from millstream.security.signature import Credentials
from millstream.security.users import AccessBook, User, UserKind, new_secret
from millstream.store.files import FileLayer

__all__ = ["CREDENTIALS_FILE", "open_guard"]

CREDENTIALS_FILE: Final = "credentials"
"""In the data directory: the keys of the first super user, as a shell reads them; for its owner's eyes only."""

_FIRST_USER = "admin"


def open_guard(
    book: AccessBook, directory: Path, clock: Clock, first_user: Credentials | None = None
) -> tuple[Guard, Credentials | None]:
    """The guard over the users of a data directory, and the credentials of the super user if one had to be made.

    That one is `first_user`, or else `admin` with a random secret, which is also written to `CREDENTIALS_FILE`.
    """
    guard = Guard(book, AuditLog(clock), clock=clock)
    if book.has_super_user:
        return guard, None
    made = first_user or Credentials(_FIRST_USER, new_secret())
    if first_user is None:
        # Before the user is there: a crash in between must not leave a super user whose secret nobody knows.
        _write(directory / CREDENTIALS_FILE, made)
    book.create_user(User(made.access_key, made.secret_key, UserKind.SUPER))
    return guard, made


def _write(path: Path, credentials: Credentials) -> None:
    text = (
        "# The first super user of this data directory. For a shell: set -a; . FILE; set +a\n"
        f"MILLSTREAM_ACCESS_KEY={credentials.access_key}\n"
        f"MILLSTREAM_SECRET_KEY={credentials.secret_key}\n"
    )
    try:
        FileLayer().replace(path, text.encode())
    except OSError as error:
        raise StartRefused("DATA_DIRECTORY_NOT_WRITABLE", f"{path} cannot be written: {error}.") from None
