"""Functions for logs and network traffic, which Flink does not have."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.streams.functions.spec import ArgumentTypes, FunctionSpec, Origin, map_of
from millstream.streams.functions.text.log_lines import LOG_FORMATS
from millstream.streams.functions.text.user_agents import USER_AGENT_PARTS
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType

__all__ = ["SECURITY"]

_TEXTS = map_of(STRING, STRING)
_FIREFOX = "'Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0'"


def _user_agent(given: ArgumentTypes) -> DataType:
    _check_word(given.literal(1), USER_AGENT_PARTS)
    return STRING


def _log(given: ArgumentTypes) -> DataType:
    _check_word(given.literal(1), LOG_FORMATS)
    return _TEXTS


def _check_word(word: object, known: Iterable[str]) -> None:
    if isinstance(word, str) and word.upper() not in known:
        raise TypeError(f"one of {', '.join(known)} as argument 2")


SECURITY: tuple[FunctionSpec, ...] = (
    FunctionSpec("CIDR_MATCH", "ip STRING, networks... STRING", BOOLEAN, "Whether an address (IPv4 or IPv6) is in one of the networks; NULL if it is no address. What is written as ::ffff:10.0.0.0/104 is of IPv4.", "CIDR_MATCH('10.1.2.3', '192.168.0.0/16', '10.0.0.0/8')", "TRUE", Origin.OWN),
    FunctionSpec("IP_IN_RANGE", "ip STRING, first STRING, last STRING", BOOLEAN, "Whether an address lies between two others.", "IP_IN_RANGE('10.0.0.7', '10.0.0.1', '10.0.0.9')", "TRUE", Origin.OWN),
    FunctionSpec("IS_PRIVATE_IP", "ip STRING", BOOLEAN, "Whether an address is for private networks, this machine or this link alone.", "IS_PRIVATE_IP('192.168.1.1')", "TRUE", Origin.OWN),
    FunctionSpec("IS_IPV4", "ip STRING", BOOLEAN, "Whether the text is an IPv4 address.", "IS_IPV4('10.0.0.1')", "TRUE", Origin.OWN),
    FunctionSpec("IS_IPV6", "ip STRING", BOOLEAN, "Whether the text is an IPv6 address.", "IS_IPV6('fe80::1')", "TRUE", Origin.OWN),
    FunctionSpec("IP_NETWORK", "ip STRING, bits INT", STRING, "The network of that many leading bits that an address is in.", "IP_NETWORK('10.1.2.3', 24)", "'10.1.2.0/24'", Origin.OWN),
    FunctionSpec("IP_TO_NUMBER", "ip STRING", BIGINT, "An IPv4 address as a number.", "IP_TO_NUMBER('10.0.0.1')", "167772161", Origin.OWN),
    FunctionSpec("NUMBER_TO_IP", "number INT", STRING, "The IPv4 address of a number.", "NUMBER_TO_IP(167772161)", "'10.0.0.1'", Origin.OWN),
    FunctionSpec("INET_ATON", "ip STRING", BIGINT, "An IPv4 address as a number, also in fewer parts, of which the last one stands behind the parts that miss.", "INET_ATON('127.1')", "2130706433"),
    FunctionSpec("INET_NTOA", "number INT", STRING, "The IPv4 address of a number.", "INET_NTOA(2130706433)", "'127.0.0.1'"),
    FunctionSpec("GROK", "text STRING, pattern STRING", _TEXTS, "What the named parts of a GROK pattern match; NULL if it does not match.", "GROK('GET /a 200', '%{WORD:verb} %{NOTSPACE:path} %{INT:status}')", "{'path': '/a', 'status': '200', 'verb': 'GET'}", Origin.OWN),
    FunctionSpec("PARSE_KV", "text STRING [, pair_separator STRING, key_separator STRING]", _TEXTS, "Keys and values of a log line (blanks and = by default); values may be in quotes.", "PARSE_KV('user=\"Ann Lee\" port=22')", "{'port': '22', 'user': 'Ann Lee'}", Origin.OWN),
    FunctionSpec("PARSE_LOG", "text STRING, format STRING", _log, "The fields of a line in the format COMMON, COMBINED, SYSLOG, CEF, LEEF or KV; NULL if it has another.", "PARSE_LOG('CEF:0|V|P|1|7|Login|5|src=10.0.0.1', 'CEF')['src']", "'10.0.0.1'", Origin.OWN),
    FunctionSpec("USER_AGENT", "text STRING, part STRING", _user_agent, "BROWSER, BROWSER_VERSION, OS, OS_VERSION or DEVICE of a User-Agent header.", f"USER_AGENT({_FIREFOX}, 'BROWSER')", "'Firefox'", Origin.OWN),
    FunctionSpec("ENTROPY", "text STRING", DOUBLE, "The bits of information in a character: high for made-up names.", "ENTROPY('aabb')", "1.0", Origin.OWN),
)  # fmt: skip
"""Their rows of the registry."""
