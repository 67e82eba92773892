"""What clients take from the environment, so that workers and scripts need no secret in their arguments."""

from __future__ import annotations

import os

from millstream.security.signature import Credentials

__all__ = ["ACCESS_KEY_VARIABLE", "SECRET_KEY_VARIABLE", "credentials_of_environment"]

ACCESS_KEY_VARIABLE = "MILLSTREAM_ACCESS_KEY"
SECRET_KEY_VARIABLE = "MILLSTREAM_SECRET_KEY"


def credentials_of_environment() -> Credentials | None:
    """The credentials of the two variables; None unless both are set."""
    access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE), os.environ.get(SECRET_KEY_VARIABLE)
    return Credentials(access_key, secret_key) if access_key and secret_key else None
