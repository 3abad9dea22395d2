"""A whole file as ranges: never a byte too many, and the CRC-32s that a zip's directory states."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints.covering import MOST, covering
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.segments import Range
from tests.checkpoints.composed import composed
from tests.checkpoints.found import all_cases
from tests.checkpoints.test_torch_files import CountedFiles


def stated(segments: tuple[object, ...]) -> int:
    return sum(segment.nbytes for segment in segments if isinstance(segment, Range) and segment.crc is not None)


def test_every_file_of_every_case_is_itself() -> None:
    for case in all_cases():
        for name in case.files.names():
            output = covering(case.files, name)
            path = Path(case.candidate.folder) / name
            assert composed(case.files, output) == path.read_bytes()
            assert output.whole
            with_data = zipfile.is_zipfile(path) and path.suffix != ".distcp" and path.stat().st_size > 20_000
            assert not with_data or stated(output.segments) > 0.8 * output.size


def test_the_data_of_every_record_is_checked(tmp_path: Path) -> None:
    torch.save({"model": {f"t{i}": torch.randn(100 + i) for i in range(50)}}, tmp_path / "x.pt")
    output = covering(LocalFiles(tmp_path), "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        expected = {info.CRC for info in archive.infolist() if info.file_size}
    assert {segment.crc for segment in output.segments if isinstance(segment, Range)} - {None} == expected


def test_a_source_without_checksums_states_none(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"model": {f"t{i}": torch.randn(1000 + i) for i in range(50)}}, tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    files = LocalFiles(tmp_path)
    assert composed(files, covering(files, "x.pt")) == (tmp_path / "x.pt").read_bytes()


def test_what_is_no_zip_is_one_range(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"some text")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    files = LocalFiles(tmp_path)
    assert covering(files, "text").segments == (Range("text", 0, 9),)
    assert covering(files, "torn.pt").segments == (Range("torn.pt", 0, 104),)
    assert covering(files, "empty").segments == ()


def test_a_compressed_record_is_not_compared_with_the_checksum_of_its_content(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("packed", bytes(9000), zipfile.ZIP_DEFLATED)
        archive.writestr("plain", b"abc" * 50, zipfile.ZIP_STORED)
    files = LocalFiles(tmp_path)
    output = covering(files, "x.zip")
    assert composed(files, output) == (tmp_path / "x.zip").read_bytes()
    assert [s.crc for s in output.segments if isinstance(s, Range) and s.crc is not None] == [zlib.crc32(b"abc" * 50)]


def test_a_directory_of_many_records_costs_a_bounded_number_of_reads(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        for number in range(3 * MOST):
            archive.writestr(f"data/{number}", bytes(8 + 400 * (number % 3 == 0)))
    files = CountedFiles(tmp_path)
    output = covering(files, "x.pt")
    assert files.trips <= 6
    assert len(output.segments) <= 2 * MOST + 1
    assert stated(output.segments) == MOST * 408, "the largest records are those that are checked"
    assert composed(files, output) == (tmp_path / "x.pt").read_bytes()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "x.pt"
    torch.save({f"t{i}": torch.ones(10 + i) for i in range(5)}, path)
    return path.read_bytes()


@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
@settings(max_examples=100, deadline=None)
def test_a_damaged_zip_is_still_covered_once(
    tmp_path_factory: pytest.TempPathFactory, saved: bytes, place: int, value: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    data = bytearray(saved)
    data[-1 - place % len(data)] = value
    (folder / "x.pt").write_bytes(data)
    output = covering(LocalFiles(folder, ["x.pt"]), "x.pt")
    at = 0
    for segment in output.segments:
        assert isinstance(segment, Range)
        assert (segment.offset, segment.nbytes > 0) == (at, True)
        at += segment.nbytes
    assert at == len(data)
