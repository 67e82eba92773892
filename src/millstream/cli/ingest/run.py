"""`millstream ingest run`: several inputs in one process, by a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from millstream.cli.ingest.inputs import ingest_file, ingest_http, ingest_syslog
from millstream.cli.ingest.shared import MAX_STOP_S, IngestOptions, collecting, run_gateway
from millstream.cli.options import CommonOptions
from millstream.model.errors import StartRefused

if TYPE_CHECKING:
    from millstream.ingest.gateway import InputPlan

__all__ = ["MAX_INPUTS", "ingest_run"]

MAX_INPUTS: Final = 64
"""Inputs of one file at most."""

_KINDS: Final[Mapping[str, Callable[..., int]]] = {"file": ingest_file, "syslog": ingest_syslog, "http": ingest_http}
_OF_THE_PROCESS: Final = frozenset(
    "stop-after metrics-host metrics-port nameserver profile output access-key secret-key tls-ca timeout".split()
)
"""Options that an input cannot have of its own."""


def ingest_run(
    configuration: Path,
    /,
    *,
    stop_after: Annotated[float, Parameter(validator=Number(gte=0, lte=MAX_STOP_S))] = 10.0,
    metrics_host: str = "127.0.0.1",
    metrics_port: int | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Run the inputs of a file in TOML until Ctrl-C, each a table [[input]] with its kind, its topic and its options.

    Example: millstream ingest run ingest.toml --metrics-port 9404.

    Parameters
    ----------
    configuration
        The file. kind is file, syslog or http; path names the files; all other names are those of the options of
        millstream ingest KIND, as in key-field = "user.id". name distinguishes inputs of one kind.
    stop_after
        Seconds that a stop waits for the broker to acknowledge what waits.
    metrics_host
        Address of the pages.
    metrics_port
        Port of the pages /metrics and /healthz; 0 takes a free one. Default: no pages.
    """
    from millstream.server.configuration.document import read_document

    inputs = _inputs(read_document(configuration), str(configuration))
    given = IngestOptions(stop_after=stop_after, metrics_host=metrics_host, metrics_port=metrics_port)
    # SIGHUP has certificates read again where an input has one.
    return run_gateway(inputs, given, common, has_tls=True)


def _inputs(document: Mapping[str, Any], origin: str) -> list[InputPlan]:
    others = [name for name in document if name != "input"]
    if others:
        raise StartRefused("UNKNOWN_SETTING", f"{origin}: there is no {others[0][:80]!r}; inputs are tables [[input]].")
    tables = document.get("input", [])
    if not isinstance(tables, list) or not 1 <= len(tables) <= MAX_INPUTS:
        raise StartRefused("ILLEGAL_SETTING", f"{origin}: it needs 1 to {MAX_INPUTS} tables [[input]].")
    plans = [_input(table, f"{origin}: input {number}") for number, table in enumerate(tables, 1)]
    names = [plan.name for plan in plans]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        words = f"{origin}: two inputs are named {twice}; give each a name of its own, as in name = {twice + '-2'!r}."
        raise StartRefused("ILLEGAL_SETTING", words, remedy="")
    return plans


def _input(table: Any, where: str) -> InputPlan:
    if not isinstance(table, dict):
        raise StartRefused("ILLEGAL_SETTING", f"{where} is no table [[input]].")
    options = dict(table)
    kind, topic = options.pop("kind", None), options.pop("topic", None)
    name, path = options.pop("name", kind), options.pop("path", [])
    if kind not in _KINDS:
        raise StartRefused("ILLEGAL_SETTING", f"{where}: kind is {kind!r:.80}; it is to be {', '.join(_KINDS)}.")
    if not isinstance(topic, str) or not isinstance(name, str):
        raise StartRefused("ILLEGAL_SETTING", f"{where} needs a topic, and its name is a text.")
    words = [topic, *map(str, path if isinstance(path, list) else [path])]
    for option, value in options.items():
        words += _words(option, value, where)
    return replace(_make_plan(kind, words, where), name=name)


def _words(option: str, value: Any, where: str) -> list[str]:
    """The option as the command line has it."""
    if option in _OF_THE_PROCESS:
        raise StartRefused("UNKNOWN_SETTING", f"{where}: {option} is of the whole process: --{option}.", remedy="")
    if isinstance(value, bool):
        return [f"--{option}"] if value else []
    if isinstance(value, str | int | float):
        return [f"--{option}={value}"]
    raise StartRefused("ILLEGAL_SETTING", f"{where}: {option} is a {type(value).__name__}, not a text or number.")


def _make_plan(kind: str, words: list[str], where: str) -> InputPlan:
    command = App(default_command=_KINDS[kind], result_action="return_value", help_flags=[], version_flags=[])
    with collecting() as plans:
        try:
            command(words, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            raise StartRefused("ILLEGAL_SETTING", f"{where}: {' '.join(str(error).split())}", remedy="") from None
    if not plans:
        # The command has said why.
        raise StartRefused("ILLEGAL_SETTING", f"{where} cannot be used.", remedy="Correct what is said above.")
    return plans[0]
