"""Signing the client's requests."""

from __future__ import annotations

from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials, signed_fields

__all__ = ["sign"]


def sign(command: RemotingCommand, credentials: Credentials) -> None:
    """Give the request its two fields that say who signed it; one that was signed before is signed anew."""
    parts = (command.body, *command.body_parts)
    command.ext = signed_fields(credentials, command.ext, parts, version=command.version)
