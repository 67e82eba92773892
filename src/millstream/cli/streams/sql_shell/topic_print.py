"""PRINT: the messages of a topic in the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.cli.messages.consume import MessageView
from millstream.cli.messages.moment import EARLIEST, LATEST, OffsetSpec
from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions
from millstream.cli.printer import Printer
from millstream.cli.streams.sql_shell.interrupts import Interrupts
from millstream.model.filter import ALL

if TYPE_CHECKING:
    from millstream.streams.sql.session.compiler import PrintCommand

__all__ = ["print_topic"]


def print_topic(command: PrintCommand, common: CommonOptions, interrupts: Interrupts) -> None:
    """Show messages as they come until the limit or Ctrl-C; nothing is committed. Raises TOPIC_NOT_FOUND."""
    with cluster(common) as client:
        stopped = interrupts.stopped.is_set
        view = MessageView(client, None, ALL, Printer(common.output), command.limit, None, is_stopped=stopped)
        view.open(command.topic, OffsetSpec.of(EARLIEST if command.from_beginning else LATEST))
        view.run(until_end=False)
