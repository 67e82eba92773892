"""A broker's metrics after some work: what its page says while a producer and a consumer are there."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Sequence

from interop.reference.scripts import SCRIPTS
from interop.reference.transcript import Servers, play
from millstream.model.message import Address
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["page_after"]

_TIMEOUT_S = 20.0
_HEARTBEAT = {
    "clientID": "watched",
    "producerDataSet": [{"groupName": "watched-producers"}],
    "consumerDataSet": [
        {
            "groupName": "readers",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [],
            "unitMode": False,
        }
    ],
}


async def page_after(scripts: Sequence[str], servers: Servers, page_url: str) -> str:
    """The page at `page_url` after these scripts were played against the servers."""
    for script in scripts:
        await play(SCRIPTS[script], servers)
    host, _, port = servers.broker.rpartition(":")
    connection = await RemotingConnection.open(Address(host, int(port)))
    try:
        beat = RemotingCommand(RequestCode.HEART_BEAT, {}, json.dumps(_HEARTBEAT).encode(), language="JAVA")
        await connection.request(beat, _TIMEOUT_S)
        return await asyncio.to_thread(_read, page_url)
    finally:
        await connection.close()


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        text: str = answer.read().decode()
    return text
