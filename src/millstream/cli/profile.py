"""`millstream profile`: names for clusters, their addresses and credentials."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

from cyclopts import Parameter

from millstream.cli.options import ExitCode, OutputFormat, check_nameserver, load_profiles
from millstream.cli.printer import Printer, print_usage
from millstream.client.profiles import Profile, Profiles, profiles_path
from millstream.model.errors import StartRefused

__all__ = ["delete", "list_profiles", "put", "use"]

_Output = Annotated[OutputFormat | None, Parameter(name=["--output", "-o"])]


def put(
    name: str,
    *,
    nameserver: Annotated[str | None, Parameter(validator=check_nameserver)] = None,
    grpc: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    tls_ca: str | None = None,
    output: _Output = None,
) -> int:
    """Set a profile, or change the given values. The first one is used if no profile is named.

    Parameters
    ----------
    name
        The profile's name.
    nameserver
        host:port of each nameserver, separated by ;.
    grpc
        host:port of a proxy, for millstream doctor.
    access_key
        Name of the user who signs the requests.
    secret_key
        Its secret; it stands in the file, which only you may read.
    tls_ca
        Use TLS; certificates in PEM that are trusted, or system for the machine's own.
    output
        table, json or plain.
    """
    if not name:
        return print_usage("a profile needs a name.")
    keys = {"access_key": access_key, "secret_key": secret_key, "tls_ca": tls_ca}
    given = {"nameserver": nameserver, "grpc": grpc, **keys}
    profiles = load_profiles()
    before = profiles.profiles.get(name, Profile())
    profile = replace(before, **{key: value for key, value in given.items() if value is not None})
    profiles.profiles[name] = profile
    profiles.default = profiles.default or name
    _save(profiles)
    Printer(output).record(_row_of(name, profile, profiles), sentence=f"profile {name} is set in {profiles_path()}")
    return ExitCode.DONE


def list_profiles(*, output: _Output = None) -> int:
    """List the profiles; secrets are not shown."""
    profiles = load_profiles()
    rows = [tuple(_row_of(name, one, profiles).values()) for name, one in sorted(profiles.profiles.items())]
    columns = ("profile", "default", "nameserver", "grpc", "access_key", "tls_ca")
    Printer(output).listing(columns, rows, empty="There are no profiles. Set one: millstream profile set NAME.")
    return ExitCode.DONE


def use(name: str, *, output: _Output = None) -> int:
    """Use a profile if none is named.

    Parameters
    ----------
    name
        The profile's name.
    output
        table, json or plain.
    """
    profiles = load_profiles()
    profile = profiles.find(name)
    profiles.default = name
    _save(profiles)
    Printer(output).record(_row_of(name, profile, profiles), sentence=f"profile {name} is used where none is named")
    return ExitCode.DONE


def delete(name: str, *, output: _Output = None) -> int:
    """Delete a profile.

    Parameters
    ----------
    name
        The profile's name.
    output
        table, json or plain.
    """
    profiles = load_profiles()
    profiles.find(name)
    del profiles.profiles[name]
    if profiles.default == name:
        profiles.default = ""
    _save(profiles)
    Printer(output).record({"profile": name, "deleted": True}, sentence=f"profile {name} is deleted")
    return ExitCode.DONE


def _row_of(name: str, profile: Profile, profiles: Profiles) -> dict[str, str | bool]:
    values = {key: value for key, value in asdict(profile).items() if key != "secret_key"}
    return {"profile": name, "default": profiles.default == name, **values}


def _save(profiles: Profiles) -> None:
    from millstream.store.files import FileLayer

    path = profiles_path()
    try:
        files = FileLayer()
        files.make_directory(path.parent)
        files.replace(path, profiles.text().encode())
    except OSError as error:
        raise StartRefused("CONFIGURATION_FILE", f"{path} cannot be written: {error.strerror}.", remedy="") from None
