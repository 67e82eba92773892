"""Registers a replica with the nameservers while it follows a master."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from millstream.broker.registrar import Registrar
from millstream.protocol.remoting.administration.registration import BrokerIdentity
from millstream.security.signature import Credentials

__all__ = ["ReplicaRegistration"]


class ReplicaRegistration:
    """One registration at a time. Following a master waits for no nameserver."""

    def __init__(self, nameservers: Sequence[str], credentials: Credentials | None, tls: ssl.SSLContext | None) -> None:
        self._nameservers = nameservers
        self._credentials = credentials
        self._tls = tls
        self._task: asyncio.Task[None] | None = None
        self._registrar: Registrar | None = None

    def begin(self, who: BrokerIdentity) -> None:
        """Register as a replica, in place of what was registered before and without a gap."""
        if self._registrar is not None:
            self._registrar.change_identity(who)
            return
        self._registrar = Registrar(self._nameservers, who, tuple, credentials=self._credentials, tls=self._tls)
        self._task = asyncio.get_running_loop().create_task(self._registrar.start(), name="register-replica")

    async def end(self, *, says_farewell: bool = False) -> None:
        """Register no more. With a farewell the routes lack it at once, else when its connections are seen to close."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        registrar, self._registrar = self._registrar, None
        if registrar is not None:
            await registrar.close(says_farewell=says_farewell)
