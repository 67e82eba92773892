"""Text, regular expressions and digests. Positions start at 1; characters are code points."""

from __future__ import annotations

from millstream.streams.functions.spec import ArgumentTypes, FunctionSpec, Origin, array_of, map_of
from millstream.streams.plan.types import BOOLEAN, INT, STRING, DataType, TypeKind

__all__ = ["DIGESTS", "PATTERNS", "TEXTS"]


_BYTES = DataType(TypeKind.BYTES)


def _elements(given: ArgumentTypes) -> DataType:
    return given.types[1].as_nullable()


def _asked_of_both(given: ArgumentTypes) -> DataType:
    if given.types[0].kind is not given.types[1].kind:
        raise TypeError("two strings, or bytes twice")
    return BOOLEAN


TEXTS: tuple[FunctionSpec, ...] = (
    FunctionSpec("UPPER", "text STRING", STRING, "The text in upper case.", "UPPER('ab')", "'AB'"),
    FunctionSpec("LOWER", "text STRING", STRING, "The text in lower case.", "LOWER('AB')", "'ab'"),
    FunctionSpec("INITCAP", "text STRING", STRING, "Each word with a capital letter.", "INITCAP('ab cd')", "'Ab Cd'"),
    FunctionSpec("TRIM", "text STRING [, characters STRING [, side STRING]]", STRING, "The text without blanks, or other characters, at its ends.", "TRIM(BOTH 'x' FROM 'xxax')", "'a'", spelled="TRIM([BOTH | LEADING | TRAILING] [characters FROM] text)"),
    FunctionSpec("LTRIM", "text STRING [, characters STRING]", STRING, "The text without blanks, or other characters, at its start.", "LTRIM(' ab ')", "'ab '"),
    FunctionSpec("RTRIM", "text STRING [, characters STRING]", STRING, "The text without blanks, or other characters, at its end.", "RTRIM(' ab ')", "' ab'"),
    FunctionSpec("BTRIM", "text STRING [, characters STRING]", STRING, "The text without blanks, or other characters, at both ends.", "BTRIM('xxaxx', 'x')", "'a'"),
    FunctionSpec("CHAR_LENGTH", "text STRING", INT, "How many characters.", "CHAR_LENGTH('ab')", "2"),
    FunctionSpec("CHARACTER_LENGTH", "text STRING", INT, "How many characters.", "CHARACTER_LENGTH('ab')", "2"),
    FunctionSpec("LENGTH", "text STRING", INT, "How many characters.", "LENGTH('ab')", "2", Origin.BLINK),
    FunctionSpec("SUBSTRING", "text STRING, place INT [, length INT]", STRING, "Characters from a place on; from the end where it is negative.", "SUBSTRING('abcdef' FROM 2 FOR 3)", "'bcd'", spelled="SUBSTRING(text FROM place [FOR length])"),
    FunctionSpec("SUBSTR", "text STRING, place INT [, length INT]", STRING, "Characters from a place on; from the end where it is negative.", "SUBSTR('abcdef', -2)", "'ef'"),
    FunctionSpec("OVERLAY", "text STRING, other STRING, place INT [, length INT]", STRING, "The text with a part replaced, as long as the other text unless a length is given.", "OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6 FOR 2)", "'xxxxxxxxxst'", spelled="OVERLAY(text PLACING other FROM place [FOR length])"),
    FunctionSpec("CONCAT", "values... PRINTABLE", STRING, "The values one after another; NULL if one is.", "CONCAT('AA', 'BB', 'CC')", "'AABBCC'"),
    FunctionSpec("CONCAT_WS", "separator PRINTABLE, values... PRINTABLE", STRING, "The values with a separator; NULLs are left out.", "CONCAT_WS('~', 'AA', NULL, 'BB', '', 'CC')", "'AA~BB~~CC'"),
    FunctionSpec("REPLACE", "text STRING, part STRING, other STRING", STRING, "The text with each occurrence of a part replaced.", "REPLACE('ababab', 'abab', 'z')", "'zab'"),
    FunctionSpec("TRANSLATE", "text STRING, characters STRING, others STRING", STRING, "The text with characters exchanged one for one; those without a partner are left out.", "TRANSLATE('www.apache.org', 'wapcheorg', ' APCHEcom')", "'   .APACHE.com'"),
    FunctionSpec("LPAD", "text STRING, length INT, filler STRING", STRING, "The text filled up at its start, or cut.", "LPAD('hi', 4, '??')", "'??hi'"),
    FunctionSpec("RPAD", "text STRING, length INT, filler STRING", STRING, "The text filled up at its end, or cut.", "RPAD('hi', 4, '??')", "'hi??'"),
    FunctionSpec("REVERSE", "text STRING", STRING, "The text backward.", "REVERSE('abc')", "'cba'"),
    FunctionSpec("REPEAT", "text STRING, times INT", STRING, "The text several times.", "REPEAT('ab', 3)", "'ababab'"),
    FunctionSpec("POSITION", "part STRING, text STRING", INT, "Where the part stands first; 0: nowhere.", "POSITION('l' IN 'hello')", "3", spelled="POSITION(part IN text)"),
    FunctionSpec("LOCATE", "part STRING, text STRING [, place INT]", INT, "Where the part stands first, from a place on; 0: nowhere.", "LOCATE('l', 'hello', 4)", "4"),
    FunctionSpec("INSTR", "text STRING, part STRING [, place INT [, occurrence INT]]", INT, "Where the part stands for the n-th time, from a place on (backward if negative); 0: nowhere.", "INSTR('helloworld', 'o', 1, 2)", "7"),
    FunctionSpec("LEFT", "text STRING, count INT", STRING, "The first characters.", "LEFT('abc', 2)", "'ab'"),
    FunctionSpec("RIGHT", "text STRING, count INT", STRING, "The last characters.", "RIGHT('abc', 2)", "'bc'"),
    FunctionSpec("STARTSWITH", "text TEXT_OR_BYTES, start TEXT_OR_BYTES", _asked_of_both, "Whether the text, or the bytes, begin with the other.", "STARTSWITH('abc', 'ab')", "TRUE"),
    FunctionSpec("ENDSWITH", "text TEXT_OR_BYTES, end TEXT_OR_BYTES", _asked_of_both, "Whether the text, or the bytes, end with the other.", "ENDSWITH('abc', 'bc')", "TRUE"),
    FunctionSpec("SPLIT", "text STRING, separator STRING", array_of(STRING), "The parts between separators.", "SPLIT('a;b', ';')", "['a', 'b']"),
    FunctionSpec("STRING_SPLIT", "text STRING, separator STRING", array_of(STRING), "The parts between separators, as rows of LATERAL TABLE(...).", "STRING_SPLIT('a-b', '-')", "['a', 'b']", Origin.BLINK),
    FunctionSpec("SPLIT_INDEX", "text STRING, separator STRING_OR_INT, place INT", STRING, "The part at a place (from 0) between separators.", "SPLIT_INDEX('a.b.c', '.', 1)", "'b'"),
    FunctionSpec("STR_TO_MAP", "text STRING [, pair_separator STRING, key_separator STRING]", map_of(STRING, STRING), "Keys and values of a text; the separators are regular expressions.", "STR_TO_MAP('k1=v1,k2=v2')", "{'k1': 'v1', 'k2': 'v2'}"),
    FunctionSpec("KEYVALUE", "text STRING, pair_separators STRING, key_separators STRING, key STRING", STRING, "The value of a key; each character of a separator separates, NULL means white space.", "KEYVALUE('k1:v1|k2:v2', '|', ':', 'k2')", "'v2'", Origin.BLINK),
    FunctionSpec("ELT", "place INT, values... TEXT_OR_BYTES", _elements, "The value at a place of the list; NULL beyond it.", "ELT(2, 'a', 'b')", "'b'"),
    FunctionSpec("PRINTF", "format STRING [, values... ANY]", STRING, "The values in a format of Java; NULL if that is wrong.", "PRINTF('%s has %d', 'Bob', 3)", "'Bob has 3'"),
    FunctionSpec("ASCII", "text STRING", INT, "The number of the first character.", "ASCII('abc')", "97"),
    FunctionSpec("CHR", "number INT", STRING, "The character of a number from 0 to 255; what lies above begins anew.", "CHR(353)", "'a'"),
    FunctionSpec("ENCODE", "text STRING, charset STRING", _BYTES, "The bytes of the text.", "HEX(DECODE(ENCODE('ab', 'UTF-16BE'), 'ISO-8859-1'))", "'00610062'"),
    FunctionSpec("DECODE", "bytes BYTES, charset STRING", STRING, "The text of the bytes.", "DECODE(ENCODE('ä', 'UTF-8'), 'UTF-8')", "'ä'"),
    FunctionSpec("URL_ENCODE", "text STRING", STRING, "The text as a part of a URL.", "URL_ENCODE('a b&c')", "'a+b%26c'"),
    FunctionSpec("URL_DECODE", "text STRING", STRING, "The text of a part of a URL; NULL if it is wrong.", "URL_DECODE('a+b%26c')", "'a b&c'"),
    FunctionSpec("PARSE_URL", "url STRING, part STRING [, key STRING]", STRING, "HOST, PATH, QUERY, REF, PROTOCOL, AUTHORITY, FILE or USERINFO of a URL, or one value of its QUERY.", "PARSE_URL('http://facebook.com/path1/p.php?k1=v1&k2=v2#Ref1', 'QUERY', 'k1')", "'v1'"),
)  # fmt: skip
"""Their rows of the registry."""


