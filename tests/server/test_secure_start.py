"""Starting with access control: the first super user, and what a restart makes of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from millstream.client.client import Client
from millstream.model.errors import AccessRefused
from millstream.security.signature import Credentials
from millstream.server.access import CREDENTIALS_FILE
from millstream.server.all_in_one import AllInOne, AllInOneOptions

OWN = Credentials("owner", "secret-of-owner")


def options(directory: Path, *, secure: bool = True, first_user: Credentials | None = None) -> AllInOneOptions:
    return AllInOneOptions(
        directory, grpc_port=0, remoting_port=0, nameserver_port=0, secure=secure, first_user=first_user
    )


async def topics(server: AllInOne, credentials: Credentials | None) -> int:
    endpoints = await server.start()
    try:
        address = f"{endpoints.nameserver.host}:{endpoints.nameserver.port}"
        async with Client(address, credentials=credentials) as client:
            return len(await client.topics())
    finally:
        await server.close()


@pytest.fixture(autouse=True)
def no_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_ACCESS_KEY", raising=False)


async def test_a_new_directory_gets_a_super_user_once(tmp_path: Path) -> None:
    first = AllInOne(options(tmp_path))
    with pytest.raises(AccessRefused):
        await topics(first, None)
    made = first.made_user
    assert made is not None
    assert made.secret_key in (tmp_path / CREDENTIALS_FILE).read_text()
    again = AllInOne(options(tmp_path))
    await topics(again, made)
    assert again.made_user is None


async def test_the_first_super_user_can_be_named(tmp_path: Path) -> None:
    await topics(AllInOne(options(tmp_path, first_user=OWN)), OWN)
    assert not (tmp_path / CREDENTIALS_FILE).exists()


async def test_a_start_without_access_control_over_a_directory_with_users_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await topics(AllInOne(options(tmp_path, first_user=OWN)), OWN)
    with caplog.at_level(logging.WARNING):
        await topics(AllInOne(options(tmp_path, secure=False)), None)
    assert "everybody may do everything" in caplog.text
