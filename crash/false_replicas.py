"""C5: strangers pretend to be replicas; bits flip in the log of a replica; a replica's disk is full."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from crash.direct_load import DirectLoad, check_direct, create_direct_topic
from crash.history import read_history
from crash.network import Network
from crash.programme import ProgrammeRun, scratch_directory
from crash.replica_cluster import LEASE_S, REPLICAS, SET_NAME, ReplicaCluster, wait_until
from crash.replica_logs import commit_log, compare_logs, read_epochs
from crash.replica_run import FULL_SET_S
from millstream.client.access import AccessOperations
from millstream.client.blocking import BlockingClient, BlockingConnection
from millstream.client.profiles import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.administration.access import UserInfo
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.replication import FetchRequest
from millstream.security.signature import Credentials
from millstream.server.configuration.roles import BrokerConfiguration
from millstream.store.message_store import StoreOptions

__all__ = ["deceive_masters"]

RESUMED_S: Final = 25.0
"""Seconds within which the master goes on without a replica that is connected and has nothing new; it waits 15."""

_ROOT: Final = Credentials("root", "secret-of-root")
_USER: Final = Credentials("ann", "secret-of-ann")
_CLUSTER: Final = "DefaultCluster"
_STRANGER: Final = 99
_SMALL_DISK: Final = REPLICAS[-1]
_SMALL_DISK_BYTES: Final = 64 * 1024 * 1024
_LEFT_BYTES: Final = 64 * 1024
_AT_LEAST: Final = 20
_ANSWER_S: Final = 3.0
_FLIPS: Final = 8
MENDED_S: Final = 30.0
"""Seconds within which damage that was found is mended, on a busy machine."""

_LIE_BYTES: Final = 10_000_000


def deceive_masters(run: ProgrammeRun) -> None:
    """C5. Each lie, a full disk and flipped bits once (ci), ten times (full), a thousand times (soak)."""
    with scratch_directory(on_disk=True) as root, Network() as network, ExitStack() as running:
        running.enter_context(_keys())
        small = root / _SMALL_DISK
        small.mkdir()
        _mount(small, running)
        cluster = ReplicaCluster(network, root, running, settings=["access.enabled=true"], credentials=_ROOT)
        cluster.start(with_proxy=False)
        if cluster.await_members(REPLICAS, FULL_SET_S) == float("inf"):
            run.fail(f"the set is not complete at the start: {cluster.view()}", root)
            return
        _make_user(cluster)
        create_direct_topic(cluster.nameservers)
        histories = root / "histories"
        histories.mkdir()
        load = DirectLoad(cluster.nameservers, histories)
        try:
            for _ in range(run.by_size(1, 10, 1_000)):
                _send_without_right(run, cluster)
                _send_lies(run, cluster)
                _go_on(run, load, "the lies")
                _claim_identities(run, cluster, load)
                _fill_disk(run, cluster, load, small)
                flipped = _flip_bits(run, cluster)
                _go_on(run, load, "flipped bits")
        finally:
            load.stop()
        run.counts |= {"acknowledged": load.acknowledged, "failed": len(load.failures)}
        for broken in check_direct(cluster.nameservers, read_history(histories), LEASE_S).broken():
            run.fail(broken)
        _lead_after_damage(run, cluster, flipped, histories)
        for wrong in compare_logs(cluster, REPLICAS):
            run.fail(wrong)
        if run.failures:
            run.fail("the logs and histories of this run", root)


@contextmanager
def _keys() -> Iterator[None]:
    """The administrator's key, for this process and those that it starts."""
    os.environ[ACCESS_KEY_VARIABLE], os.environ[SECRET_KEY_VARIABLE] = _ROOT.access_key, _ROOT.secret_key
    try:
        yield
    finally:
        del os.environ[ACCESS_KEY_VARIABLE], os.environ[SECRET_KEY_VARIABLE]


