"""`millstream group`: create, list and delete consumer groups."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.options import Common, ExitCode
from millstream.cli.printer import Printer
from millstream.client.blocking import BlockingClient
from millstream.model.group import DEFAULT_MAX_ATTEMPTS, MAX_GROUP_ATTEMPTS, GroupConfig

__all__ = ["create", "delete", "list_groups"]


def create(
    name: str,
    *,
    fifo: Annotated[bool, Parameter(negative="")] = False,
    max_attempts: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_GROUP_ATTEMPTS))] = DEFAULT_MAX_ATTEMPTS,
    common: Common = Common(),
) -> int:
    """Create a consumer group.

    Parameters
    ----------
    name
        Letters, digits, _ - % |, at most 120 characters.
    fifo
        Deliver each message only after the one before it in its queue is acknowledged.
    max_attempts
        Deliveries of one message before it goes to the dead-letter topic.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.create_group(GroupConfig(name, fifo=fifo, max_attempts=max_attempts))
    Printer(common.output).record(
        {"group": name, "fifo": fifo, "max_attempts": max_attempts},
        sentence=f"group {name} is there: {'fifo' if fifo else 'concurrent'}, {max_attempts} attempts",
    )
    return ExitCode.DONE


def list_groups(*, common: Common = Common()) -> int:
    """List the consumer groups."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        groups = client.groups()
    rows = [(group.name, group.fifo, group.max_attempts) for group in groups]
    Printer(common.output).listing(("group", "fifo", "max_attempts"), sorted(rows), empty="There are no groups.")
    return ExitCode.DONE


def delete(name: str, *, common: Common = Common()) -> int:
    """Delete a consumer group and its offsets."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.delete_group(name)
    Printer(common.output).record({"group": name, "deleted": True}, sentence=f"group {name} is deleted")
    return ExitCode.DONE
