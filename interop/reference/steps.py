"""One step of a script: a raw request, or a request of the server's own that a client waits for.

Texts may name what earlier steps brought, as `${NAME.FIELD}`; `${now}` is the time, `${now+5000}` a later one, and
`${x*100}` stands for a hundred times an x.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

__all__ = ["Step", "ask", "ask_nameserver", "filled_in", "told"]

BROKER, NAMESERVER = "broker", "nameserver"
_NAME = re.compile(r"\$\{([^}]+)\}")
_REPEATED = re.compile(r"(.)\*(\d+)")
_NOW = re.compile(r"now(?:([+-]\d+))?")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step and how to read its answer.

    `body` holds one character for each byte. `client` is whose connection is used. `shows` is what the answer's body
    is: `records`, `json` or `text`. With `until` the request is repeated until it is answered by that code (and, if
    `until_body`, by a body), because the servers do some things a little later. A step with `is_told` waits for a
    request of the server's own instead of sending one.
    """

    name: str
    code: int
    ext: dict[str, str] = {}
    body: str = ""
    to: str = BROKER
    client: str = "one"
    shows: str = ""
    oneway: bool = False
    until: int | None = None
    until_body: bool = False
    is_told: bool = False


_FIELDS = frozenset(name.upper() for name in Step.__struct_fields__)


def ask(name: str, code: int, body: str | bytes | Mapping[str, Any] = "", **fields: Any) -> Step:
    """A request to the broker. Capitalised fields of `Step` (`CLIENT=`) are the step's; the others are ext fields."""
    text = body.decode("latin-1") if isinstance(body, bytes) else body if isinstance(body, str) else json.dumps(body)
    of_step = {key.lower(): value for key, value in fields.items() if key in _FIELDS}
    ext = {key: str(value) for key, value in fields.items() if key not in _FIELDS}
    return Step(name, code, ext, text, **of_step)


def ask_nameserver(name: str, code: int, body: str = "", **fields: Any) -> Step:
    """The same, to the nameserver."""
    return ask(name, code, body, TO=NAMESERVER, **fields)


def told(name: str, code: int, *, client: str = "one", shows: str = "") -> Step:
    """Wait for a request of the broker's own."""
    return Step(name, code, client=client, shows=shows, is_told=True)


def filled_in(text: str, value_of: Callable[[str], str]) -> str:
    """The text with what it names."""

    def value(match: re.Match[str]) -> str:
        repeated = _REPEATED.fullmatch(match[1])
        if repeated:
            return repeated[1] * int(repeated[2])
        now = _NOW.fullmatch(match[1])
        return str(int(time.time() * 1000) + int(now[1] or 0)) if now else value_of(match[1])

    return _NAME.sub(value, text)
