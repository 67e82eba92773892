"""Which process of this machine listens at an address, read from Linux's /proc."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["owner_of"]

_PROC: Final = Path("/proc")
_LISTENING: Final = "0A"


def owner_of(host: str, port: int) -> int | None:
    """The id of the process; None where the address is another machine's, nobody listens or nobody may look."""
    if not _is_local(host):
        return None
    inodes = set(_listening_inodes(port))
    for entry in _PROC.iterdir() if inodes else ():
        if entry.name.isdecimal() and any(inode in inodes for inode in _sockets_of(entry)):
            return int(entry.name)
    return None


def _is_local(host: str) -> bool:
    """Whether an address of this machine: only those can be bound."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _listening_inodes(port: int) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{words[9]}]"


def _sockets_of(process: Path) -> Iterator[str]:
    try:
        names = os.listdir(process / "fd")
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(process / "fd" / name)
        except OSError:
            continue
