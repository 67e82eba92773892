"""The check of the layout finds each thing that breaks a rule, and lets its exceptions pass."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "tools" / "check_layout.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_layout", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def findings(
    tool: ModuleType, root: Path, files: Mapping[str, str], exceptions: Mapping[str, Sequence[str]] | None = None
) -> dict[str, list[str]]:
    """What breaks rules in a package `millstream` of those files, without the rules that hold."""
    root = root / "millstream"
    for name, text in {"__init__.py": "", **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in (file.parent, *file.parent.parents):
            if folder.is_relative_to(root):
                (folder / "__init__.py").touch()
        file.write_text(text)
    return {rule: lines for rule, lines in tool.Layout(root, exceptions or {}).findings().items() if lines}


def test_a_tidy_tree_breaks_no_rule(tool: ModuleType, tmp_path: Path) -> None:
    files = {"a.py": "from millstream import b\n\ndef read(): ...\n", "b.py": "class B: ...\n"}
    assert findings(tool, tmp_path, files) == {}


def test_a_folder_of_31_modules_is_too_large(tool: ModuleType, tmp_path: Path) -> None:
    files = {f"x/m{number}.py": "" for number in range(31)} | {f"y/m{number}.py": "" for number in range(30)}
    assert findings(tool, tmp_path, files) == {"large folders": ["millstream.x: 31 files"]}


@pytest.mark.parametrize(
    ("back", "rule"),
    [
        ("import millstream.a\n", "import circles"),
        ("def f():\n    from millstream.a import x\n", "import circles by imports in functions"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from millstream.a import x\n",
            "import circles by TYPE_CHECKING",
        ),
    ],
)
def test_a_circle_is_counted_by_what_closes_it(tool: ModuleType, tmp_path: Path, back: str, rule: str) -> None:
    files = {"a.py": "from millstream.b import y\n", "b.py": "from millstream import c\n", "c.py": back}
    assert findings(tool, tmp_path, files) == {rule: ["millstream.a: millstream.b millstream.c"]}


def test_packages_of_the_engine_that_import_each_other_are_found_at_every_depth(
    tool: ModuleType, tmp_path: Path
) -> None:
    files = {
        "streams/sql/a.py": "import millstream.streams.plan.b\n",
        "streams/sql/c.py": "",
        "streams/plan/b.py": "",
        "streams/plan/d.py": "import millstream.streams.sql.c\n",
        "streams/spark/x/a.py": "import millstream.streams.spark.y.b\n",
        "streams/spark/x/c.py": "",
        "streams/spark/y/b.py": "",
        "streams/spark/y/d.py": "import millstream.streams.spark.x.c\n",
        "store/a.py": "import millstream.model.b\n",
        "store/c.py": "",
        "model/b.py": "",
        "model/d.py": "import millstream.store.c\n",
    }
    assert findings(tool, tmp_path, files) == {
        "mutual packages": [
            "millstream.streams.plan <-> millstream.streams.sql: 1/1 imports",
            "millstream.streams.spark.x <-> millstream.streams.spark.y: 1/1 imports",
        ]
    }


def test_a_public_class_name_stands_once(tool: ModuleType, tmp_path: Path) -> None:
    files = {"a.py": "class Turn: ...\nclass _Own: ...\n", "b.py": "class Turn: ...\nclass _Own: ...\n"}
    assert findings(tool, tmp_path, files) == {"double class names": ["Turn: millstream.a millstream.b"]}


def test_a_function_named_by_a_participle_alone_is_found_and_a_property_is_none(
    tool: ModuleType, tmp_path: Path
) -> None:
    text = (
        "def joined(): ...\ndef joined_rows(): ...\nclass C:\n    def _told(self): ...\n    @property\n"
        "    def closed(self): ...\n"
    )
    found = findings(tool, tmp_path, {"a.py": text}, {"irregular-participles": ["told"]})
    assert found == {"bare participles": ["joined: millstream.a:1 joined", "told: millstream.a:4 _told"]}


def test_what_the_exceptions_name_is_let_pass(tool: ModuleType, tmp_path: Path) -> None:
    files = {"a.py": "import millstream.b\nclass Turn: ...\n", "b.py": "import millstream.a\nclass Turn: ...\n"}
    files["c.py"] = "def feed(): ...\n"
    exceptions = {"import-circles": ["millstream.a"], "double-class-names": ["Turn"], "bare-participles": ["feed"]}
    assert findings(tool, tmp_path, files, exceptions) == {}
