"""The table of what clients can do wrong names tests that are there, and all codes of AMQP that the port may send."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from millstream.protocol.amqp.reply_codes import ReplyCode
from millstream.proxy.http.problems import STATUSES

HERE = Path(__file__).parent
TESTS = HERE.parent
TABLE = tomllib.loads((HERE / "refusals.toml").read_text())
LINES = [(line, named) for protocol in TABLE.values() for line, named in protocol.items()]

NEVER_PROVOKED = {ReplyCode.REPLY_SUCCESS, ReplyCode.INTERNAL_ERROR, ReplyCode.NO_CONSUMERS, ReplyCode.INVALID_PATH}
"""A success, a failure that nobody foresaw, and what the port does not send."""


@pytest.mark.parametrize(("line", "named"), LINES, ids=[line[:60] for line, _ in LINES])
def test_every_line_has_tests_that_are_there(line: str, named: list[str]) -> None:
    assert named, line
    for one in named:
        file, _, function = one.partition("::")
        source = (TESTS / file).read_text()
        assert not function or re.search(rf"^(?:async )?def {function}\(", source, re.MULTILINE), one


def test_every_code_of_amqp_has_a_line() -> None:
    named = {int(code) for line in TABLE["amqp"] for code in re.findall(r"\b[1-5]\d\d\b", line)}
    wanted = {int(code) for code in ReplyCode} - {int(code) for code in NEVER_PROVOKED}
    assert wanted - named == set()


def test_every_status_of_http_has_a_line() -> None:
    named = {int(code) for line in TABLE["http"] for code in re.findall(r"\b[1-5]\d\d\b", line)}
    assert {int(status) for status in STATUSES.values()} - named == {501}
