"""The command itself: help, errors and exit codes without a server."""

import json
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import run

from millstream.cli.main import EXTRA_OF, main
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


def test_help_lists_the_commands_of_the_contract() -> None:
    shown = run("--help")
    assert shown.code == 0
    for command in ("quickstart", "topic", "group", "produce", "consume", "sql"):
        assert command in shown.out
    assert "Show messages as they come." in shown.out


def test_a_group_of_commands_says_what_each_of_them_does() -> None:
    assert "Create a topic." in run("topic").out


def test_help_shows_examples_as_they_are_to_be_typed() -> None:
    shown = run("ingest", "file", "--help").out
    assert 'millstream ingest file logs "/var/log/app/*.log" --bulk;' in shown
    assert "patterns with *, ?, [] and **" in shown


def test_a_mistyped_command_is_a_usage_error_with_the_nearest_one() -> None:
    wrong = run("topic", "creat", "x")
    assert wrong.code == 2
    assert "create" in wrong.err


def test_a_server_that_is_not_there_is_unreachable_with_the_remedy() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        gone = run("topic", "list", "--nameserver", address)
    assert gone.code == 3
    assert address in gone.err
    assert "millstream quickstart" in gone.err
    assert "Traceback" not in gone.err


def test_a_server_that_does_not_answer_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        late = run("topic", "list", "--nameserver", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.3")
    assert late.code == 4
    assert "MS-5002" in late.err


def test_the_nameserver_is_found_by_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ServerProcess(tmp_path / "data") as server:
        monkeypatch.setenv("MILLSTREAM_NAMESERVER", server.addresses.nameserver)
        assert run("topic", "list").code == 0


def test_a_warning_of_a_command_is_one_line_in_words() -> None:
    command = "from millstream.cli.main import main; main(['error', 'explain', 'MS-2101'])"
    program = f"import logging; {command}; logging.warning('Beware.')"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stderr == "warning: Beware.\n"


def test_errors_are_explained_by_number() -> None:
    explained = run("error", "explain", "MS-2101")
    assert explained.code == 0
    assert "topic create" in explained.out
    assert run("error", "explain", "9999").code == 1


CORE_ALONE = """
import sys
for module in {modules!r}:
    sys.modules[module] = None
from millstream.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Runs a command as if the packages of all extras were missing."""


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("sql -e x", "streams"),
        ("job run {here}/job.py", "streams"),
        ("rules import {here}/rules.yml --store {here}/rules", "streams"),
        ("rules explain --store {here}/rules", "streams"),
        ("ingest file t {here}/job.py --bulk --once", "bulk"),
    ],
)
def test_a_command_that_needs_an_extra_names_it_in_one_line(tmp_path: Path, words: str, extra: str) -> None:
    (tmp_path / "job.py").write_text("")
    (tmp_path / "rules.yml").write_text("title: x")
    command = [sys.executable, "-c", CORE_ALONE.format(modules=tuple(EXTRA_OF)), *words.format(here=tmp_path).split()]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert f'pip install "millstream[{extra}]"' in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_the_doctor_looks_at_servers_without_the_stream_engine() -> None:
    command = [
        sys.executable,
        "-c",
        CORE_ALONE.format(modules=tuple(EXTRA_OF)),
        "doctor",
        "--nameserver",
        "127.0.0.1:1",
    ]
    said = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=60)
    found = {one["check"]: one for one in json.loads(said.stdout)}
    assert found["nameserver 127.0.0.1:1"]["state"] == "problem"
    assert found["stream engine"]["finding"] == "is not installed"
    assert "millstream[streams]" in found["stream engine"]["remedy"]


def test_every_package_of_an_extra_has_the_extra_that_brings_it() -> None:
    project = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    modules = {"pyyaml": "yaml", "pysigma": "sigma", "scikit-learn": "sklearn"}
    for extra in sorted(set(EXTRA_OF.values())):
        for requirement in extras[extra]:
            package = re.split(r"[^\w-]", requirement)[0].lower()
            if package != "millstream":
                assert EXTRA_OF[modules.get(package, package)] == extra


def test_the_core_starts_without_spark_and_arrow() -> None:
    script = (
        "import sys; import millstream.cli.main, millstream.server.all_in_one; "
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy', 'urllib3') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("quickstart", "--grpc-port", "-1"), "-1 is no port"),
        (("quickstart", "--remoting-port", "70000"), "70000 is no port"),
        (("quickstart", "--nameserver-port", "65536"), "65536 is no port"),
        (("quickstart", "--metrics-port", "65536"), "65536 is no port"),
        (("topic", "list", "--nameserver", "here"), "'here' is no address"),
        (("topic", "list", "--timeout", "nan"), "nan"),
        (("topic", "list", "--timeout", "0"), "Must be > 0"),
    ],
)
def test_values_out_of_their_range_are_usage_errors(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(arguments)) == 2
    told = capsys.readouterr()
    assert said in " ".join((told.out + told.err).replace("│", " ").split())


def test_a_filter_that_no_tag_can_pass_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["consume", "orders", "--filter", "new|paid"]) == 1
    assert "Join tags by ||" in capsys.readouterr().err
