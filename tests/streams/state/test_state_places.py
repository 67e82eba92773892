"""Places of state files: whoever keeps files there, in whatever place, finds the same, also when calls fail."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from pyarrow import fs

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.streams.errors import JobError
from millstream.streams.jobs.topic_files import TopicFiles
from millstream.streams.operators.key_groups import KeyGroups
from millstream.streams.spark.operators.arrow_files import ArrowStateFiles
from millstream.streams.spark.source.topic_log import TopicLog, open_log
from millstream.streams.state import group_log
from millstream.streams.state.group_log import SHARED, GroupLog
from millstream.streams.state.state_files import LocalStateFiles, StateFiles
from millstream.streams.state.unreachable import ATTEMPTS, StateDenied, StateUnreachable
from object_stores import Bucket, bucket  # noqa: F401 - a fixture
from servers import Servers, running_servers_in_thread

COUNT = 8


class Places(Protocol):
    """Gives the same place for the same name, each time as a process that starts sees it."""

    def __call__(self, name: str) -> StateFiles: ...


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with running_servers_in_thread(tmp_path_factory.mktemp("servers")) as running:
        yield running


@pytest.fixture
def nameserver(servers: Servers) -> str:
    return servers.nameserver


S3 = pytest.param("s3", marks=pytest.mark.process)
"""The bucket's server is a process of its own."""


@pytest.fixture(params=["local", "arrow-local", "never-replacing", "topic", S3])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    if request.param == "local":
        return lambda name: LocalStateFiles(tmp_path / name)
    if request.param == "arrow-local":
        return lambda name: ArrowStateFiles.at(str(tmp_path)).within(name)
    if request.param == "never-replacing":
        return lambda name: ArrowStateFiles(str(tmp_path / name), open_never_replacing)
    if request.param == "s3":
        store: Bucket = request.getfixturevalue("bucket")
        return lambda name: ArrowStateFiles.at(store.address(tmp_path.name)).within(name)
    server = request.getfixturevalue("nameserver")

    def of_topic(name: str) -> StateFiles:
        files = TopicFiles(f"state-{tmp_path.name}", name, lambda: open_log(server, timeout_s=10))
        files.prepare()
        request.addfinalizer(files.close)
        return files

    return of_topic


def test_a_file_is_as_it_was_written_last_until_it_is_deleted(places: Places) -> None:
    files = places("one")
    assert files.sizes() == {}
    with pytest.raises(FileNotFoundError):
        files.read("17.0-7.delta")
    files.write("17.0-7.delta", b"first")
    files.write("17.0-7.delta", b"the second")
    files.write("18.0-7.delta", bytes(range(256)) * 4096)
    for seen in (files, places("one")):
        assert seen.sizes() == {"17.0-7.delta": 10, "18.0-7.delta": 1024 * 1024}
        assert seen.read("17.0-7.delta") == b"the second"
        assert seen.read("18.0-7.delta") == bytes(range(256)) * 4096
    files.delete("17.0-7.delta")
    files.delete("17.0-7.delta")
    for seen in (files, places("one")):
        assert seen.sizes() == {"18.0-7.delta": 1024 * 1024}
        with pytest.raises(FileNotFoundError):
            seen.read("17.0-7.delta")


def test_places_of_other_names_are_apart(places: Places) -> None:
    places("one").write("a", b"1")
    places("one more").write("a", b"22")
    assert places("one").sizes() == {"a": 1}
    assert places("one more").sizes() == {"a": 2}


