"""The Huffman code of header compression (RFC 7541, section 5.2 and appendix B)."""

from __future__ import annotations

from typing import Final

__all__ = ["decode_huffman", "encode_huffman"]

_LENGTHS: Final = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
)  # fmt: skip
"""Bits of each byte's code, and last of the end of a text. The code is canonical: by length, then by byte."""

_END: Final = 256
_MAX_PADDING_BITS: Final = 7


def _codes() -> list[int]:
    codes = [0] * len(_LENGTHS)
    code = before = 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda one: (_LENGTHS[one], one)):
        code <<= _LENGTHS[symbol] - before
        before = _LENGTHS[symbol]
        codes[symbol] = code
        code += 1
    return codes


_CODES: Final = _codes()


def encode_huffman(text: bytes) -> bytes:
    """The code of a text, filled up with ones."""
    code = bits = 0
    for byte in text:
        length = _LENGTHS[byte]
        code = code << length | _CODES[byte]
        bits += length
    padding = -bits % 8
    return (code << padding | (1 << padding) - 1).to_bytes((bits + padding) // 8)


def decode_huffman(data: bytes) -> bytes:
    """The text of a code. ValueError for what is none."""
    found = bytearray()
    rows = _ROWS
    state = 0
    for byte in data:
        row = rows.get(state)
        if row is None:
            row = _row(state)
        state, text = row[byte]
        if text:
            found += text
        elif state < 0:
            raise ValueError("a Huffman code has no such symbol")
    depth, is_ones = _PLACES[state]
    if depth > _MAX_PADDING_BITS or not is_ones:
        raise ValueError("the padding of a Huffman code is not a few ones")
    return bytes(found)


# A state is a node of the tree of codes. Its children, or -1 - symbol for a leaf; how deep it lies and whether all steps
# to it were ones.
_CHILDREN: Final[list[list[int | None]]] = [[None, None]]
_PLACES: Final[list[tuple[int, bool]]] = [(0, True)]
_ROWS: Final[dict[int, list[tuple[int, bytes]]]] = {}


def _grow_tree() -> None:
    for symbol, (code, length) in enumerate(zip(_CODES, _LENGTHS, strict=True)):
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            child = _CHILDREN[node][bit]
            if child is None:
                child = len(_CHILDREN)
                _CHILDREN[node][bit] = child
                _CHILDREN.append([None, None])
                depth, is_ones = _PLACES[node]
                _PLACES.append((depth + 1, is_ones and bit == 1))
            node = child
        _CHILDREN[node][code & 1] = -1 - symbol


def _row(state: int) -> list[tuple[int, bytes]]:
    """What each byte does in a state: the next state and the text that ends within the byte. Made when first needed."""
    if len(_CHILDREN) == 1:
        _grow_tree()
    row = [_step(state, byte) for byte in range(256)]
    _ROWS[state] = row
    return row


_BROKEN: Final = -1


def _step(state: int, byte: int) -> tuple[int, bytes]:
    text = bytearray()
    node = state
    for shift in range(7, -1, -1):
        child = _CHILDREN[node][byte >> shift & 1]
        if child is None or child == -1 - _END:
            return _BROKEN, b""
        if child < 0:
            text.append(-1 - child)
            node = 0
        else:
            node = child
    return node, bytes(text)
