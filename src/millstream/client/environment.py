"""What clients take from the environment, so that workers and scripts need no secret in their arguments.

Every command of the command line imports this, so what it needs is imported where it is used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from millstream.security.signature import Credentials

__all__ = [
    "ACCESS_KEY_VARIABLE",
    "SECRET_KEY_VARIABLE",
    "TLS_CA_VARIABLE",
    "credentials_of_environment",
    "tls_of_environment",
]

ACCESS_KEY_VARIABLE = "MILLSTREAM_ACCESS_KEY"
SECRET_KEY_VARIABLE = "MILLSTREAM_SECRET_KEY"
TLS_CA_VARIABLE = "MILLSTREAM_TLS_CA"


def credentials_of_environment() -> Credentials | None:
    """The credentials of the two variables; None unless both are set."""
    access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE), os.environ.get(SECRET_KEY_VARIABLE)
    if not access_key or not secret_key:
        return None
    from millstream.security.signature import Credentials

    return Credentials(access_key, secret_key)


def tls_of_environment() -> ssl.SSLContext | None:
    """What verifies servers by the file of the variable, or the machine's own trust (`system`); None if it is unset."""
    trusted = os.environ.get(TLS_CA_VARIABLE)
    if not trusted:
        return None
    from millstream.security.tls import client_context

    return client_context(trusted)
