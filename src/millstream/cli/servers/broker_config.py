"""`millstream broker config`: a running broker's settings, under RocketMQ's names."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, print_usage
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations

__all__ = ["get", "put"]


def get(name: str, *, setting: str | None = None, common: CommonOptions = CommonOptions()) -> int:
    """Show a broker's settings.

    Parameters
    ----------
    name
        The broker's name.
    setting
        This one alone.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        settings = client.run(ClusterOperations(client.conversations).settings(name))
    rows = [(key, value) for key, value in sorted(settings.items()) if setting in (None, key)]
    Printer(common.output).listing(("setting", "value"), rows, empty=f"The broker {name} has no such setting.")
    return ExitCode.DONE


def put(
    name: str, *settings: Annotated[str, Parameter(allow_leading_hyphen=False)], common: CommonOptions = CommonOptions()
) -> int:
    """Change settings of a running broker; they hold until it stops.

    Parameters
    ----------
    name
        The broker's name.
    settings
        Each as setting=value.
    """
    pairs = dict(word.split("=", 1) for word in settings if "=" in word)
    if len(pairs) != len(settings) or not pairs:
        return print_usage("name each setting once, as setting=value.")
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.run(ClusterOperations(client.conversations).put_settings(name, pairs))
    changed = ", ".join(f"{key}={value}" for key, value in pairs.items())
    Printer(common.output).record({"broker": name, **pairs}, sentence=f"broker {name} has {changed}, until it stops")
    return ExitCode.DONE
