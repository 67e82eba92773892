from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest
from commands import Ran, run

from millstream.cli.servers.start_cluster import cluster
from millstream.server.child import RoleProcess, ServerProcess
from millstream.server.local_cluster import MAX_BROKERS, MAX_PROXIES
from millstream.telemetry.processes import owners_of

pytestmark = pytest.mark.process


Command = Callable[..., Ran]


@pytest.fixture
def own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("MILLSTREAM_PROFILE", "MILLSTREAM_NAMESERVER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "millstream" / "profiles.toml"


def rows(ran: Ran, part: str | None = None) -> list[dict[str, object]]:
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    listed: list[dict[str, object]] = found if part is None else found[part]
    return listed


def test_a_profile_stands_for_the_nameserver_and_an_option_goes_before_it(
    server: ServerProcess, own_profiles: Path
) -> None:
    assert run("profile", "set", "here", "--nameserver", server.addresses.nameserver).code == 0
    assert own_profiles.stat().st_mode & 0o777 == 0o600
    assert run("topic", "list").code == 0
    assert run("topic", "list", "--nameserver", "127.0.0.1:1").code == 3
    assert run("profile", "set", "nowhere", "--nameserver", "127.0.0.1:1").code == 0
    assert run("topic", "list", "--profile", "nowhere").code == 3
    assert run("profile", "set", "here", "--grpc", "127.0.0.1:1").code == 0
    partly = run("status", "-o", "json")
    assert (partly.code, json.loads(partly.out)["proxies"][0]["state"]) == (5, "unreachable")
    assert run("profile", "set", "here", "--grpc", server.addresses.grpc).code == 0
    assert run("status").code == 0
    assert run("profile", "use", "nowhere").code == 0
    assert run("topic", "list").code == 3
    assert run("topic", "list", "--profile", "here").code == 0
    assert run("profile", "delete", "nowhere").code == 0
    assert [row["profile"] for row in rows(run("profile", "list", "-o", "json"))] == ["here"]


def test_a_profile_that_there_is_not_or_cannot_be_read_is_said_in_one_sentence(own_profiles: Path) -> None:
    missing = run("topic", "list", "--profile", "nowhere")
    assert (missing.code, "MS-1023" in missing.err) == (1, True)
    own_profiles.parent.mkdir()
    own_profiles.write_text("[")
    broken = run("topic", "list")
    assert (broken.code, "MS-1020" in broken.err) == (1, True)
    assert run("profile", "set", "a", "--nameserver", "nowhere").code == 2


def test_secrets_of_profiles_are_not_shown(own_profiles: Path) -> None:
    run("profile", "set", "a", "--access-key", "user", "--secret-key", "geheim123")
    assert "geheim123" in own_profiles.read_text()
    assert "geheim123" not in run("profile", "list", "-o", "json").out


def test_status_and_topology_show_the_servers(millstream: Command, server: ServerProcess) -> None:
    told = json.loads(millstream("status", "-o", "json").out)
    assert [(one["address"], one["state"]) for one in told["nameservers"]] == [(server.addresses.nameserver, "serving")]
    [broker] = told["brokers"]
    assert (broker["name"], broker["state"], broker["address"]) == ("broker-a", "serving", server.addresses.broker)
    [row] = rows(millstream("cluster", "topology", "-o", "json"))
    assert (row["nameserver"], row["broker"], row["role"]) == (server.addresses.nameserver, "broker-a", "master")


def test_status_says_which_nameserver_does_not_answer(server: ServerProcess) -> None:
    partly = run("status", "-o", "json", "--nameserver", f"127.0.0.1:1;{server.addresses.nameserver}")
    assert partly.code == 5
    states = {one["address"]: one["state"] for one in json.loads(partly.out)["nameservers"]}
    assert states == {"127.0.0.1:1": "unreachable", server.addresses.nameserver: "serving"}
    assert run("status", "--nameserver", "127.0.0.1:1").code == 3


def test_a_broker_is_drained_described_and_let_in_again(millstream: Command) -> None:
    millstream("topic", "create", "drained")
    millstream("produce", "drained", "x")
    done = millstream("broker", "drain", "broker-a", "-o", "json")
    assert json.loads(done.out) == {"broker": "broker-a", "drained": True, "empty": True, "waiting_messages": 0}
    assert "no other broker" in done.err
    assert "no group reads drained" in done.err
    [row] = rows(millstream("broker", "list", "-o", "json"))
    assert (row["state"], row["id"]) == ("drained", 0)
    refused = millstream("produce", "drained", "x")
    assert (refused.code, refused.err.count("MS-21")) == (1, 1)
    assert json.loads(millstream("broker", "describe", "broker-a", "-o", "json").out)["drained"] is True
    assert millstream("broker", "undrain", "broker-a").code == 0
    assert millstream("produce", "drained", "x").code == 0
    unknown = millstream("broker", "drain", "broker-z")
    assert (unknown.code, "MS-2345" in unknown.err) == (1, True)


def test_a_drain_that_does_not_end_in_time_says_what_waits(millstream: Command) -> None:
    millstream("topic", "create", "waits")
    for _ in range(2):
        millstream("produce", "waits", "x")
    assert millstream("consume", "waits", "--group", "slow", "--count", "1").code == 0
    late = millstream("broker", "drain", "broker-a", "--for", "0.5")
    assert (late.code, "MS-2112" in late.err, "slow in waits" in late.err) == (1, True, True)
    millstream("broker", "undrain", "broker-a")


def test_the_doctor_finds_nothing_wrong_with_a_new_server_and_names_one_that_is_not_there(
    millstream: Command, server: ServerProcess
) -> None:
    found = rows(millstream("doctor", "--grpc", server.addresses.grpc, "-o", "json"))
    assert {row["state"] for row in found if row["check"] != "Java for streams"} <= {"ok", "warning"}
    assert {"versions", "broker broker-a: clock", "broker broker-a: sync"} <= {row["check"] for row in found}
    broken = run("doctor", "--nameserver", "127.0.0.1:1", "--grpc", "127.0.0.1:1", "-o", "json")
    assert broken.code == 1
    assert [row["check"] for row in json.loads(broken.out) if row["state"] == "problem"] == [
        "nameserver 127.0.0.1:1",
        "proxy 127.0.0.1:1",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_status_and_doctor_show_each_proxy_that_shares_a_port(own_profiles: Path, tmp_path: Path) -> None:
    ports = ("--nameserver-port", "0", "--broker-port", "0", "--grpc-port", "0")
    with RoleProcess("cluster", tmp_path / "c", options=("--brokers", "1", "--proxies", "2", *ports)) as cluster:
        grpc = cluster.addresses["grpc"]
        assert run("profile", "set", "c", "--nameserver", cluster.addresses["nameserver"], "--grpc", grpc).code == 0
        pids = owners_of("127.0.0.1", int(grpc.rpartition(":")[2]))
        assert len(pids) == 2
        proxies = rows(run("status", "-o", "json"), "proxies")
        assert [(one["name"], one["state"]) for one in proxies] == [(f"process {pid}", "serving") for pid in pids]
        [row] = [row for row in rows(run("doctor", "-o", "json")) if row["check"] == f"proxy {grpc}"]
        assert row["finding"] == f"takes connections, as processes {pids[0]}, {pids[1]}"


def test_a_brokers_settings_are_read_and_changed(millstream: Command) -> None:
    told = {
        row["setting"]: row["value"] for row in rows(millstream("broker", "config", "get", "broker-a", "-o", "json"))
    }
    assert (told["brokerName"], told["fileReservedTime"]) == ("broker-a", "72")
    assert millstream("broker", "config", "set", "broker-a", "fileReservedTime=5").code == 0
    [row] = rows(millstream("broker", "config", "get", "broker-a", "--setting", "fileReservedTime", "-o", "json"))
    assert row == {"setting": "fileReservedTime", "value": "5"}
    assert millstream("broker", "config", "set", "broker-a", "fileReservedTime=0").code == 1
    assert millstream("broker", "config", "set", "broker-a", "nothing").code == 2
    assert millstream("broker", "config", "set", "broker-a", "brokerPermission=5").code == 1
    assert millstream("broker", "config", "set", "broker-a", "brokerPermission=4").code == 0
    assert "\tdrain" in millstream("broker", "list").out
    assert millstream("broker", "config", "set", "broker-a", "brokerPermission=6").code == 0


def test_the_settings_of_a_role_are_printed_and_checked(tmp_path: Path) -> None:
    printed = run("config", "reference", "broker")
    file = tmp_path / "broker.toml"
    file.write_text(printed.out)
    assert run("config", "check", str(file)).code == 0
    file.write_text('role = "broker"\nprot = 1\n')
    wrong = run("config", "check", str(file))
    assert (wrong.code, "Did you mean port?" in wrong.err) == (1, True)
    file.write_text("port = 1\n")
    assert run("config", "check", str(file)).code == 2
    assert run("config", "check", str(file), "--role", "broker").code == 0
    for illegal in ('url = "ftp://bucket"', 'url = "s3://key:secret@bucket"', 'catalog = "tables.db"'):
        file.write_text(f'role = "broker"\n[tiered]\n{illegal}\n')
        wrong = run("config", "check", str(file))
        assert (wrong.code, "tiered." in wrong.err) == (1, True)


@pytest.mark.parametrize(("option", "limit"), [("brokers", MAX_BROKERS), ("proxies", MAX_PROXIES)])
def test_a_cluster_takes_as_many_processes_as_its_limits_say(option: str, limit: int) -> None:
    # The command line names the numbers itself: to import the servers would slow every command down.
    parameter = get_type_hints(cluster, include_extras=True)[option].__metadata__[0]
    [number] = parameter.validator
    assert number.lte == limit
