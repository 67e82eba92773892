"""Signs remoting requests, without an event loop: workers of jobs, which sign as well, do without asyncio."""

from __future__ import annotations

from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials, signed_fields

__all__ = ["sign_command"]


def sign_command(command: RemotingCommand, credentials: Credentials) -> None:
    """Give the request its two fields that say who signed it; one that was signed before is signed again."""
    parts = (command.body, *command.body_parts)
    command.ext = signed_fields(credentials, command.ext, parts, version=command.version)
