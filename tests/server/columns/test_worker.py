"""What the process that copies answers where it cannot do what it is told."""

from __future__ import annotations

import sys

import pytest
from crash.faulty_objects import FaultyObjects, ObjectFault

from millstream.model.errors import StartRefused
from millstream.server.columns.catalog import checked_catalog
from millstream.server.columns.orders import CheckColumns, CopyMessages, Done, DropTable, OrderRefused
from millstream.server.columns.worker import ColumnWorker
from millstream.tiered.columns.column_work import CopyPart, CopyRequest


@pytest.mark.parametrize(
    ("package", "order"),
    [
        ("pyiceberg.catalog.sql", DropTable("c", "t")),
        ("pyarrow", CheckColumns("id INT", "json", "")),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, package: str, order: DropTable | CheckColumns
) -> None:
    needing = ("millstream.server.columns.declaration", "millstream.tiered.columns.iceberg_tables")
    for name in needing:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    answer = ColumnWorker(FaultyObjects, "file:///nowhere", "sqlite://").obey(order)
    assert isinstance(answer, OrderRefused)
    assert answer.name == "EXTRA_MISSING"
    assert "millstream[columns]" in (answer.remedy or "")


def test_what_the_store_refuses_is_told_by_its_name_and_the_next_order_is_obeyed() -> None:
    objects = FaultyObjects()
    objects.plan.append(ObjectFault.DENIED)
    worker = ColumnWorker(lambda: objects, "file:///nowhere")
    request = CopyRequest("t", "b", "id INT", "json", "columns/c/t/1.parquet", [CopyPart(0, 0, 1, "ms1/c/b/x", 100)])
    answer = worker.obey(CopyMessages(request))
    assert isinstance(answer, OrderRefused)
    assert answer.name == "OBJECT_STORE_DENIED"
    assert worker.obey(CheckColumns("id INT", "json", "")) == Done()


@pytest.mark.parametrize("catalog", ["tables.db", "postgresql://me:secret@host/tables", "http://[", "sqlite:/x"])
def test_a_catalogue_that_is_no_address_or_holds_a_password_is_refused(catalog: str) -> None:
    with pytest.raises(StartRefused) as refused:
        checked_catalog(catalog)
    assert refused.value.name == "ILLEGAL_SETTING"
    assert "secret" not in refused.value.message


def test_a_catalogue_may_be_missing_and_may_be_one_of_a_database() -> None:
    for catalog in ("", "sqlite:////var/lib/tables.db", "postgresql+psycopg://me@host/tables"):
        assert checked_catalog(catalog) == catalog
