"""The structure of a file written by `torch.save` (zip format, torch ≥ 1.6), read without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported, guarded
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.namespace import model_tensors
from dflash_tui.checkpoints.pickles import MAX_BYTES, Tensor, read_pickle
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.statedict import tensor_info, words
from dflash_tui.checkpoints.structure import DirectoryLine, Extent, Structure, TensorInfo
from dflash_tui.checkpoints.zipdir import TAIL, ZipDirectory, ZipRecord, data_offsets, read_directory

_LEGACY = re.compile(
    rb"(\x80[\x02-\x05](\x95.{8})?)?"
    rb"(\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19|L119547037146038801333356L\n)",
    re.DOTALL,
)  # the number that a torch.save file which is no zip begins with, as each pickle protocol writes it


_HEAD = 40


def is_zip(files: Files, file: str) -> bool:
    """Whether the file begins as a zip does."""
    return _head(files, file).startswith(b"PK\x03\x04")


def is_legacy(files: Files, file: str) -> bool:
    """Whether the file begins as torch.save wrote before 1.6 (or with `_use_new_zipfile_serialization=False`)."""
    return bool(_LEGACY.match(_head(files, file)))


def _head(files: Files, file: str) -> bytes:
    """Enough to tell a file's format: the same bytes for each question, so that they cross once."""
    return files.read(file, 0, min(files.size(file), _HEAD))


@guarded
def read_torch_zip(files: Files, file: str) -> Structure:
    """Structure of a zip checkpoint: the model's tensors, the trainer's args and step.

    Raises CheckpointIncomplete, CheckpointDamaged, or CheckpointUnsupported naming what can't be read (a compressed
    zip, TorchScript, a pickled module, sharded or quantised tensors, big-endian data).
    """
    root, directory, prefix = read_root(files, file)
    namespace, found = model_tensors(root, file)
    return Structure(
        container="torch zip",
        tensors=tensor_places(files, directory, prefix, found),
        files=(file,),
        namespace=namespace,
        directory=directory_lines(directory),
        root=root,
        **words(root, file),
    )


def directory_lines(directory: ZipDirectory) -> tuple[DirectoryLine, ...]:
    """What the zip's own directory says of its records."""
    return tuple((directory.file, record.name, record.size, record.crc) for record in directory.records.values())


@guarded
def read_words(files: Files, file: str) -> dict[str, Any]:
    """Only `args`, `step` and their `sources` of a zip checkpoint (for a trainer state that lies beside weights)."""
    root, _, _ = read_root(files, file)
    return words(root, file)


@guarded
def read_root(files: Files, file: str, tail: int = TAIL) -> tuple[Any, ZipDirectory, str]:
    """(what data.pkl describes, the zip directory, the folder of the archive's records). `tail`: see read_directory."""
    if not is_zip(files, file):
        raise CheckpointUnsupported(f"{file}: not a torch file; load it where it was made and save it with torch.save")
    directory = read_directory(files, file, tail)
    pickles = [name for name in directory.records if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise CheckpointUnsupported(f"{file}: a zip without exactly one data.pkl is no torch.save checkpoint")
    prefix = pickles[0][: -len("data.pkl")]
    if any(name.startswith(f"{prefix}code/") for name in directory.records):
        raise CheckpointUnsupported(f"{file}: a TorchScript archive; save the state dict with torch.save instead")
    record = directory.records[pickles[0]]
    if record.size > MAX_BYTES:
        raise CheckpointUnsupported(f"{file}: data.pkl is {record.size} bytes; more than {MAX_BYTES} is not read")
    wanted = [name for name in (pickles[0], f"{prefix}byteorder") if name in directory.records]
    offsets = data_offsets(files, directory, wanted)
    if len(wanted) == 2:
        order = files.read(file, offsets[wanted[1]], min(directory.records[wanted[1]].size, 16))
        if order != b"little":
            raise CheckpointUnsupported(
                f"{file}: byteorder is {shown(order.decode('ascii', 'replace'))}, expected 'little'"
            )
    data = files.read(file, offsets[pickles[0]], record.size)
    return read_pickle(data, f"{file}: {pickles[0]}"), directory, prefix


def tensor_places(
    files: Files, directory: ZipDirectory, prefix: str, found: Mapping[str, Tensor]
) -> dict[str, TensorInfo]:
    """Where tensors of an archive lie. Raises CheckpointDamaged, CheckpointUnsupported."""
    file = directory.file

    def stored(record: ZipRecord, offset: int) -> Extent:
        return Extent(file, offset, record.size, record.crc if record.crc or not record.size else None)

    records: dict[str, str] = {}
    names = {key: f"{prefix}data/{key}" for key in {tensor.storage.key for tensor in found.values()}}
    for name, tensor in found.items():
        records[name] = names[tensor.storage.key]
        if records[name] not in directory.records:
            raise CheckpointDamaged(
                f"{file}: {name} lies in record {shown(records[name])}, which the zip does not hold"
            )
    offsets = data_offsets(files, directory, sorted(set(records.values())))
    return {
        name: tensor_info(name, tensor, stored(directory.records[records[name]], offsets[records[name]]))
        for name, tensor in found.items()
    }
