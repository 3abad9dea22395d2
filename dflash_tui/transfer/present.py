"""Whether a file lies at the destination already: the same one, or another that has its name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dflash_tui.checkpoints.segments import Late, Output, Range
from dflash_tui.hosts.base import Host, Stat
from dflash_tui.transfer.digests import digest, range_crcs, source_digest
from dflash_tui.transfer.errors import DestinationTaken
from dflash_tui.transfer.in_flight import settled
from dflash_tui.transfer.record import Identity, Recorded

if TYPE_CHECKING:
    from dflash_tui.transfer.plan import PlannedFile, TransferPlan


async def already_there(
    plan: TransferPlan,
    file: PlannedFile,
    stat: Stat | None,
    source: Host,
    destination: Host,
    records: Mapping[str, Recorded],
) -> str:
    """The SHA-256 of the destination's file if it is the planned one, "" if there is none. `stat` is what has its name
    (a link is not followed), `records` what the folder's record says. Raises DestinationTaken when it is another one.
    Hashes both ends unless the record knows it."""
    final = plan.final_path(file)
    if stat is None:
        return ""
    taken = f"{destination.name}:{final} already exists"
    if stat.kind != "file":
        raise DestinationTaken(f"{taken} and is a {stat.kind}; move it away or name another folder")
    if stat.size != file.size:
        raise DestinationTaken(
            f"{taken} with {stat.size:,} bytes, not {file.size:,}: another file; move it away or name another folder"
        )
    recorded = records.get(file.name)
    if recorded is not None and recorded.here == Identity.of(stat) and _is_it(recorded, plan, file):
        return recorded.sha256
    output = await _whole(plan, file, source)
    if output is None:
        raise DestinationTaken(f"{taken} and no record says what it is; move it away or name another folder")
    here, there = await asyncio.gather(
        digest(destination, final, file.size), source_digest(source, plan.source_folder, output)
    )
    if here != there:
        raise DestinationTaken(
            f"{taken} with the same size and another SHA-256 ({here[:12]}…, the source's is {there[:12]}…); "
            "move it away or name another folder"
        )
    return here


async def _whole(plan: TransferPlan, file: PlannedFile, source: Host) -> Output | None:
    """The output with its end, which is made of CRC-32s that the source computes; None where it has no python3."""
    segments = file.output.segments
    if not any(isinstance(segment, Late) for segment in segments):
        return file.output
    unknown = {index: each for index, each in enumerate(segments) if isinstance(each, Range) and each.crc is None}
    found = dict(zip(unknown, await range_crcs(source, plan.source_folder, list(unknown.values())), strict=True))
    crcs = {index: crc for index, crc in found.items() if crc is not None}
    if len(crcs) < len(unknown):
        return None
    return settled(file.output, crcs, f"{source.name}:{plan.source_folder}")


def _is_it(recorded: Recorded, plan: TransferPlan, file: PlannedFile) -> bool:
    if recorded.plan:
        return recorded.plan == file.plan_id
    # A record of a version that knew whole files only.
    return file.linkable and (recorded.host, recorded.path, recorded.source) == (
        plan.source, plan.source_path(file), next(iter(file.sources.values())),
    )  # fmt: skip
