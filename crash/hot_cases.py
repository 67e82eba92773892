"""Inputs for the hot modules, by chance, and what comes of them: `python -m crash.hot_cases` answers for one form.

It runs from two directories, one with the compiled package, and says for each line `KIND SEED BLOCK` of its input the
digest of the outcomes of that block's inputs, or with a fourth word the outcome of each.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from millstream.hot_modules import look_at_hot_path
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_send import read_plain_send

__all__ = ["BLOCK_CASES", "KINDS"]

BLOCK_CASES: Final = 1000
"""Inputs of a block, whose outcomes are compared together."""

_TELLING: Final = (0x00, 0x01, 0x0A, 0x12, 0x1A, 0x22, 0x7E, 0x7F, 0x80, 0x81, 0xC3, 0xFE, 0xFF)
"""Bytes at which a length, a tag or a text turns into another."""

_MAX_CHANGES: Final = 4
_MAX_MOVED_BYTES: Final = 12

Run = Callable[[bytes, random.Random], object]


def change(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The data with up to four changes: bytes set, cut, doubled, inserted, or the end of another input."""
    changed = bytearray(data)
    for _ in range(int(chance.random() * (_MAX_CHANGES + 1))):
        size = len(changed)
        at = int(chance.random() * (size + 1))
        way = int(chance.random() * 8)
        if way < 3 and at < size:
            changed[at] = _TELLING[int(chance.random() * len(_TELLING))]
        elif way == 3 and at < size:
            changed[at] = (changed[at] + (1 if chance.random() < 0.5 else -1)) & 0xFF
        elif way == 4:
            del changed[at:]
        elif way == 5:
            del changed[at : at + 1 + int(chance.random() * _MAX_MOVED_BYTES)]
        elif way == 6:
            changed[at:at] = changed[max(0, at - 1 - int(chance.random() * _MAX_MOVED_BYTES)) : at]
        else:
            other = others[int(chance.random() * len(others))]
            changed[at:] = other[int(chance.random() * (len(other) + 1)) :]
    return bytes(changed)


def _text(chance: random.Random, most: int = 40) -> str:
    return "".join(chance.choices("abcXYZ019-_ ä€\U0001f600", k=int(chance.random() * most)))


def _sends(chance: random.Random) -> list[bytes]:
    """Requests as clients send them, with and without what an ordinary one has."""
    made = []
    for _ in range(24):
        system = m.SystemProperties(
            message_id=_text(chance) or "id",
            body_encoding=chance.choice((m.IDENTITY, m.GZIP, 0)),
            message_type=chance.choice((m.NORMAL, m.NORMAL, m.FIFO)),
            keys=[_text(chance) for _ in range(chance.randrange(3))],
        )
        if chance.random() < 0.5:
            system.tag = _text(chance)
        if chance.random() < 0.5:
            system.born_host = _text(chance, 150)
        if chance.random() < 0.7:
            system.born_timestamp.seconds = chance.randrange(1 << chance.randrange(1, 44))
            system.born_timestamp.nanos = chance.randrange(1_000_000_000)
        if chance.random() < 0.3:
            system.body_digest.type, system.body_digest.checksum = m.MD5, "ABC" * chance.randrange(60)
        message = m.Message(
            topic=m.Resource(name=_text(chance) or "orders"),
            body=chance.randbytes(chance.randrange(1, 300)),
            system_properties=system,
            user_properties={_text(chance): _text(chance, 200) for _ in range(chance.randrange(3))},
        )
        made.append(m.SendMessageRequest(messages=[message]).SerializeToString(deterministic=True))
    return made


def _run_send(data: bytes, _: random.Random) -> object:
    return read_plain_send(data)


KINDS: Final[dict[str, tuple[Callable[[random.Random], list[bytes]], Run]]] = {
    "send": (_sends, _run_send),
}
"""What is fed to the hot modules: the inputs that are changed, and what takes one."""


def _outcome(run: Run, data: bytes, chance: random.Random) -> str:
    try:
        return repr(run(data, chance))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
        return f"{type(error).__name__}: {error}"


def outcomes(kind: str, seed: int, block: int) -> list[tuple[bytes, str]]:
    """The inputs of a block and what came of them."""
    prepare, run = KINDS[kind]
    # The inputs that are changed are those of a hundred blocks.
    inputs = prepare(random.Random(f"{kind} {seed} {block // 100}"))
    chance = random.Random(f"{kind} {seed} {block}")
    found = []
    for _ in range(BLOCK_CASES):
        data = change(inputs[int(chance.random() * len(inputs))], inputs, chance)
        state = chance.getstate() if kind in _DRAWING else None
        found.append((data, _outcome(run, data, chance)))
        if state is not None:
            # What a run draws does not decide the next input.
            chance.setstate(state)
    return found


_DRAWING: Final[frozenset[str]] = frozenset()
"""Kinds whose runs draw numbers of their own."""


def main() -> int:
    """Answer line by line."""
    path = look_at_hot_path()
    _say({"compiled": path.compiled, "modules": path.modules})
    for line in sys.stdin:
        kind, seed, block, *wants_all = line.split()
        found = outcomes(kind, int(seed), int(block))
        if wants_all:
            _say([(data.hex(), outcome) for data, outcome in found])
            continue
        digest = blake2b(digest_size=16)
        for _, outcome in found:
            digest.update(outcome.encode("utf-8", "surrogatepass"))
        _say(digest.hexdigest())
    return 0


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
