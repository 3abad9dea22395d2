"""Words of shell for what several may reach for at once: a lock on descriptor 9, and a part that is a file of its own.

An exclusive lock over NFS needs a descriptor that may write. A filesystem without locks (Lustre as it is usually
mounted) refuses every one: there it goes on as where there is no `flock`.
"""

from __future__ import annotations

LOCK = """
lock() {
  locks=
  [ -n "$(command -v flock)" ] || return 0
  if said=$(flock "$@" 9 2>&1); then
    locks=yes
  elif [ $? = 1 ] && [ -z "$said" ]; then
    return 1
  fi
}
still_named() {
  held=$(stat -L -c %i /proc/self/fd/9 2>&-)
  [ -z "$held" ] || [ "$held" = "$(stat -c %i "$1" 2>&-)" ]
}
"""
"""`lock [-n]`: 1 when another has it; `locks` is empty where there are none. `still_named PATH`: whether descriptor 9
is what lies there, as far as /proc tells: who waited for a lock may have got that of a file that is gone."""

OWN_FILE = """
is_own() {
  [ -f "$1" ] && [ ! -L "$1" ] || return 1
  [ "$(stat -c %h "$1" 2>&- || stat -f %l "$1")" = 1 ] || return 1
  if [ ! -O "$1" ]; then
    rm -f "$1.owner"
    : >"$1.owner" || return 1
    owner=$(stat -c %u "$1.owner" 2>&- || stat -f %u "$1.owner")
    rm -f "$1.owner"
    [ "$owner" = "$(stat -c %u "$1" 2>&- || stat -f %u "$1")" ] || return 1
  fi
}
own_file() {
  if [ -e "$1" ] || [ -L "$1" ]; then
    is_own "$1" || rm -f "$1" || return 1
  fi
}
"""
"""`own_file PATH`: what lies there that is not this user's regular file, without any other name, loses this one. Where
a server gives files of ours to another user, as root's over NFS, one that is made now tells to whom."""

# One `ls` for all descriptors: a machine that trains has tens of thousands, and a program for each takes a minute.
END_OTHERS = """
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
"""`end_others PATH`: kill whatever has it open, this shell aside."""
