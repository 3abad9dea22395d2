"""What the evaluations of one process share: each file is mapped once, and hidden states are checked once."""

from __future__ import annotations

from pathlib import Path

from dflash_tui.harness.cache import Features, check_data, open_features
from dflash_tui.harness.features import FeaturesHeader, read_features_header
from dflash_tui.harness.mapped import Maps
from dflash_tui.harness.target_files import TargetFiles, open_target
from dflash_tui.records.settings import DrafterSettings


class Shared:
    """Maps of files, the targets and the hidden states that were opened.

    A header is kept with its map: where a file is replaced between two runs, both go on with the one that was mapped.
    """

    def __init__(self) -> None:
        self.maps = Maps()
        self._targets: dict[Path, TargetFiles] = {}
        self._headers: dict[Path, FeaturesHeader] = {}
        self._sound: set[tuple[object, ...]] = set()

    @property
    def opened(self) -> frozenset[Path]:
        """The hidden-state files that were opened so far."""
        return frozenset(self._headers)

    def target(self, folder: Path) -> TargetFiles:
        """`open_target`, once."""
        if folder not in self._targets:
            self._targets[folder] = open_target(folder)
        return self._targets[folder]

    def header(self, path: Path) -> FeaturesHeader:
        """`read_features_header`, once. Raises PromptRefused."""
        if path not in self._headers:
            self._headers[path] = read_features_header(path)
        return self._headers[path]

    def features(
        self, header: FeaturesHeader, settings: DrafterSettings, vocabulary: int, last_anchor: int
    ) -> Features:
        """The features that a drafter taps: views of the one map, checked once for all that tap the same. Raises
        PromptRefused."""
        features = open_features(header, self.maps, settings.taps)
        key = (header.path, settings.taps, settings.hidden_size, vocabulary, last_anchor)
        if key not in self._sound:
            check_data(features, settings, vocabulary, last_anchor)
            self._sound.add(key)
        return features
