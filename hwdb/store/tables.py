"""The tables as the migrations leave them. What each is for stands in migrations/."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, Table, Text

metadata = MetaData()


def _table(name: str, text: str = "", whole: str = "", binary: str = "") -> Table:
    kinds = (Text, text), (BigInteger, whole), (LargeBinary, binary)
    columns = [Column(column, kind, nullable=False) for kind, names in kinds for column in names.split()]
    return Table(name, metadata, *columns)


calibration = _table("calibration", "tenant sku id content_sha256 who", "at size_bytes deleted_at")
calibration_file = _table("calibration_file", "tenant sku id path", binary="content")
upload_file = _table("upload_file", "tenant content_sha256 path sha256 who", "size_bytes received_bytes at")
upload_piece = _table("upload_piece", "tenant content_sha256 path", "offset_bytes", "content")
active = _table("active", "tenant sku id")
audit = _table("audit", "tenant who action sku id before reason", "number at")
revision = _table("revision", whole="number")
