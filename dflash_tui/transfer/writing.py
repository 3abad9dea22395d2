"""The command that writes a stream into a part at its destination, under a lock that lives as long as any writer does.

An sshd may not notice for half an hour that a client is gone, and the writer that it started lives on: what it still
has in its pipe must not land in a part that somebody continues. So a writer holds an exclusive lock on the part, on a
descriptor that the program which writes inherits; who finds the lock taken ends that writer first (`free`).
"""

from __future__ import annotations

from dflash_tui.transfer.emission import BLOCK
from dflash_tui.transfer.locks import END_OTHERS, LOCK, OWN_FILE

BUSY = 75
"""Exit status of a writer that did not begin: another one has the part open, or it is not the part that it was."""

# Where nothing locks, whoever has the part open is ended unasked. What is written goes into the file that was looked
# at, by its descriptor: the name may be given to another one meanwhile. A bare chroot has no /dev: none is needed.
_WRITE = (
    LOCK
    + OWN_FILE
    + END_OTHERS
    + f"""
part=$1 seek=$2 size=$3
own_file "$part" || exit 4
if [ ! -e "$part" ]; then
  [ "$seek" = 0 ] || exit {BUSY}
  set -C
  : >"$part" || [ -e "$part" ] || exit 4
  set +C
fi
exec 9<>"$part"
lock -n || exit {BUSY}
[ -n "$locks" ] || end_others "$part"
is_own "$part" && still_named "$part" || exit {BUSY}
[ "$(stat -c %s "$part" 2>&- || stat -f %z "$part")" -ge $((seek * {BLOCK})) ] || exit {BUSY}
into=/proc/self/fd/9
[ -e "$into" ] || into=$part
said=$(dd if=/ count=0 of="$into" bs={BLOCK} seek="$seek" 2>&1) || {{ echo "$said" >&2; exit 4; }}
said=$(fallocate -n -l "$size" "$into" 2>&1) || case $said in *"No space left"*|*uota*) echo "$said" >&2; exit 28;; esac
exec dd of="$into" bs={BLOCK} seek="$seek" conv=notrunc
"""
)

_FREE = (
    LOCK
    + OWN_FILE
    + END_OTHERS
    + """
[ -e "$1" ] || [ -L "$1" ] || exit 0
own_file "$1" || exit 4
[ -e "$1" ] || exit 0
end_others "$1"
exec 9<>"$1"
tries=0
until lock -n; do
  tries=$((tries + 1))
  [ $tries -lt 20 ] || exit 1
  sleep 0.1 || sleep 1
done
"""
)


def writing(part: str, start: int, size: int) -> list[str]:
    """The writer: cut `part` at `start` (a multiple of BLOCK), set room for `size` bytes aside where the filesystem
    can, then write stdin from there on. A part that is a link, has another name or is another user's is made anew.
    Status BUSY: another writer has it, or it lacks bytes before `start`. Raises ValueError for a start between
    blocks."""
    if start % BLOCK:
        raise ValueError(f"a part is continued at whole blocks of {BLOCK} bytes, not at {start}")
    return ["sh", "-c", _WRITE, "dflash", part, str(start // BLOCK), str(size)]


def free(part: str) -> list[str]:
    """Kill this user's writers of `part`. Status 0 when nobody has it open any more; 1 when somebody still does. One
    that no writer may go on with is removed."""
    return ["sh", "-c", _FREE, "dflash", part]
