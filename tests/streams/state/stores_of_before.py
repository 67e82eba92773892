"""The files that stores, and jobs that use them, had on disk before they shared one mechanism: today's code reads them.

A writer of that time made them: two versions of rules, a model of two versions and one that was removed, a dimension
table of three loads, and beside a checkpoint what a job had kept of each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["FILES", "NOTES", "write_files"]

NOTES: Final = b"/data/job/pins"
"""Where the job says that its pins are."""

FILES: Final = {
    "job/hits-rules/versions/2.json": (
        b'{"version":2,"rules":[{"id":"a","title":"Title of a","condition":{"type":"Atom","field":"I'
        b'mage","op":"ends","operands":["cmd.exe"],"caseless":true}},{"id":"b","title":"Title of b",'
        b'"condition":{"type":"Atom","field":"Image","op":"ends","operands":["cmd.exe"],"caseless":t'
        b"rue}}]}"
    ),
    "job/models/2c4fad391c6b98e9/batches/0": b"1",
    "job/models/2c4fad391c6b98e9/batches/1": b"2",
    "job/models/2c4fad391c6b98e9/batches/2": b"2",
    "job/models/2c4fad391c6b98e9/versions/1.artefact": (
        b'{"format":"onnx","shown":"fraud (version 1 of fraud)"}\n\x00one\n\xff'
    ),
    "job/models/2c4fad391c6b98e9/versions/2.artefact": (
        b'{"format":"sklearn","shown":"fraud (version 2 of fraud)"}\ntwo'
    ),
    "job/pins/3.pin": b'{"version":2,"id":"b3ade51dd7ac44b0885f6464e9a5822b"}',
    "job/pins/4.pin": b'{"version":3,"id":"efc233d9258143909b38f3813013f8a5"}',
    "models/churn/removed": b"1",
    "models/fraud/1.model": (
        b'MSMODEL 1 218cdf1afafe0090b38cfa15d30afe4e31f833ee23e10bfcae63109b67af911b\n{"version":1,"t'
        b'ime_ms":1795656494867,"format":"onnx","size_bytes":6,"why":"the first"}\n\x00one\n\xff'
    ),
    "models/fraud/2.model": (
        b'MSMODEL 1 c7e515a937f2861838050f6eed18c018f631049730e39325a0a5fa3edfe0b68d\n{"version":2,"t'
        b'ime_ms":1795656494887,"format":"sklearn","size_bytes":3,"why":""}\ntwo'
    ),
    "models/fraud/current": b"MSCURRENT 1\n2 d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35\n",
    "models/lock": b"4321               \n",
    "rules/current": b"MSCURRENT 1\n2 d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35\n",
    "rules/lock": b"4321               \n",
    "rules/versions/1.rules": (
        b'MSRULES 1 a1222634f8b033aad956164e7bac9941394345d86e5680b557076c554eda1d44\n{"version":1,"t'
        b'ime_ms":1795656494803,"rules":1,"enabled":1,"why":"the first"}\n(\xb5/\xfd \x96\xad\x03\x00\xc2G'
        b'\x18\x1api\xd3\x01fMD"\xb2~\x8d\x1eM6\xfa\x8d\x95P`Ij\xe5\x13U\x15\xde\xcd\xd145\xb4\x97;\xd7Uw'
        b"\xd0x\\D\x01)A\x1byZ]Rz\xbe\xb0\xf1\x16N2XU\xc8x\xc2\x9e`I\xbc\x99\xa7\x92\xc2\xd0\xf8)\x10V\x10"
        b"\xce\xbb\x9ez\xe3\xe7<\xa9\x19#w]\x866\x06r\x85)\xd7z\x98\t\x06\x00.1\xbe\xdc\xfa\xca<Q\xa6e\xd5J"
        b"[K\x19"
    ),
    "rules/versions/2.rules": (
        b'MSRULES 1 a614fb04ded3af3108da528e62d0e97691824897e4b2f831512a99d96f34dd88\n{"version":2,"t'
        b'ime_ms":1795656494824,"rules":2,"enabled":2,"why":""}\n(\xb5/\xfd`\x15\x00\xfd\x03\x00\xf2\x07'
        b"\x19\x1b`\x89\xd3\x01\x00chg\x18\x91\xa6\xe2K\xf1\x83\x19\xa4c\x031\xca\x88L\x0c\x00\xe0\xb8\xcf"
        b"\x81 \xf8<5\xb4\x97;\xd7U\x87\x92\xf1\xb8\x88\x02\xd2\x92l$ju\x89\xe9y\xc3\xc6[@\xcb`U)\xe3\x0b{"
        b"\x82&\xf1v\x9eJ\x0cK\xc6Q\xa1\xb0\x82p\xde\xf5\xd4\x1bG\xe7I\xed\x18\xb9\xeb2\xb41\x903L\xb9\xd6"
        b"\xc3N\t\x00\x0e&\x01z\x17\x18w.k|\x91\xf5Ux\xa2B\xcb\xea\x94f\x952"
    ),
    "tables/assets/build.lock": b"",
    "tables/assets/current": b"3",
    "tables/assets/error.json": b'{"time_ms":1795656495115,"words":"The database does not answer."}',
    "tables/assets/pin.lock": b"",
    "tables/assets/pins/job.json": b'{"versions":[2,3],"notes":"/data/job/pins"}',
    "tables/assets/table.json": (
        b'{"name":"assets","connector":"jdbc","place":"jdbc:sqlite:/data/assets.db assets","columns"'
        b':["id","name"],"filters":[],"reload":"","keys":[]}'
    ),
    "tables/assets/versions/1/rows": b"rows",
    "tables/assets/versions/1/version.json": (
        b'{"version":1,"id":"4585d6183f4d43c0b81157cabf35bc40","time_ms":1795656494952,"rows":3,"siz'
        b'e_bytes":4,"load_ms":0,"stamp":"stamp","ends":{"b/0":7},"changed":1,"whole":{"begin_ms":5,'
        b'"end_ms":6}}'
    ),
    "tables/assets/versions/2/rows": b"rows",
    "tables/assets/versions/2/version.json": (
        b'{"version":2,"id":"b3ade51dd7ac44b0885f6464e9a5822b","time_ms":1795656494988,"rows":3,"siz'
        b'e_bytes":4,"load_ms":0,"stamp":"stamp","ends":{"b/0":7},"changed":1,"whole":{"begin_ms":5,'
        b'"end_ms":6}}'
    ),
    "tables/assets/versions/3/rows": b"rows",
    "tables/assets/versions/3/version.json": (
        b'{"version":3,"id":"efc233d9258143909b38f3813013f8a5","time_ms":1795656495064,"rows":3,"siz'
        b'e_bytes":4,"load_ms":0,"stamp":"stamp","ends":{"b/0":7},"changed":1,"whole":{"begin_ms":5,'
        b'"end_ms":6}}'
    ),
}


def write_files(directory: Path) -> None:
    """Put the files below `directory`, in which the job has its notes too."""
    for name, content in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.replace(NOTES, str(directory / "job" / "pins").encode()))
