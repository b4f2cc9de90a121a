import io
import zlib

import numpy as np
import pytest
from foretype_retrieval.array_file import ALIGN, ArrayFile, end_of, in_pieces, places_of

KINDS = {"bytes": "u1", "rows": "f2", "none": "i8"}
ARRAYS = {
    "bytes": np.arange(70, dtype=np.uint8),
    "rows": np.arange(12, dtype=np.float16).reshape(4, 3),
    "none": np.zeros(0, np.int64),
}
PLACES = places_of({name: values.shape for name, values in ARRAYS.items()}, KINDS)


def test_pieces_that_take_turns_lie_where_their_arrays_do() -> None:
    stream = io.BytesIO()
    file = ArrayFile(stream, ALIGN, PLACES)
    for piece in ("bytes", ARRAYS["bytes"][:50]), ("rows", ARRAYS["rows"][:1]):
        file.write(*piece)
    file.write("bytes", ARRAYS["bytes"][50:])
    file.write("rows", ARRAYS["rows"][1:].astype(np.float64))
    raw = np.frombuffer(stream.getvalue()[ALIGN:], np.uint8)
    for name, place in PLACES.items():
        np.testing.assert_array_equal(place.of(raw), ARRAYS[name])
        assert place.offset % ALIGN == 0
        kind, shape, offset, size_bytes, checksum = file.described()[name]
        assert (np.dtype(kind), tuple(shape), offset, size_bytes) == (
            place.kind,
            ARRAYS[name].shape,
            place.offset,
            ARRAYS[name].nbytes,
        )
        assert checksum == zlib.crc32(ARRAYS[name].tobytes())


def test_an_array_that_was_not_written_to_its_end_is_a_fault() -> None:
    file = ArrayFile(io.BytesIO(), 0, PLACES)
    file.write("bytes", ARRAYS["bytes"])
    file.write("rows", ARRAYS["rows"][:3])
    with pytest.raises(ValueError, match="rows"):
        file.described()


def test_bytes_whose_length_nobody_knows_are_appended() -> None:
    stream = io.BytesIO()
    file = ArrayFile(stream, 0, places_of({"bytes": (70,)}, {"bytes": "u1"}))
    file.write("bytes", ARRAYS["bytes"])
    file.append("more", end_of(PLACES))
    for data in (b"some", b" more"):
        file.write_bytes("more", data)
    assert file.described()["more"] == ["|u1", [9], end_of(PLACES), 9, zlib.crc32(b"some more")]
    assert stream.getvalue().endswith(b"some more")


def test_an_array_comes_in_pieces_of_some_megabytes() -> None:
    values = np.arange(3_000_000, dtype=np.int64)
    pieces = [piece for _, piece in in_pieces("values", values, 5, 2_999_000)]
    assert len(pieces) == 6 and max(piece.nbytes for piece in pieces) <= 1 << 22
    np.testing.assert_array_equal(np.concatenate(pieces), values[5:2_999_000])
