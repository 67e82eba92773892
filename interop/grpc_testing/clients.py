"""The commands of gRPC's interop test clients, in pinned versions."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

from interop.driver import HEAP_MB, install, require
from millstream.security.tls import TlsFiles

__all__ = ["GO_MODULE", "JAVA_VERSION", "go_client", "grpc_certificates", "java_client"]

GO_MODULE: Final = "google.golang.org/grpc/interop/client@v1.79.0"
JAVA_VERSION: Final = "1.79.0"
"""That of java/pom.xml."""

_FOLDER: Final = Path(__file__).parent / "java"
_LIBRARIES: Final = _FOLDER / "target" / "lib"


def go_client(folder: Path) -> list[str]:
    """grpc-go's client, built into the folder from Go's module proxy; raises Missing."""
    require("go")
    install(["env", f"GOBIN={folder}", "go", "install", GO_MODULE], folder)
    return [str(folder / "client")]


def java_client() -> list[str]:
    """grpc-java's client, its libraries from Maven; raises Missing."""
    require("java", "mvn")
    if not _LIBRARIES.exists():
        install(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], _FOLDER)
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    main = "io.grpc.testing.integration.TestServiceClient"
    return ["java", f"-Xmx{HEAP_MB}m", *quick, "-cp", f"{_LIBRARIES}/*", main]


def grpc_certificates(folder: Path) -> TlsFiles:
    """The certificate and key of `foo.test.google.fr` that grpc-java's client trusts with `--use_test_ca`."""
    with zipfile.ZipFile(_LIBRARIES / f"grpc-testing-{JAVA_VERSION}.jar") as jar:
        for name in ("server1.pem", "server1.key"):
            (folder / name).write_bytes(jar.read(f"certs/{name}"))
    return TlsFiles(folder / "server1.pem", folder / "server1.key")
