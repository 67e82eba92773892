"""Digests and base 64."""

from __future__ import annotations

from millstream.streams.functions.spec import FunctionSpec, Origin
from millstream.streams.plan.types import INT, STRING

__all__ = ["DIGESTS"]

DIGESTS: tuple[FunctionSpec, ...] = (
    FunctionSpec("MD5", "text TEXT_OR_BYTES", STRING, "The MD5 digest in hexadecimal digits.", "MD5('abc')", "'900150983cd24fb0d6963f7d28e17f72'"),
    FunctionSpec("SHA1", "text TEXT_OR_BYTES", STRING, "The SHA-1 digest in hexadecimal digits.", "SHA1('abc')", "'a9993e364706816aba3e25717850c26c9cd0d89d'"),
    FunctionSpec("SHA224", "text TEXT_OR_BYTES", STRING, "The SHA-224 digest in hexadecimal digits.", "LEFT(SHA224('abc'), 8)", "'23097d22'"),
    FunctionSpec("SHA256", "text TEXT_OR_BYTES", STRING, "The SHA-256 digest in hexadecimal digits.", "LEFT(SHA256('abc'), 8)", "'ba7816bf'"),
    FunctionSpec("SHA384", "text TEXT_OR_BYTES", STRING, "The SHA-384 digest in hexadecimal digits.", "LEFT(SHA384('abc'), 8)", "'cb00753f'"),
    FunctionSpec("SHA512", "text TEXT_OR_BYTES", STRING, "The SHA-512 digest in hexadecimal digits.", "LEFT(SHA512('abc'), 8)", "'ddaf35a1'"),
    FunctionSpec("SHA2", "text TEXT_OR_BYTES, bits INT", STRING, "The SHA-2 digest of 224, 256, 384 or 512 bits.", "LEFT(SHA2('abc', 256), 8)", "'ba7816bf'"),
    FunctionSpec("TO_BASE64", "text TEXT_OR_BYTES", STRING, "The text in base 64.", "TO_BASE64('hello world')", "'aGVsbG8gd29ybGQ='"),
    FunctionSpec("FROM_BASE64", "text STRING", STRING, "The text that base 64 holds.", "FROM_BASE64('aGVsbG8gd29ybGQ=')", "'hello world'"),
    FunctionSpec("HASH_CODE", "value PRINTABLE", INT, "Java's hash code of the text, without its sign.", "HASH_CODE('Hello world')", "832992604", Origin.BLINK),
)  # fmt: skip
"""Their rows of the registry."""
