"""`millstream job run`: which files it takes, and what it says of those that it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Ran, run

pytestmark = pytest.mark.process


BUILDER = """
from millstream.streams.sdk import StreamBuilder

builder = StreamBuilder("made")
builder.source("events", schema={"host": str}).filter("host <> ''").print("shown")
"""
PLAN = ["Sink print_1 (print)", "Project [host]", "Filter <>(host, '')"]


def job(tmp_path: Path, text: str, *arguments: str, name: str = "made.py") -> Ran:
    file = tmp_path / name
    file.write_text(text)
    return run("job", "run", str(file), *arguments)


def test_a_builder_of_a_program_is_its_job(tmp_path: Path) -> None:
    shown = job(tmp_path, BUILDER, "--explain")
    assert shown.code == 0
    assert [line.strip() for line in shown.out.splitlines() if any(part in line for part in PLAN)] == PLAN


def test_main_may_give_the_builder(tmp_path: Path) -> None:
    text = (
        "def main():\n" + "\n".join(f"    {line}" for line in BUILDER.strip().splitlines()) + "\n    return builder\n"
    )
    shown = job(tmp_path, text, "--explain")
    assert shown.code == 0
    assert "Sink print_1 (print)" in shown.out


def test_main_may_run_by_itself(tmp_path: Path) -> None:
    done = job(tmp_path, "def main():\n    print('done')\n")
    assert (done.code, done.out) == (0, "done\n")


def test_a_program_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("HOST = 'a'\n")
    text = "import beside_it\n" + BUILDER.replace("''", "'{beside_it.HOST}'").replace('"host <>', 'f"host <>')
    shown = job(tmp_path, text, "--explain")
    assert shown.code == 0
    assert "Filter <>(host, 'a')" in shown.out


def test_a_script_of_sql_is_a_job(tmp_path: Path) -> None:
    shown = job(tmp_path, "SELECT 1 AS one;", "--explain", name="made.sql")
    assert shown.code == 0
    assert "Values" in shown.out


def test_a_setting_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "is no setting" in job(tmp_path, BUILDER, "--set", "x").err
    refused = job(tmp_path, BUILDER, "--set", "table.exec.state.tll=1 h")
    assert refused.code == 1
    assert "table.exec.state.ttl" in refused.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "has no StreamBuilder, and no main() that gives one"),
        ("def main():\n    return 3\n", "has no StreamBuilder"),
        (BUILDER.replace('.print("shown")', ""), "has no output"),
        (BUILDER.replace("host <>", "hots <>"), 'Did you mean "host"?'),
    ],
)
def test_a_program_without_a_job_is_told(tmp_path: Path, text: str, words: str) -> None:
    refused = job(tmp_path, text)
    assert refused.code == 1
    assert words in refused.err
    assert "Traceback" not in refused.err


def test_what_a_program_raises_is_told_with_its_lines(tmp_path: Path) -> None:
    refused = job(tmp_path, "def inner():\n    return 1 / 0\n\n\ndef main():\n    inner()\n")
    assert refused.code == 1
    assert "ZeroDivisionError: division by zero" in refused.err
    assert refused.err.startswith(f"error: {tmp_path / 'made.py'}, line 2: ZeroDivisionError: division by zero")
    assert f"{tmp_path / 'made.py'}, line 6, in main: inner()" in refused.err
    assert "return 1 / 0" in refused.err
    assert "importlib" not in refused.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ndef main(:\n    pass\n", "line 2: SyntaxError: invalid syntax"),
        ("def main():\n    import nothing_of_this_name\n", "line 2: ModuleNotFoundError: No module named"),
        (
            "from millstream.streams.sdk import StreamBuilder\nbuilder = StreamBuilder('a')\nbuilder.sql('SELEC 1')\n",
            "line 3: No statement begins with 'SELEC'",
        ),
        ("import sys\nsys.exit('enough')\n", "enough"),
    ],
)
def test_an_error_of_a_program_has_its_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    refused = job(tmp_path, text)
    assert refused.code == 1
    assert words in refused.err
    assert "Traceback" not in refused.err


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert job(tmp_path, "", name="made.txt").code == 2
    missing = run("job", "run", str(tmp_path / "none.py"))
    assert missing.code == 1
    assert "There is no file" in missing.err
