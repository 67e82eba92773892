"""Users: a name (RocketMQ's access key), a secret that signs, and whether policies hold for them."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from millstream.model.errors import AccessRefused

__all__ = ["MAX_NAME_CHARACTERS", "MAX_SECRET_CHARACTERS", "User", "UserKind", "check_user", "new_secret"]

MAX_NAME_CHARACTERS: Final = 64
"""Characters of a user's name at most."""

MIN_SECRET_CHARACTERS: Final = 8
"""Characters of a secret at least: RocketMQ's own examples use eight."""

MAX_SECRET_CHARACTERS: Final = 256
"""Characters of a secret at most."""

_NEW_SECRET_BYTES = 24
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_.@-]+")
_LEGAL_SECRET = re.compile(r"[!-~]+")


class UserKind(Enum):
    """Whether policies hold: a super user may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


@dataclass(frozen=True, slots=True)
class User:
    """One user. The secret is kept as it is, because an HMAC can only be checked with it; it is never shown."""

    name: str
    secret: str = field(repr=False)
    kind: UserKind = UserKind.NORMAL
    enabled: bool = True

    @property
    def is_super(self) -> bool:
        """Whether everything is allowed without a look at the policies."""
        return self.kind is UserKind.SUPER


def check_user(user: User) -> None:
    """Refuse a name or a secret that no client could send: ILLEGAL_USER."""
    if len(user.name) > MAX_NAME_CHARACTERS or not _LEGAL_NAME.fullmatch(user.name):
        raise AccessRefused("ILLEGAL_USER", f"{user.name[:200]!r} is not a legal name of a user.")
    length = len(user.secret)
    if not MIN_SECRET_CHARACTERS <= length <= MAX_SECRET_CHARACTERS or not _LEGAL_SECRET.fullmatch(user.secret):
        raise AccessRefused("ILLEGAL_USER", f"The secret of {user.name!r}, of {length} characters, is not legal.")


def new_secret() -> str:
    """A random secret of 32 characters."""
    return secrets.token_urlsafe(_NEW_SECRET_BYTES)