def _mount(directory: Path, running: ExitStack) -> None:
    """A small disk in memory there; the mounts of this process are its own, see `in_network`."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK_BYTES}", "tmpfs", directory], check=True)
    running.callback(lambda: subprocess.run(["umount", "-l", directory], check=True))


def _make_user(cluster: ReplicaCluster) -> None:
    """One who may not replicate."""
    with BlockingClient(cluster.nameservers) as client:
        user = UserInfo(_USER.access_key, _USER.secret_key, "Normal")
        client.run(AccessOperations(client.conversations).create_user(user))


def _go_on(run: ProgrammeRun, load: DirectLoad, what: str, timeout_s: float = FULL_SET_S) -> None:
    before = load.acknowledged
    if not wait_until(lambda: load.acknowledged >= before + _AT_LEAST, timeout_s):
        run.fail(f"{timeout_s:g} s after {what} sends are not taken: {(load.failures or ['-'])[-1]}")


def _honest_fetch(cluster: ReplicaCluster, master: str, broker_id: int) -> FetchRequest:
    """What a replica asks that has all."""
    epochs = read_epochs(cluster, master)
    last = epochs.epoch_list[-1]
    segment_bytes = StoreOptions().segment_bytes
    end = epochs.max_offset
    return FetchRequest(
        _CLUSTER, SET_NAME, broker_id, last.epoch, end, end, end, last.epoch, last.start_offset, segment_bytes, 1 << 20
    )


def _ask(connection: BlockingConnection, fetch: FetchRequest) -> RemotingCommand | None:
    """The answer; None where the connection was closed instead, or nobody answered."""
    try:
        return connection.request(RemotingCommand(RequestCode.FETCH_LOG, fetch.encode()), _ANSWER_S)
    except MillstreamError:
        return None


def _send_without_right(run: ProgrammeRun, cluster: ReplicaCluster) -> None:
    """Fetches without a key, with a wrong one, and with that of a user who may not replicate: none brings a byte."""
    master = cluster.master()
    fetch = replace(_honest_fetch(cluster, master, _STRANGER), log_offset=0, last_epoch=-1, last_epoch_start=-1)
    wrong = Credentials(_ROOT.access_key, "guessed")
    for what, key in (("no key", None), ("a wrong key", wrong), ("a user's key", _USER)):
        connection = BlockingConnection(cluster.replica_address(master), timeout_s=_ANSWER_S, credentials=key)
        answer = _ask(connection, fetch)
        connection.close()
        run.count("without_right")
        if answer is not None and (answer.code == 0 or answer.body):
            run.fail(f"with {what} a fetch was answered {answer.code} with {len(answer.body)} bytes")


def _send_lies(run: ProgrammeRun, cluster: ReplicaCluster) -> None:
    """Fetches with the right key and one wrong field: each is refused, and the set stays as it was."""
    master = cluster.master()
    honest = _honest_fetch(cluster, master, _STRANGER)
    lies = {
        "another cluster": replace(honest, cluster="elsewhere"),
        "another name": replace(honest, name="broker-b"),
        "an earlier epoch": replace(honest, epoch=honest.epoch - 1),
        "a later epoch": replace(honest, epoch=honest.epoch + 1),
        "the master's id": replace(honest, broker_id=_id_of(master)),
        "other files": replace(honest, segment_bytes=4096),
    }
    before = cluster.view()
    for what, fetch in lies.items():
        connection = BlockingConnection(cluster.replica_address(master), timeout_s=_ANSWER_S, credentials=_ROOT)
        answer = _ask(connection, fetch)
        connection.close()
        run.count("lies")
        if answer is not None and answer.code == 0:
            run.fail(f"a fetch with {what} was answered")
    if cluster.view() != before:
        run.fail(f"the set became {cluster.view()}, was {before}, by fetches that were refused")


def _claim_identities(run: ProgrammeRun, cluster: ReplicaCluster, load: DirectLoad) -> None:
    """A replica that nobody knows, and one with the id of a member, claim what they were never sent."""
    master = cluster.master()
    other = next(name for name in REPLICAS if name != master)
    other_id = _id_of(other)
    for what, broker_id in (("a stranger", _STRANGER), ("a member's double", other_id)):
        connection = BlockingConnection(cluster.replica_address(master), timeout_s=_ANSWER_S, credentials=_ROOT)
        honest = _honest_fetch(cluster, master, broker_id)
        begin = replace(honest, log_offset=0, flushed=0, confirmed=0, last_epoch=-1, last_epoch_start=-1)
        first = _ask(connection, replace(begin, max_bytes=1))
        answer = _ask(connection, replace(honest, log_offset=_honest_fetch(cluster, master, broker_id).log_offset))
        connection.close()
        if first is None or first.code != 0:
            run.fail(f"{what} with the right key was not answered, so nothing was tested")
        if answer is not None and answer.code == 0:
            run.fail(f"{what} claimed what it was never sent, and was answered")
        beyond = replace(honest, log_offset=honest.log_offset + _LIE_BYTES, flushed=honest.log_offset + _LIE_BYTES)
        connection = BlockingConnection(cluster.replica_address(master), timeout_s=_ANSWER_S, credentials=_ROOT)
        answer = _ask(connection, beyond)
        if answer is not None and answer.code == 0 and answer.ext.get("outcome") == "records":
            run.fail(f"{what} claimed more than there is, and was answered")
        # One that seems to have all, and falls silent with its connection open.
        _ask(connection, _honest_fetch(cluster, master, broker_id))
        _go_on(run, load, f"the silence of {what}")
        connection.close()
        run.count("claims")
        _await_all(run, cluster, what)
        _go_on(run, load, f"the end of {what}")


def _id_of(name: str) -> int:
    """The controller id of a replica: they started one after the other."""
    return REPLICAS.index(name) + 1


def _fill_disk(run: ProgrammeRun, cluster: ReplicaCluster, load: DirectLoad, small: Path) -> None:
    """The disk of a replica is full for a while: the set goes on without it, and has it back afterwards."""
    if cluster.master() == _SMALL_DISK:
        cluster.processes[_SMALL_DISK].stop()
        cluster.restart(_SMALL_DISK)
        cluster.await_members(REPLICAS, FULL_SET_S)
    ballast = small / "ballast"
    left = os.statvfs(small)
    with suppress(OSError):
        # The replica writes there as well, so less may be left than was.
        ballast.write_bytes(bytes(max(0, left.f_bavail * left.f_frsize - _LEFT_BYTES)))
    began_s = time.monotonic()
    run.count("full_disks")
    others = [name for name in REPLICAS if name != _SMALL_DISK]
    if cluster.await_members(others, RESUMED_S) == float("inf"):
        run.fail(f"{RESUMED_S:g} s after the disk of {_SMALL_DISK} was full the set is {cluster.view()}")
    run.counts["full_disk_left_ms"] = round((time.monotonic() - began_s) * 1000)
    _go_on(run, load, "a full disk")
    ballast.unlink()
    took_s = cluster.await_members(REPLICAS, FULL_SET_S)
    if took_s == float("inf"):
        run.fail(f"{FULL_SET_S:g} s after there was room again the set is {cluster.view()}")
    else:
        run.counts["full_disk_back_ms"] = round(took_s * 1000)


def _flip_bits(run: ProgrammeRun, cluster: ReplicaCluster) -> str:
    """A replica, maybe the master, is killed and comes back with other bits in its log: it has the right ones soon."""
    name = run.random.choice(REPLICAS)
    end = read_epochs(cluster, name).max_offset
    cluster.processes[name].kill()
    path = commit_log(cluster, name) / f"{0:020}"
    with path.open("rb") as file:
        right = {at: _byte_at(file, at) for at in run.random.sample(range(end), _FLIPS)}
    with path.open("r+b") as file:
        for at, byte in right.items():
            file.seek(at)
            file.write(bytes([byte ^ 1 << run.random.randrange(8)]))
    run.count("flips", _FLIPS)
    began_s = time.monotonic()
    cluster.restart(name)
    _await_all(run, cluster, f"{name} came back with flipped bits")

    def left() -> list[int]:
        with path.open("rb") as file:
            return [at for at, byte in right.items() if _byte_at(file, at) != byte]

    # It looks through its whole log at a rate that is set, and what it finds is mended within moments.
    limit_s = MENDED_S + end / BrokerConfiguration().replicas.scrub_bytes_per_s
    if not wait_until(lambda: not left(), limit_s):
        run.count("flips_left", len(left()))
        run.fail(f"{limit_s:.0f} s after its start {name} still has flipped bits at {left()} of {end}")
    slowest_ms = run.counts.get("slowest_mending_ms", 0)
    run.counts["slowest_mending_ms"] = max(slowest_ms, round((time.monotonic() - began_s) * 1000))
    return name


def _byte_at(file: BinaryIO, position: int) -> int:
    file.seek(position)
    return file.read(1)[0]


def _lead_after_damage(run: ProgrammeRun, cluster: ReplicaCluster, mended: str, histories: Path) -> None:
    """Have the replica whose log was damaged be the master: it serves all that was acknowledged."""
    others = [name for name in REPLICAS if name != mended]
    for name in others:
        cluster.processes[name].stop()
    if cluster.await_members([mended], FULL_SET_S) == float("inf"):
        run.fail(f"{FULL_SET_S:g} s after the others stopped the set is {cluster.view()}")
    try:
        verdict = check_direct(cluster.nameservers, read_history(histories), LEASE_S)
    except MillstreamError as error:
        run.fail(f"{mended}, whose bits had flipped, does not serve all: {error}")
    else:
        for broken in verdict.broken():
            run.fail(f"{mended}, whose bits had flipped, as the master: {broken}")
    for name in others:
        cluster.restart(name)
    _await_all(run, cluster, "the others came back")


def _await_all(run: ProgrammeRun, cluster: ReplicaCluster, what: str) -> None:
    if cluster.await_members(REPLICAS, FULL_SET_S) == float("inf"):
        run.fail(f"{FULL_SET_S:g} s after {what} the set is {cluster.view()}")
