"""Opens a port, and explains why one cannot be opened: which address, and which process holds it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Final

from millstream.model.errors import StartRefused

__all__ = ["BACKLOG", "listen_refused", "open_listening", "port_holder"]

BACKLOG: Final = 1024
"""Connections that wait in the system to be accepted at most, for each address."""

_LISTEN = "0A"
_MAX_PROCESSES = 20_000
"""Processes that are searched for the holder of a port at most."""

_NOT_LOCAL = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL})


async def open_listening(host: str, port: int, *, shares_port: bool = False) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host, blank for those of the machine; 0 takes a free port.

    With `shares_port` other processes of the same user may listen on it as well, if all of them say so (SO_REUSEPORT).
    Linux gives each of them a part of the connections, by a hash of their addresses. OSError where one cannot be bound;
    none stays open then.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            opened.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # All addresses of a host share the port that the first of them was given.
            bound = int(opened[0].getsockname()[1]) if len(opened) > 1 else 0
            listening.bind((address[0], port or bound, *address[2:]))
            listening.listen(BACKLOG)
            listening.setblocking(False)
    except OSError:
        for listening in opened:
            listening.close()
        raise
    return opened


def listen_refused(host: str, port: int, error: OSError) -> StartRefused:
    """The refusal for an error of bind or listen: PORT_IN_USE (with the holder, if seen) or ADDRESS_NOT_LOCAL."""
    if error.errno == errno.EADDRINUSE:
        holder = port_holder(port)
        by = f" by process {holder}" if holder is not None else ""
        return StartRefused("PORT_IN_USE", f"Port {port} of {host or 'all addresses'} is in use{by}.")
    if isinstance(error, socket.gaierror) or error.errno in _NOT_LOCAL:
        return StartRefused("ADDRESS_NOT_LOCAL", f"{host!r} is no address of this machine.")
    return StartRefused(
        "BAD_CONFIGURATION",
        f"Cannot listen on {host}:{port}: {error.strerror or error}.",
        remedy="Choose another port, or run with the permission to use this one.",
    )


def port_holder(port: int) -> int | None:
    """The process that listens on a TCP port, where /proc shows it; None elsewhere and for processes of others."""
    try:
        sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
        return _process_with(sockets) if sockets else None
    except OSError:
        return None


def _listening_inodes(port: int) -> list[str]:
    """Socket inodes from /proc/net: fields are slot, local address, remote address, state, ..., inode (the tenth)."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        path = Path(table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.append(fields[9])
    return found


def _process_with(sockets: set[str]) -> int | None:
    for process in [name for name in os.listdir("/proc") if name.isdigit()][:_MAX_PROCESSES]:
        descriptors = f"/proc/{process}/fd"
        try:
            if any(os.readlink(f"{descriptors}/{number}") in sockets for number in os.listdir(descriptors)):
                return int(process)
        except OSError:
            continue  # The process ended, or belongs to another user.
    return None
