"""The structure of a torch file that is no zip (torch.save before 1.6), read by byte ranges and without torch.

Such a file is four pickles (a number that marks it, a version, the machine that wrote it, the object), a fifth with the
keys of its storages, and then each storage in that order: its number of elements in 8 bytes and its bytes. Nothing
says how long a pickle is or where a storage begins, so pickles are read on until their end mark, and the storages'
places are summed up from what the object's pickle says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointIncomplete, CheckpointUnsupported, guarded
from dflash_tui.checkpoints.files import Files, read_many
from dflash_tui.checkpoints.namespace import model_tensors
from dflash_tui.checkpoints.pickles import MAX_BYTES, Storage, Tensor, read_pickle_stream
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.statedict import storage_nbytes, tensor_info, words
from dflash_tui.checkpoints.structure import Extent, Structure, TensorInfo

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
_COUNT = 8  # bytes of a storage's number of elements
_FIRST, _MOST = 1 << 16, 4 << 20  # bytes of the first read of a stream and of later ones


@dataclass(frozen=True)
class _Layout:
    """What the pickles say: the object, each storage with the place of its bytes, and where the file ends."""

    root: Any
    storages: Mapping[str, Storage]
    places: Mapping[str, Extent]
    end: int


@guarded
def read_legacy(files: Files, file: str) -> Structure:
    """Structure of a legacy torch file: the model's tensors, the trainer's args and step.

    Raises CheckpointIncomplete when the file is shorter than its storages, CheckpointDamaged when it contradicts
    itself, CheckpointUnsupported for what can't be read (a pickled module, sharded or quantised tensors, big-endian).
    """
    layout = _read_layout(files, file)
    namespace, found = model_tensors(layout.root, file)
    size = files.size(file)
    if size < layout.end:
        raise CheckpointIncomplete(f"{file}: has {size} bytes of {layout.end}; cut, or still being written?")
    if size > layout.end:
        raise CheckpointDamaged(f"{file}: has {size} bytes, its storages end at byte {layout.end}; fetch it again")
    _check_counts(files, file, layout, found)
    return Structure(
        container="torch legacy",
        tensors={name: _info(file, name, tensor, layout) for name, tensor in found.items()},
        files=(file,),
        namespace=namespace,
        directory=tuple(
            (file, f"{key} {layout.storages[key].kind} {place.offset}", place.nbytes, None)
            for key, place in layout.places.items()
        ),
        root=layout.root,
        **words(layout.root, file),
    )


@guarded
def legacy_extent(files: Files, file: str) -> int:
    """The size that the file has once it is written whole, from its pickles alone.

    Raises CheckpointIncomplete when they are not all there yet, CheckpointDamaged, CheckpointUnsupported.
    """
    return _read_layout(files, file).end


@guarded
def read_legacy_words(files: Files, file: str) -> dict[str, Any]:
    """Only `args`, `step` and their `sources` of a legacy file (for a trainer state that lies beside weights)."""
    return words(_read_layout(files, file).root, file)


def _read_layout(files: Files, file: str) -> _Layout:
    stream = _Stream(files, file)
    magic, _ = read_pickle_stream(stream, file)
    if magic != MAGIC:
        raise CheckpointUnsupported(f"{file}: not a torch file; load it where it was made and save it with torch.save")
    version, _ = read_pickle_stream(stream, file)
    if version != VERSION:
        raise CheckpointUnsupported(f"{file}: a torch file of version {shown(version)}, expected {VERSION}")
    machine, _ = read_pickle_stream(stream, file)
    if not isinstance(machine, dict):
        raise CheckpointDamaged(f"{file}: doesn't say what machine wrote it; fetch the file again")
    if machine.get("little_endian") is not True:
        raise CheckpointUnsupported(f"{file}: was written on a big-endian machine, expected a little-endian one")
    root, storages = read_pickle_stream(stream, file)
    keys, _ = read_pickle_stream(stream, file)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CheckpointDamaged(f"{file}: holds no list of its storages behind the object; fetch the file again")
    position = stream.tell()
    places: dict[str, Extent] = {}
    for key in keys:
        if key in places or key not in storages:
            reason = "is listed twice" if key in places else "is none of the object's"
            raise CheckpointDamaged(f"{file}: storage {shown(key)} {reason}; fetch the file again")
        nbytes = storage_nbytes(storages[key])
        if nbytes is None:
            raise CheckpointUnsupported(
                f"{file}: storage {shown(key)} is of type {storages[key].kind}, of unknown size"
            )
        places[key] = Extent(file, position + _COUNT, nbytes)
        position += _COUNT + nbytes
    return _Layout(root, storages, places, position)


def _check_counts(files: Files, file: str, layout: _Layout, found: Mapping[str, Tensor]) -> None:
    """Compare the number of elements before each of the model's storages, and the last one, with the pickle's."""
    wanted = {tensor.storage.key for tensor in found.values()} & set(layout.places)
    wanted.update(list(layout.places)[-1:])
    keys = sorted(wanted)
    ranges = [(layout.places[key].offset - _COUNT, _COUNT) for key in keys]
    for key, stated in zip(keys, read_many(files, file, ranges), strict=True):
        count = int.from_bytes(stated, "little")
        if count != layout.storages[key].count:
            raise CheckpointDamaged(
                f"{file}: storage {shown(key)} has {count} elements, expected {layout.storages[key].count}; "
                "fetch the file again"
            )


def _info(file: str, name: str, tensor: Tensor, layout: _Layout) -> TensorInfo:
    if tensor.storage.key not in layout.places:
        raise CheckpointDamaged(
            f"{file}: {name} lies in storage {shown(tensor.storage.key)}, which the file does not hold"
        )
    return tensor_info(name, tensor, layout.places[tensor.storage.key])


class _Stream:
    """A file from its beginning, read ahead in growing pieces and at most MAX_BYTES of it."""

    def __init__(self, files: Files, file: str) -> None:
        self._files, self._file = files, file
        self._size = files.size(file)
        self._ahead = b""
        self._at = 0  # of the first byte in _ahead that is not taken
        self._start = 0  # position of _ahead in the file
        self._piece = _FIRST

    def tell(self) -> int:
        """Position of the next byte."""
        return self._start + self._at

    def read(self, size: int, /) -> bytes:
        """Exactly `size` bytes. Raises CheckpointIncomplete at the file's end, CheckpointUnsupported past MAX_BYTES."""
        end = self._at + size
        if end > len(self._ahead):
            self._want(size)
            end = self._at + size
        data = self._ahead[self._at : end]
        self._at = end
        return data

    def readline(self) -> bytes:
        """The bytes up to and with a line feed. Raises as `read` does."""
        searched = 0
        while (found := self._ahead.find(b"\n", self._at + searched)) < 0:
            searched = len(self._ahead) - self._at
            self._want(searched + 1)
        return self.read(found + 1 - self._at)

    def _want(self, size: int) -> None:
        """Have at least `size` bytes ahead."""
        position, have = self.tell(), len(self._ahead) - self._at
        if position + size > self._size:
            raise CheckpointIncomplete(
                f"{self._file}: ends at byte {self._size}, its pickle reaches to byte {position + size} at least; "
                "cut, or still being written?"
            )
        if position + size > MAX_BYTES:
            raise CheckpointUnsupported(f"{self._file}: its pickle has more than {MAX_BYTES} bytes, which are not read")
        length = min(max(size - have, self._piece), self._size - position - have)
        more = self._files.read(self._file, position + have, length)
        self._ahead, self._at, self._start = self._ahead[self._at :] + more, 0, position
        self._piece = min(self._piece * 2, _MOST)
