from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import StartRefused
from millstream.server.configuration import document as module
from millstream.server.configuration.document import (
    configuration_of,
    parse_document,
    parse_value,
    read_document,
    role_of,
)
from millstream.server.configuration.reference import reference_text
from millstream.server.configuration.roles import ROLES, BrokerConfiguration, NameserverConfiguration


def broker(text: str, **overrides: object) -> BrokerConfiguration:
    return configuration_of(BrokerConfiguration, parse_document(text.encode(), "file"), "file", overrides)


@pytest.mark.parametrize("role", ROLES)
def test_the_printed_reference_is_a_file_that_says_the_defaults(role: str) -> None:
    document = parse_document(reference_text(role).encode(), "reference")
    assert role_of(document, "reference") == role
    assert configuration_of(ROLES[role], document, "reference") == ROLES[role]()


def test_sections_and_values_of_the_file_are_taken_and_the_rest_keeps_its_default() -> None:
    found = broker('name = "b"\nnameservers = ["a:1", "b:2"]\n[store]\nsync_flush = true\n')
    assert (found.name, found.nameservers, found.store.sync_flush) == ("b", ("a:1", "b:2"), True)
    assert (found.cluster, found.store.retention_hours) == ("DefaultCluster", 72)


def test_the_command_line_goes_before_the_file() -> None:
    found = broker('name = "b"\nport = 1\n', **{"port": 2, "store.retention_hours": 5})
    assert (found.name, found.port, found.store.retention_hours) == ("b", 2, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "there is no setting prot. Did you mean port?"),
        ("[store]\nretention_hour = 1", "no setting store.retention_hour. Did you mean store.retention_hours?"),
        ("[stroe]\nsync_flush = true", "no setting stroe.sync_flush. Did you mean store.sync_flush?"),
        ("store = 5", "no setting store"),
        ("xyzzy = 1", "no setting xyzzy."),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(text: str, words: str) -> None:
    with pytest.raises(StartRefused) as refused:
        broker(text)
    assert refused.value.name == "UNKNOWN_SETTING"
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = 65536", "port is 65536; it is to be a whole number, 0 to 65,535"),
        ("port = true", "port is true"),
        ('port = "1"', 'port is "1"'),
        ("port = 1.0", "port is 1.0"),
        ("name = 5", "name is 5; it is to be a text"),
        ('[tls]\nmode = "on"', 'tls.mode is "on"; it is to be "auto" or "off" or "permissive" or "required"'),
        ("nameservers = [1]", "nameservers is [1]"),
        ('nameservers = "a:1"', 'nameservers is "a:1"; it is to be a list of texts'),
        ("[store]\nretention_hours = 0", "store.retention_hours is 0"),
        ('role = "broccoli"', "role is 'broccoli'"),
        ('role = "proxy"', "file is for a proxy, and a broker is to be started"),
    ],
)
def test_an_illegal_value_is_refused_with_what_it_may_be(text: str, words: str) -> None:
    with pytest.raises(StartRefused) as refused:
        broker(text)
    assert refused.value.name == "ILLEGAL_SETTING"
    assert words in refused.value.message


def test_what_is_no_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    for content, words in ((b"port = =\n", "line 1"), (b"\xff", "utf-8")):
        file = tmp_path / "b.toml"
        file.write_bytes(content)
        with pytest.raises(StartRefused, match=words) as refused:
            read_document(file)
        assert refused.value.name == "CONFIGURATION_FILE"


def test_a_file_that_is_missing_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 10)
    (tmp_path / "large").write_text("# " + "x" * 20)
    for name, words in (("large", "over 10 bytes"), ("missing", "No such file"), (".", "directory")):
        with pytest.raises(StartRefused, match=words):
            read_document(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("port=5", "port", 5),
        ("name=b", "name", "b"),
        ("store.sync_flush = true", "store.sync_flush", True),
        ('nameservers=["a:1"]', "nameservers", ["a:1"]),
        ("name==", "name", "="),
    ],
)
def test_a_setting_of_the_command_line_is_a_value_of_toml_or_else_a_text(text: str, name: str, value: object) -> None:
    assert parse_value(text) == (name, value)


def test_a_setting_of_the_command_line_without_a_value_is_refused() -> None:
    for text in ("port", "=5", ""):
        with pytest.raises(StartRefused, match="name=value"):
            parse_value(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_configuration_or_a_refusal(content: bytes) -> None:
    names = {"CONFIGURATION_FILE", "UNKNOWN_SETTING", "ILLEGAL_SETTING"}
    try:
        found: object = configuration_of(NameserverConfiguration, parse_document(content, "file"), "file")
    except StartRefused as refused:
        found = refused.name
    assert isinstance(found, NameserverConfiguration) or found in names
