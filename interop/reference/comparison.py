"""One script against the reference and against a broker of ours of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from interop.reference.differences import Difference, differences, reason_of
from interop.reference.scripts import SCRIPTS
from interop.reference.servers import ReferenceServers
from interop.reference.transcript import Played, Servers, play
from millstream.server.child import ServerProcess

__all__ = ["compare", "play_ours"]


def play_ours(script: str, directory: Path) -> list[Played]:
    """The answers of a new server of ours over `directory`."""
    with ServerProcess(directory) as server:
        servers = Servers(server.addresses.broker, server.addresses.nameserver)
        return asyncio.run(play(SCRIPTS[script], servers))


def compare(script: str, reference: ReferenceServers, directory: Path) -> list[Difference]:
    """What differs without being meant; a script can be played once against one reference."""
    theirs = asyncio.run(play(SCRIPTS[script], Servers(reference.broker, reference.nameserver)))
    found = differences(script, theirs, play_ours(script, directory))
    return [difference for difference in found if reason_of(difference) is None]
