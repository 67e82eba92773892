"""The Huffman code of header strings (RFC 7541, section 5.2 and Appendix B)."""

from __future__ import annotations

from typing import Final

__all__ = ["decode", "encode"]

# How many bits the code of each byte from 0 to 255 has, and last that of the end of a string: `a` is 1, `b` is 2. The
# codes follow from that, because they are canonical: in the order of length and then of byte each is its precursor + 1.
_LENGTHS: Final = (
    "mw|||||||x~||~||||||||~|||||||||fjjlmfhkjjhkhfffeeefffffffghofljmfgggggggggggggggggggg"
    "gghghmsmnfoefefefffeggfffefgfeefgggggoknm|tvttvvvwvwwwwwxwxxvwxwwwwuvwvwwxvutvvwwuwvvx"
    "uvwwuuvuwvwwtvvvwvvwzztsvwvyzzz{{zxysuz{{z{xuuzz|{{{txtuvuuwvvyyxxzwz{zz{{{{{|{{{{{z~"
)
_END: Final = 256
_START: Final = 1
_LONGEST_PADDING: Final = 0xFF


def _make_codes() -> tuple[list[str], dict[int, int]]:
    """The code of each byte as digits, and the bytes by their code, which has a 1 before it to keep leading zeros."""
    digits = [""] * _END
    symbols = {}
    code, length = 0, 0
    for symbol in sorted(range(_END + 1), key=_LENGTHS.__getitem__):
        bits = ord(_LENGTHS[symbol]) - 96
        code <<= bits - length
        length = bits
        if symbol != _END:
            digits[symbol] = format(code, f"0{bits}b")
        symbols[1 << bits | code] = symbol
        code += 1
    return digits, symbols


_DIGITS, _SYMBOLS = _make_codes()


class _State(dict[int, tuple["_State", bytes]]):
    """Where each next byte leads, and what it completes; a step is worked out when it is first taken.

    `prefix` holds the bits of a code that is not complete, behind a 1. There are 256 states of 256 steps at most.
    """

    __slots__ = ("ends", "prefix")

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        # What is left over at the end of a string is the start of its end, so all ones, and less than a byte.
        self.ends = prefix & (prefix + 1) == 0 and prefix <= _LONGEST_PADDING

    def __missing__(self, byte: int) -> tuple[_State, bytes]:
        prefix, text = self.prefix, b""
        for place in range(7, -1, -1):
            prefix = prefix << 1 | (byte >> place & 1)
            symbol = _SYMBOLS.get(prefix)
            if symbol is not None:
                if symbol == _END:
                    raise ValueError("the end of the string is coded within it")
                text += bytes((symbol,))
                prefix = _START
        state = _states.get(prefix)
        if state is None:
            state = _states[prefix] = _State(prefix)
        step = (state, text)
        self[byte] = step
        return step


_start: Final = _State(_START)
_states: Final = {_START: _start}


def decode(data: bytes) -> bytes:
    """The text of a coded string; it has 8 bytes for 5 of the string at most.

    ValueError if the code of the end stands in it, or if its last bits are no padding: less than 8 bits, all ones.
    """
    state = _start
    parts = []
    for byte in data:
        state, text = state[byte]
        parts.append(text)
    if not state.ends:
        raise ValueError("the string does not end with up to 7 ones as padding")
    return b"".join(parts)


def encode(text: bytes) -> bytes:
    """The coded string of a text."""
    if not text:
        return b""
    bits = "".join([_DIGITS[byte] for byte in text])
    bits += "1111111"[: -len(bits) & 7]
    return int(bits, 2).to_bytes(len(bits) >> 3, "big")
