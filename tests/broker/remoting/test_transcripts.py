"""Recorded answers to raw requests, played again: what clients were told they are told again.

`python -m interop.reference record` records; `make interop` holds the same requests against a reference broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from interop.reference.differences import differences
from interop.reference.transcript import Servers as Addresses
from interop.reference.transcript import play, read_transcript

from servers import Servers

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.json"))


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
async def test_recorded_requests_are_answered_as_before(transcript: Path, servers: Servers) -> None:
    recorded = read_transcript(transcript)
    played = await play([one.step for one in recorded], Addresses(servers.broker_address, servers.nameserver))
    found = differences(transcript.stem, recorded, played)
    assert not found, "\n".join(f"{item.place}: recorded {item.reference!r}, now {item.ours!r}" for item in found)
