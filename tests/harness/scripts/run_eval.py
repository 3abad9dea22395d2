"""A stand-in for a script that people have: it writes eval_results.json beside itself, and does what its words say.

Carried out in order: `say:TEXT`, `err:TEXT`, `bar:DONE/TOTAL`, `write:PATH` (a whole result), `half:PATH` (its first
half), `append:PATH`, `replace:PATH` (through a temporary name), `drop:PATH`, `folder:PATH`, `touch:PATH`, `wait:FIFO`
(until someone writes to it), `here:PATH`, `child:FIFO:PATH:LATE` (a process of its own session that waits and
then writes), `spoil:PATH` (write into a file in place), `end:STATUS`, `kill`. Without a path: the fixed one.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

RESULT = {
    "checkpoint": "checkpoint_slammed5_step4000.pt",
    "num_prompts": 3,
    "max_blocks": 15,
    "block_size": 16,
    "total_blocks": 45,
    "avg_vanilla_streak": 143 / 45,
    "avg_ddtree4_streak": 256 / 45,
    "avg_ddtree8_streak": 367 / 45,
}
FIXED = Path(__file__).parent / "eval_results.json"
TEXT = json.dumps(RESULT, indent=1)
CHILD = "import sys; open(sys.argv[1]).read(); open(sys.argv[2], 'w').write('from a child'); open(sys.argv[3], 'w')"


def target(name: str) -> Path:
    return Path(name) if name else FIXED


def do(word: str) -> None:
    action, _, rest = word.partition(":")
    if action == "say":
        print(rest)
    elif action == "err":
        print(rest, file=sys.stderr)
    elif action == "bar":
        done, total = map(int, rest.split("/"))
        sys.stderr.write(f"\r blocks: {100 * done // total}%|{'█' * done}| {done}/{total} [00:01<00:02,  9.00it/s]")
        sys.stderr.flush()
    elif action == "write":
        target(rest).write_text(TEXT)
    elif action == "half":
        target(rest).write_text(TEXT[: len(TEXT) // 2])
    elif action == "append":
        with target(rest).open("a") as stream:
            stream.write("more\n")
    elif action == "replace":
        part = target(rest).with_suffix(".part")
        part.write_text(TEXT)
        part.replace(target(rest))
    elif action == "drop":
        target(rest).unlink()
    elif action == "folder":
        target(rest).unlink()
        target(rest).mkdir()
    elif action == "touch":
        target(rest).touch()
    elif action == "wait":
        Path(rest).read_text()
    elif action == "here":
        Path(rest).touch()
    elif action == "child":
        subprocess.Popen([sys.executable, "-c", CHILD, *rest.split(":")], start_new_session=True)
    elif action == "spoil":
        with Path(rest).open("r+b") as stream:
            stream.write(b"spoilt")
    elif action == "end":
        sys.exit(int(rest))
    elif action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        sys.exit(f"no such word: {word}")


for each in sys.argv[1:]:
    do(each)
