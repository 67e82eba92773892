"""State of a broker: documents and the changes behind them in the log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.state.broker_state import BrokerState
from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_log import MAX_RECORD_BYTES, STATE_TOPIC, StateChange, StateLog
from millstream.broker.state.state_table import StateTable
from millstream.model.errors import StoreError
from millstream.model.message import Address
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.snapshot import Snapshot

HOST = Address("127.0.0.1", 10911)


class Colours(Document):
    colours: dict[str, int]


class Palette:
    """A registry as brokers have them: what is written first is in memory afterwards."""

    def __init__(self, snapshot: Snapshot, kind: str = "colour") -> None:
        self.colours: dict[str, int] = {}
        self.table = StateTable(kind, SavedDocument(snapshot, Colours, noun="colours", version=1), int, self)

    def put(self, name: str, value: int | None) -> None:
        self.table.write(name, value)
        self.apply_change(name, value)

    def make_document(self) -> Colours:
        return Colours(version=1, colours=self.colours)

    def load_document(self, document: Colours) -> None:
        self.colours = dict(document.colours)

    def apply_change(self, key: str, value: int | None) -> None:
        if value is None:
            self.colours.pop(key, None)
        else:
            self.colours[key] = value


class Run:
    """One run of a broker over a directory, as far as its state goes."""

    def __init__(self, directory: Path, options: StoreOptions | None = None) -> None:
        self.directory = directory
        self.store = MessageStore.open(directory / "store", options)
        self.palette = Palette(Snapshot(directory / "colours.json"))
        self.state = BrokerState(Snapshot(directory / "state.json"))
        self.state.add(self.palette.table)
        self.log = StateLog(self.store, HOST)
        self.state.load(self.log)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[Run]]:
    made: list[Run] = []
    yield made
    for run in made:
        run.store.close()


def again(runs: list[Run], run: Run) -> Run:
    run.store.close()
    runs.remove(run)
    runs.append(Run(run.directory))
    return runs[-1]


def test_a_change_is_there_after_a_restart_without_any_save(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(first := Run(tmp_path))
    first.palette.put("red", 1)
    first.palette.put("blue", 2)
    first.palette.put("red", None)
    assert again(runs, first).palette.colours == {"blue": 2}


def test_a_start_reads_only_changes_behind_the_documents(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(first := Run(tmp_path))
    first.palette.put("red", 1)
    first.state.save()
    first.palette.put("blue", 2)
    second = again(runs, first)
    assert second.state.saved_offset == 1
    assert second.palette.colours == {"red": 1, "blue": 2}


def test_no_document_holds_what_is_not_confirmed(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(run := Run(tmp_path, StoreOptions(replicated=True)))
    run.palette.put("red", 1)
    run.state.save()
    assert not (tmp_path / "colours.json").exists()
    run.store.confirm(run.store.written_log_offset)
    run.state.save()
    assert run.state.saved_offset == 1
    assert (tmp_path / "colours.json").exists()


def test_a_lost_mark_costs_a_longer_start_alone(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(first := Run(tmp_path))
    first.palette.put("red", 1)
    first.palette.put("red", 2)
    first.state.save()
    for path in tmp_path.glob("state.json*"):
        path.write_bytes(b"damaged")
    assert again(runs, first).palette.colours == {"red": 2}


def test_a_mark_beyond_the_log_hides_no_later_change(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(first := Run(tmp_path))
    for number in range(5):
        first.palette.put("red", number)
    first.state.save()
    marks = {path: path.read_bytes() for path in tmp_path.glob("state.json*")}
    first.store.close()
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "colours.json").unlink()
    (tmp_path / "colours.json.bak").unlink()
    for path, mark in marks.items():
        path.write_bytes(mark)
    runs.remove(first)
    runs.append(first := Run(tmp_path))
    second = again(runs, first)
    second.palette.put("red", 1)
    third = again(runs, second)
    assert third.palette.colours == {"red": 1}


def test_a_kind_of_a_later_version_refuses_the_start(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(first := Run(tmp_path))
    first.log.append([StateChange("smell", "rose", msgspec.Raw(b"1"))])
    first.store.close()
    runs.clear()
    with pytest.raises(StoreError, match="kind 'smell'"):
        Run(tmp_path)


def test_many_changes_are_parted_and_stay_in_order(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(run := Run(tmp_path))
    values = [(f"c{number % 7}", number) for number in range(40_000)]
    run.palette.table.write_all(values)
    assert run.store.max_offset(STATE_TOPIC, 0) > 1
    for entry in run.store.entries(STATE_TOPIC, 0, 0, 1000):
        assert entry.size_bytes < 2 * MAX_RECORD_BYTES
    assert again(runs, run).palette.colours == dict(values)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("save"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    max_size=25,
)


@given(steps=STEPS)
def test_state_is_what_was_written_over_any_saves_and_restarts(
    steps: list[tuple[str, str | None, int | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs = [Run(tmp_path_factory.mktemp("state"))]
    model: dict[str, int] = {}
    for step, key, value in steps:
        if step == "put" and key is not None:
            runs[0].palette.put(key, value)
            model.pop(key, None)
            if value is not None:
                model[key] = value
        elif step == "save":
            runs[0].state.save()
        else:
            again(runs, runs[0])
        assert runs[0].palette.colours == model
    runs[0].store.close()
