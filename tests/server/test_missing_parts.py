"""Roles whose directory lacks what it had do not start, and leave it as it is; the log has a matrix of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millstream.broker.data_directory import accept_losses, check_directory, document, note_directory
from millstream.cluster.key_values import KeyValues
from millstream.model.errors import MillstreamError, StartRefused
from millstream.security.signature import Credentials
from millstream.server.all_in_one import AllInOne, AllInOneOptions
from millstream.server.configuration.roles import NameserverConfiguration
from millstream.server.local_cluster import LocalCluster, LocalClusterOptions
from millstream.server.separate import SeparateRole
from millstream.store.manifest import StoreManifest


def quickstart(directory: Path) -> AllInOne:
    options = AllInOneOptions(
        directory,
        grpc_port=0,
        remoting_port=0,
        nameserver_port=0,
        secure=True,
        first_user=Credentials("own", "secret-1"),
    )
    return AllInOne(options)


def nameserver(directory: Path) -> SeparateRole:
    return SeparateRole(NameserverConfiguration(directory=str(directory), port=0, metrics_port=-1))


def tree(directory: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


def remove(directory: Path, name: str) -> None:
    for path in (directory / name, directory / f"{name}.bak"):
        path.unlink()


async def refused_start(server: AllInOne | SeparateRole | LocalCluster, directory: Path) -> MillstreamError:
    before = tree(directory)
    with pytest.raises(MillstreamError) as refused:
        await server.start()
    assert tree(directory) == before
    return refused.value


async def test_a_server_without_the_users_that_it_had_makes_no_new_super_user(tmp_path: Path) -> None:
    server = quickstart(tmp_path)
    await server.start()
    await server.close()
    remove(tmp_path / "config", "access.json")
    refused = await refused_start(quickstart(tmp_path), tmp_path)
    assert refused.name == "DATA_MISSING"
    assert str(tmp_path / "config" / "access.json") in str(refused)
    accept_losses(tmp_path, ["config/access.json"])
    again = quickstart(tmp_path)
    await again.start()
    assert again.made_user is not None
    await again.close()


async def test_a_nameserver_without_the_keys_that_it_had_does_not_start(tmp_path: Path) -> None:
    first = nameserver(tmp_path)
    await first.start()
    KeyValues(document(tmp_path, "nameserver.json")).put("ORDER_TOPIC_CONFIG", "t", "a:4")
    await first.close()
    again = nameserver(tmp_path)
    await again.start()
    await again.close()
    remove(tmp_path, "nameserver.json")
    refused = await refused_start(nameserver(tmp_path), tmp_path)
    assert (refused.name, str(tmp_path / "nameserver.json") in str(refused)) == ("DATA_MISSING", True)


async def test_a_cluster_without_the_folder_of_a_broker_starts_no_process(tmp_path: Path) -> None:
    for name in ("broker-0", "broker-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest").write_bytes(b"")
    note_directory(tmp_path, "nameserver", "broker-0", "broker-1")
    noted = StoreManifest(tmp_path).load()
    assert noted is not None
    assert noted.parts == {"broker-0", "broker-1"}
    shutil.rmtree(tmp_path / "broker-1")
    refused = await refused_start(LocalCluster(LocalClusterOptions(tmp_path)), tmp_path)
    assert (refused.name, str(tmp_path / "broker-1") in str(refused)) == ("DATA_MISSING", True)


def test_an_empty_mount_point_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "format").write_bytes(b"")
    note_directory(tmp_path)
    (tmp_path / "store" / "format").unlink()
    (tmp_path / "store" / "lost+found").mkdir()
    with pytest.raises(StartRefused, match="missing or empty"):
        check_directory(tmp_path)
