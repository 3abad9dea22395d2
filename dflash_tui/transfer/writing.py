"""The command that writes a stream into a part at its destination, under a lock that lives as long as any writer does.

An sshd may not notice for half an hour that a client is gone, and the writer that it started lives on: what it still
has in its pipe must not land in a part that somebody continues. So a writer holds an exclusive lock on the part, on a
descriptor that the program which writes inherits; who finds the lock taken ends that writer first (`free`).
"""

from __future__ import annotations

from dflash_tui.transfer.emission import BLOCK

BUSY = 75
"""Exit status of a writer that did not begin because another one has the part open."""

# One `ls` for all descriptors: a machine that trains has tens of thousands, and a program for each takes a minute.
_END_OTHERS = """
end_others() {
  part=$(readlink -f "$1") || return 0
  if [ -n "$(command -v ls)" ]; then
    ls -l /proc/[0-9]*/fd 2>&1 | while IFS= read -r line; do
      case $line in
        /proc/*/fd:) pid=${line#/proc/} pid=${pid%%/*} ;;
        *" -> $part") [ "$pid" = $$ ] || kill -9 "$pid" ;;
      esac
    done
  else
    for each in /proc/[0-9]*/fd/*; do
      [ "$(readlink "$each")" = "$part" ] || continue
      pid=${each#/proc/} pid=${pid%%/*}
      [ "$pid" = $$ ] || kill -9 "$pid"
    done
  fi
}
"""

# Where there is no `flock` (busybox may have none), whoever has the part open is ended unasked. A bare chroot has no
# /dev: nothing here needs it.
_WRITE = (
    _END_OTHERS
    + f"""
seek=$2 size=$3
if [ -n "$(command -v flock)" ]; then
  exec 9>>"$1" || exit 4
  flock -n 9 || exit {BUSY}
elif [ -e "$1" ]; then
  end_others "$1"
fi
said=$(dd if=/ count=0 of="$1" bs={BLOCK} seek="$seek" 2>&1) || {{ echo "$said" >&2; exit 4; }}
said=$(fallocate -n -l "$size" "$1" 2>&1) || case $said in *"No space left"*|*uota*) echo "$said" >&2; exit 28;; esac
exec dd of="$1" bs={BLOCK} seek="$seek" conv=notrunc
"""
)

_FREE = (
    _END_OTHERS
    + """
[ -e "$1" ] || exit 0
end_others "$1"
[ -n "$(command -v flock)" ] || exit 0
exec 9>>"$1" || exit 4
tries=0
until flock -n 9; do
  tries=$((tries + 1))
  [ $tries -lt 20 ] || exit 1
  sleep 0.1 || sleep 1
done
"""
)


def writing(part: str, start: int, size: int) -> list[str]:
    """The writer: cut `part` at `start` (a multiple of BLOCK), set room for `size` bytes aside where the filesystem
    can, then write stdin from there on. Status BUSY: another writer has it. Raises ValueError for a start between
    blocks."""
    if start % BLOCK:
        raise ValueError(f"a part is continued at whole blocks of {BLOCK} bytes, not at {start}")
    return ["sh", "-c", _WRITE, "dflash", part, str(start // BLOCK), str(size)]


def free(part: str) -> list[str]:
    """Kill this user's writers of `part`. Status 0 when nobody has it open any more; 1 when somebody still does."""
    return ["sh", "-c", _FREE, "dflash", part]
