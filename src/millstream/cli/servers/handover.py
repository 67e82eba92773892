"""`millstream broker handover`: make another replica the master without losing a message or failing a send."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations

__all__ = ["handover"]


def handover(
    name: str,
    *,
    to: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Make another replica of a broker the master, as before the machine of the present one is maintained.

    The master takes no more requests, brings the others level, and has one of them elected; that takes a fraction of a
    second, for which clients try again by themselves.

    Parameters
    ----------
    name
        The broker's name.
    to
        The id of the replica that becomes the master; default: the one that has most of the log.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        found = client.run(ClusterOperations(client.conversations).hand_over(name, to))
    Printer(common.output).record(
        {"broker": name, "master": found.master_id, "address": found.address, "epoch": found.master_epoch},
        sentence=f"the master of {name} is replica {found.master_id} at {found.address}, epoch {found.master_epoch}",
    )
    return ExitCode.DONE
