"""`millstream config`: the settings of the roles."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from millstream.cli.options import ExitCode, OutputFormat
from millstream.cli.printer import Printer, print_usage

__all__ = ["check", "reference"]

Role = Literal["nameserver", "controller", "broker", "proxy"]


def reference(role: Role | None = None) -> int:
    """Print a configuration file with every setting, what it means and its default.

    Parameters
    ----------
    role
        Of this role alone; default: of all, one after the other.
    """
    from millstream.server.configuration.reference import reference_text
    from millstream.server.configuration.roles import ROLES

    print("\n".join(reference_text(one) for one in ([role] if role else ROLES)), end="")
    return ExitCode.DONE


def check(file: Path, *, role: Role | None = None, output: OutputFormat | None = None) -> int:
    """Say whether a configuration file can be used, without starting anything.

    Parameters
    ----------
    file
        The file, in TOML.
    role
        The role that it is for, if the file does not name it itself (role = "broker").
    """
    from millstream.server.configuration.document import configuration_of, read_document, role_of
    from millstream.server.configuration.roles import ROLES, BrokerConfiguration
    from millstream.server.tiered_settings import catalog_of, place_of

    document = read_document(file)
    found = role or role_of(document, str(file))
    if found is None:
        return print_usage(f'{file} does not say which role it is for: put role = "broker" into it, or name --role.')
    configuration: object = configuration_of(ROLES[found], document, str(file))
    if isinstance(configuration, BrokerConfiguration):
        place_of(configuration)
        catalog_of(configuration)
    Printer(output).record(
        {"file": str(file), "role": found, "legal": True}, sentence=f"{file} can be used to start a {found}"
    )
    if not document:
        print("It is empty: every setting has its default.", file=sys.stderr)
    return ExitCode.DONE