PATTERNS: tuple[FunctionSpec, ...] = (
    FunctionSpec("REGEXP", "text STRING, pattern STRING", BOOLEAN, "Whether the pattern matches somewhere.", "REGEXP('abc', 'b.')", "TRUE"),
    FunctionSpec("REGEXP_EXTRACT", "text STRING, pattern STRING [, group INT]", STRING, "What a group (0, all, unless given) of the first match holds.", "REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "'bar'"),
    FunctionSpec("REGEXP_REPLACE", "text STRING, pattern STRING, other STRING", STRING, "The text with each match replaced; $ and \\ in the replacement are plain.", "REGEXP_REPLACE('foobar', 'oo|ar', '')", "'fb'"),
    FunctionSpec("REGEXP_COUNT", "text STRING, pattern STRING", INT, "How often the pattern matches.", "REGEXP_COUNT('abcabc', 'b')", "2"),
    FunctionSpec("REGEXP_EXTRACT_ALL", "text STRING, pattern STRING [, group INT]", array_of(STRING), "What a group (1 unless given, 0: all) of each match holds.", "REGEXP_EXTRACT_ALL('a1b2', '[a-z]([0-9])')", "['1', '2']"),
    FunctionSpec("REGEXP_INSTR", "text STRING, pattern STRING", INT, "Where the first match begins; 0: nowhere.", "REGEXP_INSTR('abc12', '[0-9]')", "4"),
    FunctionSpec("REGEXP_SUBSTR", "text STRING, pattern STRING", STRING, "The first match; NULL if there is none.", "REGEXP_SUBSTR('abc12', '[0-9]+')", "'12'"),
)  # fmt: skip
"""Their rows of the registry."""


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
