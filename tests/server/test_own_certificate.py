"""The certificate that a server makes for itself: kept, made anew in time, and never half."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from certificates import needs_openssl
from millstream.model.clock import ManualClock
from millstream.model.errors import StartRefused
from millstream.security.tls import ServerIdentity, TlsFiles, TlsMode
from millstream.server.certificate import (
    LIFETIME_DAYS,
    RENEWAL_DAYS,
    OwnCertificate,
    own_certificate,
    read_own_certificate,
)
from millstream.server.site import Site

pytestmark = needs_openssl

DAY_S = 86_400


def made_in(directory: Path, *hosts: str, days_later: int = 0) -> TlsFiles:
    """As at a start so many days after the first certificate was made."""
    known = read_own_certificate(directory / "tls" / "certificate.pem")
    made_s = 0 if known is None else known.end_s - LIFETIME_DAYS * DAY_S
    return own_certificate(directory, hosts, made_s + days_later * DAY_S)


def said(files: TlsFiles) -> OwnCertificate:
    found = read_own_certificate(files.certificate)
    assert found is not None
    return found


def test_it_is_used_again_until_thirty_days_before_its_end(tmp_path: Path) -> None:
    first = made_in(tmp_path, "127.0.0.1").certificate.read_bytes()
    kept = made_in(tmp_path, "127.0.0.1", days_later=LIFETIME_DAYS - RENEWAL_DAYS - 1)
    assert kept.certificate.read_bytes() == first


def test_within_thirty_days_of_its_end_it_is_made_anew_with_the_same_key(tmp_path: Path) -> None:
    files = made_in(tmp_path, "127.0.0.1")
    certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
    made_in(tmp_path, "127.0.0.1", days_later=LIFETIME_DAYS - RENEWAL_DAYS)
    assert files.certificate.read_bytes() != certificate
    assert files.key.read_bytes() == key
    ServerIdentity(files)


def test_it_is_for_the_hosts_of_this_start_and_of_those_before(tmp_path: Path) -> None:
    made_in(tmp_path, "127.0.0.1")
    files = made_in(tmp_path, "broker.example", "2001:0db8::0001")
    wanted = {"127.0.0.1", "::1", "localhost", "broker.example", "2001:db8::1"}
    assert said(files).hosts == wanted
    kept = files.certificate.read_bytes()
    assert made_in(tmp_path, "127.0.0.1").certificate.read_bytes() == kept


def test_the_key_is_its_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    files = made_in(tmp_path, "127.0.0.1")
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert sorted(file.name for file in files.key.parent.iterdir()) == ["certificate.pem", "key.pem"]


def test_a_start_that_was_cut_off_behind_the_key_is_made_good_by_the_next(tmp_path: Path) -> None:
    files = made_in(tmp_path, "127.0.0.1")
    files.certificate.unlink()
    ServerIdentity(made_in(tmp_path, "127.0.0.1"))


def test_a_certificate_of_another_maker_in_its_place_is_left_as_it_is(tmp_path: Path) -> None:
    files = made_in(tmp_path, "127.0.0.1")
    files.certificate.write_text("not one of ours")
    assert made_in(tmp_path, "elsewhere.example").certificate.read_text() == "not one of ours"


def test_a_damaged_certificate_leaves_a_default_start_its_plaintext(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made_in(tmp_path, "127.0.0.1").certificate.write_text("not one of ours")
    site = Site(tls=TlsMode.AUTO)
    site.open_tls(tmp_path)
    assert site.identity is None
    assert "MS-1010" in caplog.text
    with pytest.raises(StartRefused, match="MS-1010"):
        Site(tls=TlsMode.PERMISSIVE).open_tls(tmp_path)


def test_a_server_that_runs_for_long_renews_it_for_new_connections(tmp_path: Path) -> None:
    end_s = said(made_in(tmp_path, "127.0.0.1")).end_s
    clock = ManualClock((end_s - LIFETIME_DAYS * DAY_S) * 1000)
    site = Site(tls=TlsMode.AUTO, clock=clock)
    site.open_tls(tmp_path)
    assert site.identity is not None
    identity = site.identity[0]
    for days, version in ((1, 0), (LIFETIME_DAYS - RENEWAL_DAYS - 2, 0), (1, 1)):
        clock.advance_ms(days * DAY_S * 1000)
        site.renew_certificate()
        assert identity.version == version


def test_a_named_certificate_is_never_renewed(tmp_path: Path) -> None:
    files = made_in(tmp_path, "127.0.0.1")
    kept, end_s = files.certificate.read_bytes(), said(files).end_s
    site = Site(tls=TlsMode.AUTO, tls_files=files, clock=ManualClock(end_s * 1000))
    site.open_tls(tmp_path)
    site.renew_certificate()
    site.reload_certificate()
    assert files.certificate.read_bytes() == kept