@pytest.mark.parametrize("seed", range(4))
def test_the_log_of_key_groups_finds_the_state_in_every_place(
    places: Places, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(group_log, "MIN_SNAPSHOT_BYTES", chance.choice([0, 300]))
    monkeypatch.setattr(group_log, "SNAPSHOT_BYTES", chance.choice([1, 200]))
    monkeypatch.setattr(group_log, "MIN_KEPT_VERSIONS", chance.choice([0, 2]))
    state: dict[int, dict[str, int]] = {}
    for version in range(12):
        dealt = KeyGroups.deal(COUNT, chance.choice([1, 2, 3]))
        changes = {group: {f"k{chance.randrange(3)}": version} for group in chance.sample(range(COUNT), 4)}
        for task in range(dealt.tasks):
            groups = dealt.range_of(task)
            log = GroupLog(places("state"), groups, COUNT)
            found = read_state(log, version)
            assert found == {group: values for group, values in state.items() if group in groups}
            own = {group: change for group, change in changes.items() if group in groups}
            for group, change in own.items():
                found.setdefault(group, {}).update(change)
            deltas = {group: pickle.dumps(change) for group, change in own.items()}
            whole = {group: pickle.dumps(values) for group, values in found.items()}
            log.keep(version, deltas, lambda group, whole=whole: whole.get(group, b""), sorted(found), shared=b"x")
        for group, change in changes.items():
            state.setdefault(group, {}).update(change)
    assert read_state(GroupLog(places("state"), range(COUNT), COUNT), 12) == state


def read_state(log: GroupLog, before: int) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for sections in log.restore(before):
        for group, change in sections.items():
            if group != SHARED:
                found.setdefault(group, {}).update(pickle.loads(change))
    return found


class Failing:
    """Opens a directory as a place that fails at `calls`, counted from 0, with `error`; waits for nothing."""

    def __init__(self, calls: range, error: OSError) -> None:
        self.calls, self.error, self.seen = calls, error, 0
        self.pauses_s: list[float] = []

    def open(self, location: str) -> tuple[fs.FileSystem, str]:
        self.seen += 1
        if self.seen - 1 in self.calls:
            raise self.error
        opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(location)
        return opened

    def files(self, directory: Path) -> ArrowStateFiles:
        return ArrowStateFiles(str(directory), self.open, self.pauses_s.append)


CALLS: dict[str, Callable[[ArrowStateFiles], object]] = {
    "write": lambda files: files.write("b", b"2"),
    "read": lambda files: files.read("a"),
    "sizes": lambda files: files.sizes(),
    "delete": lambda files: files.delete("a"),
    "probe": lambda files: files.probe(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_is_away_for_three_calls_is_asked_again(call: str, tmp_path: Path) -> None:
    LocalStateFiles(tmp_path).write("a", b"1")
    store = Failing(range(3), OSError("curlCode: 7, Couldn't connect to server"))
    CALLS[call](store.files(tmp_path))
    assert len(store.pauses_s) == 3
    assert store.pauses_s == sorted(store.pauses_s)


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_stays_away_is_named_with_the_file_and_the_cause(call: str, tmp_path: Path) -> None:
    store = Failing(range(1000), OSError("curlCode: 7, Couldn't connect to server"))
    with pytest.raises(StateUnreachable, match=r"Couldn't connect.*Is it running") as said:
        CALLS[call](store.files(tmp_path))
    assert store.seen == ATTEMPTS
    assert sum(store.pauses_s) < 10
    assert str(tmp_path) in str(said.value)
    assert str(pickle.loads(pickle.dumps(said.value))) == str(said.value)


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_refuses_is_not_asked_again(call: str, tmp_path: Path) -> None:
    store = Failing(range(1000), OSError("AWS Error ACCESS_DENIED during PutObject operation"))
    with pytest.raises(StateDenied, match=r"ACCESS_DENIED.*Make the bucket"):
        CALLS[call](store.files(tmp_path))
    assert store.seen == 1


@pytest.mark.process
def test_a_bucket_that_is_not_there_is_refused_at_once(bucket: Bucket) -> None:  # noqa: F811
    pauses_s: list[float] = []
    files = ArrowStateFiles(bucket.address("x", bucket="none-such"), pause=pauses_s.append)
    with pytest.raises(StateDenied, match=r"none-such.*(NO_SUCH_BUCKET|does not exist)"):
        files.probe()
    assert pauses_s == []


def test_a_directory_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    pauses_s: list[float] = []
    with pytest.raises(StateDenied, match="Not a directory"):
        ArrowStateFiles(str(tmp_path / "file" / "x"), pause=pauses_s.append).probe()
    assert pauses_s == []


def test_a_probe_leaves_nothing(places: Places) -> None:
    files = places("probed")
    if isinstance(files, ArrowStateFiles):
        files.probe()
    assert files.sizes() == {}


def test_a_write_that_is_cut_short_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ArrowStateFiles(str(tmp_path), pause=lambda _: None)
    files.write("a", b"whole")
    monkeypatch.setattr(Torn, "move", fail)
    with pytest.raises(StateUnreachable, match="the power failed"):
        ArrowStateFiles(str(tmp_path), lambda location: (Torn(), location), lambda _: None).write(
            "a", b"something else"
        )
    assert files.read("a") == b"whole"
    assert files.sizes() == {"a": 5}


class NeverReplacing(fs.LocalFileSystem):  # type: ignore[misc]
    """A directory that moves files as HDFS does."""

    type_name = "hdfs"

    def move(self, source: str, destination: str) -> None:
        if Path(destination).exists():
            raise OSError(f"rename: {destination} is there")
        super().move(source, destination)


def open_never_replacing(location: str) -> tuple[fs.FileSystem, str]:
    return NeverReplacing(), location


def test_a_file_that_cannot_be_replaced_at_once_is_never_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ArrowStateFiles(str(tmp_path), open_never_replacing, lambda _: None)
    files.write("head", b"first")
    files.write("head", b"second")
    move = NeverReplacing.move

    def move_away_alone(system: NeverReplacing, source: str, destination: str) -> None:
        if not destination.endswith(".before"):
            raise OSError("the power failed")
        move(system, source, destination)

    with monkeypatch.context() as patch:
        patch.setattr(NeverReplacing, "move", move_away_alone)
        with pytest.raises(StateUnreachable):
            files.write("head", b"third")
    assert files.read("head") == b"second"
    files.write("head", b"fourth")
    assert files.read("head") == b"fourth"


class Torn(fs.LocalFileSystem):  # type: ignore[misc]
    """A directory in which files do not become whole."""


def fail(system: Torn, source: str, destination: str) -> None:
    raise OSError("the power failed")


@pytest.mark.parametrize("location", ["states", "http://host/x", "s3:", ""])
def test_what_is_no_address_is_refused(location: str) -> None:
    with pytest.raises(JobError, match="State cannot lie in") as said:
        ArrowStateFiles.at(location)
    assert said.value.name == "STATE_DENIED"


def test_keys_of_access_in_an_address_are_refused_and_not_shown() -> None:
    with pytest.raises(JobError) as said:
        ArrowStateFiles.at("s3://AKIA1:hidden@bucket/x")
    assert "hidden" not in f"{said.value} {said.value.remedy}"


def test_a_topic_that_is_not_compacted_is_refused(nameserver: str) -> None:
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("plain"))
    files = TopicFiles("plain", "x", lambda: open_log(nameserver, timeout_s=10))
    with pytest.raises(JobError, match="not compacted") as said:
        files.prepare()
    files.close()
    assert said.value.name == "STATE_DENIED"


def test_files_stay_while_compaction_takes_those_that_were_replaced(servers: Servers) -> None:
    def reader() -> TopicFiles:
        return TopicFiles("compacted", "job/t", lambda: open_log(servers.nameserver, timeout_s=10))

    writer, early = reader(), reader()
    writer.prepare()
    expected: dict[str, bytes] = {}
    chance = random.Random(5)
    for number in range(1_100):
        name, content = f"block{chance.randrange(20)}", b"%d " % number * chance.choice([1, 2_000])
        if chance.random() < 0.3:
            writer.delete(name)
            expected.pop(name, None)
        else:
            writer.write(name, content)
            expected[name] = content
        if number == 900:
            assert early.sizes() == {name: len(content) for name, content in expected.items()}
    assert servers.broker.maintenance.store.compact({"compacted"}) == 1
    late = reader()
    for files in (early, late, writer):
        assert files.sizes() == {name: len(content) for name, content in expected.items()}
        assert {name: files.read(name) for name in expected} == expected
        files.close()


class AwayLog:
    """A connection that fails at every call until `left` calls were made, then is the real one."""

    left = 0

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> object:
        if name != "close" and AwayLog.left > 0:
            AwayLog.left -= 1
            raise ConnectionResetError("the broker went away")
        return getattr(self._log, name)


def test_a_broker_that_is_away_for_three_calls_is_asked_again(nameserver: str) -> None:
    pauses_s: list[float] = []
    files = TopicFiles("away", "x", lambda: AwayLog(open_log(nameserver, timeout_s=10)), pauses_s.append)  # type: ignore[arg-type, return-value]
    files.prepare()
    AwayLog.left = 3
    files.write("a", b"1")
    AwayLog.left = 3
    assert files.sizes() == {"a": 1}
    files.close()
    assert len(pauses_s) == 6
