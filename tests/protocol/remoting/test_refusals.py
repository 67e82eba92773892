from __future__ import annotations

import pytest

from millstream.model.catalogue import CATALOGUE
from millstream.model.errors import (
    ConsumeRefused,
    MessageRefused,
    MillstreamError,
    NameRefused,
    Refused,
    StoreError,
)
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of, response_code_of


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("TOPIC_NOT_FOUND", 17),
        ("GROUP_NOT_FOUND", 26),
        ("BODY_TOO_LARGE", 13),
        ("ILLEGAL_TOPIC", 29),
        ("FORBIDDEN", 16),
        ("TOO_MANY_REQUESTS", 2),
        ("STORE_FAILED", 14),
        ("ILLEGAL_FILTER", 23),
        ("QUEUE_NOT_FOUND", 29),
        ("INTERNAL_ERROR", 1),
    ],
)
def test_a_refusal_travels_under_the_code_of_rocketmq(name: str, code: int) -> None:
    assert response_code_of(MillstreamError(name, "x")) == code


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_error_comes_back_as_it_was_raised(name: str) -> None:
    raised = MillstreamError(name, "Something with values 5.")
    answer = RemotingCommand(response_code_of(raised), remark=str(raised))
    error = error_of(answer, "h:1")
    assert (error.name, error.message, str(error)) == (name, raised.message, str(raised))


@pytest.mark.parametrize(
    ("code", "name", "kind"),
    [
        (17, "TOPIC_NOT_FOUND", NameRefused),
        (26, "GROUP_NOT_FOUND", NameRefused),
        (16, "FORBIDDEN", NameRefused),
        (2, "TOO_MANY_REQUESTS", ConsumeRefused),
        (23, "ILLEGAL_FILTER", MessageRefused),
        (10, "FLUSH_TIMEOUT", StoreError),
        (3, "REQUEST_NOT_SUPPORTED", Refused),
        (1, "REFUSED_BY_SERVER", Refused),
        (999, "REFUSED_BY_SERVER", Refused),
        (-7, "REFUSED_BY_SERVER", Refused),
    ],
)
def test_answers_of_other_servers_are_told_by_their_code_with_address_and_words(
    code: int, name: str, kind: type[MillstreamError]
) -> None:
    error = error_of(RemotingCommand(code, remark="CODE: 1 DESC: no"), "10.0.0.1:10911")
    assert (error.name, type(error)) == (name, kind)
    assert "10.0.0.1:10911" in error.message
    assert "CODE: 1 DESC: no" in error.message


def test_a_number_that_is_not_in_the_catalogue_does_not_mislead() -> None:
    assert error_of(RemotingCommand(17, remark="new words [MS-9999]"), "h:1").name == "TOPIC_NOT_FOUND"
