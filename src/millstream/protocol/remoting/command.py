"""One request or response of the remoting protocol, and both encodings of its header.

JSON (type 0): `{"code":int,"language":str,"version":int,"opaque":int,"flag":int,"remark":str,"extFields":{str:str},
"serializeTypeCurrentRPC":"JSON"}`; unknown keys are passed over, numbers and booleans in extFields become text.

Binary (type 1), big-endian: `int16 code | int8 language | int16 version | int32 opaque | int32 flag | int32 length +
remark | int32 length + ext`, ext being repeated `int16 length + key | int32 length + value`. A text of no bytes reads
as absent. Source: RocketMQ 5.3's `RemotingCommand` and `RocketMQSerializable` (facts only).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final

import msgspec

from millstream.model.errors import ConnectionFailed, MessageRefused, Refused

__all__ = [
    "FLAG_ONEWAY",
    "FLAG_RESPONSE",
    "LANGUAGES",
    "NO_CODE",
    "PROTOCOL_VERSION",
    "HeaderType",
    "RemotingCommand",
    "decode_header",
    "decode_json",
    "decode_too_long",
    "encode_header",
    "protocol_violation",
]

PROTOCOL_VERSION: Final = 473
"""The ordinal of RocketMQ 5.3.0, told to the peer; from 413 on it takes us for a 5.x one."""

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

NO_CODE: Final = -1
"""The code of a request that is to be refused unread, so that no handler takes it for its own."""

LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
"""Language names in the order of their binary codes."""

_LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
_OTHER = "OTHER"
_BINARY_HEAD = struct.Struct(">hBhiii")
_INT32 = struct.Struct(">i")
_INT16_MAX = 0x7FFF


class HeaderType(IntEnum):
    """How a header is encoded; an answer uses the type of its request."""

    JSON = 0
    BINARY = 1


class RemotingCommand(msgspec.Struct):
    """A request or a response. `ext` holds the typed header's fields as text.

    `body_parts` are sent after `body` and save joining records; a command that was received has none. A struct,
    because every frame makes one, and a dataclass's constructor costs more than twice as much.
    """

    code: int
    ext: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str = "PYTHON"
    version: int = PROTOCOL_VERSION
    header_type: HeaderType = HeaderType.JSON
    body_parts: tuple[bytes | memoryview, ...] = ()
    refusal: Refused | None = None
    """Why a request that was received is refused, whatever it asks for."""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & FLAG_ONEWAY)

    def response(
        self,
        code: int = 0,
        *,
        ext: dict[str, str] | None = None,
        remark: str | None = None,
        body: bytes = b"",
        body_parts: tuple[bytes | memoryview, ...] = (),
    ) -> RemotingCommand:
        """The answer to this request: its opaque and header type, and `extFields` even where empty."""
        return RemotingCommand(
            code, {} if ext is None else ext, body, self.opaque, FLAG_RESPONSE, remark, "PYTHON", PROTOCOL_VERSION,
            self.header_type, body_parts,
        )  # fmt: skip


def protocol_violation(what: str) -> ConnectionFailed:
    """The error for bytes that are not of the protocol."""
    return ConnectionFailed("PROTOCOL_VIOLATION", what)


class _JsonHeader(msgspec.Struct):
    code: int
    language: str = _OTHER
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the name on the wire


class _LooseHeader(msgspec.Struct):
    """What old clients may send: numbers and booleans among the ext fields, any language."""

    code: int
    language: Any = _OTHER
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    extFields: dict[str, Any] | None = None  # noqa: N815 - the name on the wire


class _JsonNumbers(msgspec.Struct):
    """What an answer needs; the rest is passed over without being built."""

    opaque: int = 0
    flag: int = 0


class _JsonAnswer(msgspec.Struct, omit_defaults=True):
    code: int
    language: str
    version: int
    opaque: int
    flag: int
    extFields: dict[str, str]  # noqa: N815 - the name on the wire
    serializeTypeCurrentRPC: str  # noqa: N815 - the name on the wire
    remark: str | None = None


_strict_decoder = msgspec.json.Decoder(_JsonHeader)
_numbers_decoder = msgspec.json.Decoder(_JsonNumbers)
_loose_decoder = msgspec.json.Decoder(_LooseHeader)
_encoder = msgspec.json.Encoder()


def encode_header(command: RemotingCommand) -> bytes:
    """The header's bytes in the command's own type; ValueError where a number does not fit the binary layout."""
    if command.header_type is HeaderType.BINARY:
        return _encode_binary(command)
    return _encoder.encode(
        _JsonAnswer(
            command.code, command.language, command.version, command.opaque, command.flag, command.ext, "JSON",
            command.remark,
        )
    )  # fmt: skip


def decode_header(header_type: int, header: bytes | memoryview) -> RemotingCommand:
    """The command of a header, still without its body; PROTOCOL_VIOLATION where it cannot be read."""
    if header_type == HeaderType.JSON:
        return decode_json(header)
    if header_type == HeaderType.BINARY:
        return _decode_binary(bytes(header))
    raise protocol_violation(f"A frame has header type {header_type}; known are 0 (JSON) and 1 (binary).")


def decode_too_long(header_type: int, header: bytes, limit_bytes: int) -> RemotingCommand:
    """A request that is refused (HEADER_TOO_LARGE) because its header is too long to be taken apart.

    PROTOCOL_VIOLATION where it cannot be read, and for an answer: nobody is there to be told.
    """
    try:
        if header_type == HeaderType.JSON:
            numbers = _numbers_decoder.decode(header)
            opaque, flag = numbers.opaque, numbers.flag
        else:
            _, _, _, opaque, flag, _ = _BINARY_HEAD.unpack_from(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, struct.error) as error:
        raise protocol_violation(f"A frame's header of {len(header)} bytes cannot be read: {error}.") from None
    what = f"The header of the request has {len(header)} bytes; the limit is {limit_bytes}."
    if header_type > HeaderType.BINARY or flag & FLAG_RESPONSE:
        raise protocol_violation(what)
    refusal = MessageRefused("HEADER_TOO_LARGE", what)
    return RemotingCommand(NO_CODE, opaque=opaque, flag=flag, header_type=HeaderType(header_type), refusal=refusal)


def decode_json(header: bytes | memoryview, body: bytes = b"") -> RemotingCommand:
    """The command of a JSON header; PROTOCOL_VIOLATION where it cannot be read."""
    try:
        read = _strict_decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_loose_json(header, body)
    return RemotingCommand(
        read.code, read.extFields or {}, body, read.opaque, read.flag, read.remark, read.language, read.version
    )


def _decode_loose_json(header: bytes | memoryview, body: bytes) -> RemotingCommand:
    try:
        read = _loose_decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise protocol_violation(f"A frame's JSON header cannot be read: {error}.") from None
    ext = {key: _as_text(value) for key, value in (read.extFields or {}).items() if value is not None}
    language = read.language if isinstance(read.language, str) else _OTHER
    return RemotingCommand(read.code, ext, body, read.opaque, read.flag, read.remark, language, read.version)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else _encoder.encode(value).decode()


def _encode_binary(command: RemotingCommand) -> bytes:
    if not -_INT16_MAX - 1 <= command.code <= _INT16_MAX:
        raise ValueError(f"code {command.code} does not fit a binary header")
    remark = (command.remark or "").encode()
    parts: list[bytes] = []
    for key, value in command.ext.items():
        key_bytes, value_bytes = key.encode(), value.encode()
        parts += (len(key_bytes).to_bytes(2, "big"), key_bytes, len(value_bytes).to_bytes(4, "big"), value_bytes)
    ext = b"".join(parts)
    language = _LANGUAGE_CODES.get(command.language, _LANGUAGE_CODES[_OTHER])
    head = _BINARY_HEAD.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    return b"".join((head, remark, len(ext).to_bytes(4, "big"), ext))


def _decode_binary(header: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_bytes = _BINARY_HEAD.unpack_from(header)
        ext_start = _BINARY_HEAD.size + remark_bytes
        (ext_bytes,) = _INT32.unpack_from(header, ext_start)
        if remark_bytes < 0 or ext_bytes < 0 or ext_start + 4 + ext_bytes != len(header):
            raise ValueError(f"remark of {remark_bytes} bytes, ext of {ext_bytes} bytes")
        remark = header[_BINARY_HEAD.size : ext_start].decode()
        ext = _decode_binary_ext(header, ext_start + 4)
    except (struct.error, ValueError) as error:
        raise protocol_violation(f"A frame's binary header of {len(header)} bytes cannot be read: {error}.") from None
    name = LANGUAGES[language] if language < len(LANGUAGES) else _OTHER
    return RemotingCommand(code, ext, b"", opaque, flag, remark or None, name, version, HeaderType.BINARY)


def _decode_binary_ext(header: bytes, position: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    end = len(header)
    while position < end:
        if position + 2 > end:
            raise ValueError("a key's length leads outside")
        key_bytes = header[position] << 8 | header[position + 1]
        key_end = position + 2 + key_bytes
        value_start = key_end + 4
        if key_bytes > _INT16_MAX or value_start > end:
            raise ValueError(f"a key of {key_bytes} bytes leads outside")
        # Byte by byte into a number that is wide enough: the compiled form shifts a byte in 32 bits with a sign.
        value_bytes = header[key_end]
        value_bytes = value_bytes << 8 | header[key_end + 1]
        value_bytes = value_bytes << 8 | header[key_end + 2]
        value_bytes = value_bytes << 8 | header[key_end + 3]
        value_end = value_start + value_bytes
        if value_end > end:
            raise ValueError(f"a value of {value_bytes} bytes leads outside")
        if key_bytes and value_bytes:
            ext[header[position + 2 : key_end].decode()] = header[value_start:value_end].decode()
        position = value_end
    return ext
