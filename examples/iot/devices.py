"""Simulated machines: what they are, where they stand, and what they measure."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks import FIELDS, KINDS

__all__ = ["Device", "make_devices", "make_readings", "payload_of"]

_SITES = ("north", "south", "east", "west")
_USUAL = (20.0, 80.0)
_UNUSUAL = (84.0, 96.0)
_FAULTS = 30
_SEED = 11


@dataclass(frozen=True, slots=True)
class Device:
    """A machine. Alerts of one that is not watched are not wanted."""

    name: str
    kind: str
    site: str
    max_temperature: float
    is_watched: bool

    @property
    def topic(self) -> str:
        """The MQTT topic of its readings."""
        return f"factory/{self.site}/{self.name}"

    @property
    def csv_line(self) -> str:
        """Its row of the dimension table."""
        return f"{self.name},hall {self.name[-1]},{self.max_temperature},{str(self.is_watched).lower()}\n"


def make_devices(count: int) -> list[Device]:
    """So many machines; one in ten is not watched."""
    return [
        Device(
            f"m{number:05}",
            KINDS[number % len(KINDS)],
            _SITES[number // len(KINDS) % len(_SITES)],
            86.0 + number % 5,
            number % 10 != 7 or number // 10 % 2 == 0,
        )
        for number in range(count)
    ]


def make_readings(devices: list[Device], unusual_share: float) -> Iterator[tuple[Device, dict[str, Any]]]:
    """Readings without end, device after device; the first one is unusual, and that share of the others."""
    chance = random.Random(_SEED)
    number = 0
    while True:
        for device in devices:
            reading: dict[str, Any] = {"kind": device.kind}
            reading.update({field: round(chance.uniform(*_USUAL), 1) for field in FIELDS})
            reading["note"] = f"cycle {number}"
            if not number or chance.random() < unusual_share:
                field = chance.choice(FIELDS) if number else FIELDS[0]
                reading[field] = round(chance.uniform(*_UNUSUAL), 1) if number else _UNUSUAL[1]
                if chance.random() < 0.5:
                    reading["note"] = f"fault E{chance.randint(1, _FAULTS):03} in cycle {number}"
            yield device, reading
            number += 1


def payload_of(reading: dict[str, Any], sent_ms: int) -> bytes:
    """A reading as it is published, with the time at which it was sent."""
    return json.dumps({**reading, "sent_ms": sent_ms}).encode()
