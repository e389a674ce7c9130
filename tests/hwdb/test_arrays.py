"""The file of a model's arrays: what is written is read, and what is no such file is refused in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tilewise.hwdb.arrays import packed, unpacked
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput

KINDS = ("<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1")
ANY = st.sampled_from(KINDS).flatmap(lambda kind: arrays(kind, array_shapes(min_dims=0, min_side=0)))


@given(st.dictionaries(st.text(max_size=8), ANY, max_size=5))
def test_what_is_written_is_read(given: dict[str, np.ndarray]) -> None:
    found = unpacked(packed(given))
    assert found.keys() == given.keys()
    for name, values in given.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes()


def test_the_same_arrays_are_the_same_bytes_in_whatever_order() -> None:
    one, two = np.ones(3, np.float16), np.zeros((2, 2))
    assert packed({"a": one, "b": two}) == packed({"b": two, "a": one})


def test_columns_in_the_order_of_fortran_keep_their_places() -> None:
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(unpacked(packed({"a": values}))["a"], values)


def file(head: object, data: bytes = bytes(16)) -> bytes:
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + data


ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x01", b"PK\x03\x04" + bytes(64), file([]), file({"a": 1}),
        file({"a": {**ENTRY, "dtype": "F8"}}), file({"a": {**ENTRY, "shape": [2, 3]}}), file({"a": {**ENTRY, "shape": [-2, -2]}}),
        file({"a": {**ENTRY, "shape": [2.0, 2]}}), file({"a": {**ENTRY, "data_offsets": [8, 24]}}),
        file({"a": {**ENTRY, "data_offsets": [0]}}), file({"a": {**ENTRY, "shape": [1 << 62, 4]}}), file({"a": ENTRY}, b""),
        (1 << 63).to_bytes(8, "little") + b"{}", file({str(at): ENTRY for at in range(10_001)}),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^gemm holds no arrays: [^\n]*$") as error:
        unpacked(content, "gemm")
    assert error.value.reason == "BAD_CALIBRATION"


def test_packaged_models_lie_in_such_files_alone() -> None:
    folder = Database.packaged().folder
    assert not list(folder.glob("calibrations/*/*/models/*.npz"))
    assert list(folder.glob("calibrations/*/*/models/*.safetensors"))
