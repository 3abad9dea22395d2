"""Which files a script may write to: found in its command and its text, and what can't be kept safe."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.external.guard import describe, put_aside, put_back
from dflash_tui.harness.external.paths import guard, looked, script_of
from dflash_tui.records.codec import dumps, loads
from dflash_tui.records.external import ExternalLook, ExternalLooked
from tests.harness.external_world import OLD, Lab, ending, journal, lab, log
from tests.harness.world import harness


@pytest.fixture
def there(tmp_path: Path) -> Lab:
    return lab(tmp_path)


def test_what_can_be_written_and_not_put_back_is_refused() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = folder / "out.json"
        result.write_bytes(OLD)
        result.chmod(0o666)
        folder.chmod(0o555)
        said = as_nobody(lambda: describe(result, 0, folder))
        assert said.startswith(f"{folder}: this user may not write there, so the old bytes of out.json could not be")
        folder.chmod(0o755)
        result.chmod(0o000)
        assert "could not be put back" in as_nobody(lambda: describe(result, 0, folder))


@pytest.mark.parametrize("new", [b"", b"[]", 10 * OLD])
def test_where_only_owners_replace_files_anothers_gets_its_old_bytes_back(new: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        result, run_dir = Path(name) / "out.json", Path(name) / "run-1"
        result.write_bytes(OLD)
        result.chmod(0o666)
        run_dir.mkdir()
        run_dir.chmod(0o777)
        result.parent.chmod(0o1777)
        before = result.stat()

        def told() -> None:
            (file,) = describe(result, 0, run_dir)
            file = put_aside(run_dir, file)
            result.write_bytes(new)
            kept = (run_dir / file.kept).read_bytes()
            put_back(run_dir, file, begun=True)
            for left in (OLD, OLD[:5]):  # as if it had been killed just before the end, and in the middle of it
                (run_dir / file.kept).write_bytes(kept)
                result.write_bytes(left)
                put_back(run_dir, file, begun=True)
            raise HarnessError(f"{(run_dir / file.written).read_bytes()!r}")

        assert as_nobody(told) == repr(new)
        assert result.read_bytes() == OLD
        assert (result.stat().st_ino, result.stat().st_uid) == (before.st_ino, before.st_uid)


def test_another_users_file_is_still_theirs_when_the_run_does_not_begin() -> None:
    with tempfile.TemporaryDirectory() as name:
        result, run_dir = Path(name) / "out.json", Path(name) / "run-1"
        result.write_bytes(OLD)
        run_dir.mkdir()
        for folder in (result.parent, run_dir):
            folder.chmod(0o777)
        before = result.stat()

        def told() -> None:
            (file,) = describe(result, 0, run_dir)
            put_aside(run_dir, file)
            put_back(run_dir, file, begun=False)
            raise HarnessError(f"kept: {os.listdir(run_dir / 'kept')}")

        assert as_nobody(told) == "kept: []"
        assert (result.stat().st_ino, result.stat().st_uid) == (before.st_ino, before.st_uid)


def test_a_file_that_can_only_be_replaced_is_kept_safe_too() -> None:
    with tempfile.TemporaryDirectory() as name:
        result, script = Path(name) / "out.json", Path(name) / "run.py"
        result.write_bytes(OLD)
        result.chmod(0o444)
        script.write_text("os.replace('new', 'out.json')")
        Path(name).chmod(0o777)

        def told() -> None:
            raise HarnessError(str(looked(ExternalLook(("/usr/bin/env", os.fspath(script)), name)).guarded))

        assert as_nobody(told) == f"('{result}',)"


def test_a_path_that_may_not_be_looked_at_is_passed_over() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, closed = Path(name), Path(name) / "closed"
        script = folder / "run.py"
        script.write_text(f"open('{closed}/old.json', 'w'); open('{closed}/in/old.json', 'w')")
        folder.chmod(0o755)
        (closed / "in").mkdir(parents=True)
        closed.chmod(0o000 if os.geteuid() else 0o700)

        def told() -> None:
            found = looked(ExternalLook(("/usr/bin/env", os.fspath(script)), name))
            raise HarnessError(f"{found.guarded} {found.unguarded} {found.problems}")

        assert as_nobody(told) == "() () ()"
        closed.chmod(0o700)


def as_nobody(work: Callable[[], object]) -> str:
    """The sentence that refuses some work to a user who may not do everything; whoever tests as such is that user."""
    told, tell = os.pipe()
    if not (child := os.fork()):
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()
        except HarnessError as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    with os.fdopen(told) as stream:
        return stream.read()


@pytest.mark.parametrize("kind", ["fifo", "loop"])
def test_what_is_no_file_is_refused(there: Lab, tmp_path: Path, kind: str) -> None:
    odd = tmp_path / "odd.json"
    os.mkfifo(odd) if kind == "fifo" else odd.symlink_to(odd)
    error = ending(there.run("write:", results=(os.fspath(odd),))).error or ""
    assert ("is no regular file" if kind == "fifo" else "leads back to itself") in error


def test_a_script_that_is_run_from_its_own_folder_is_found_there(there: Lab) -> None:
    command = ("env", "-C", os.fspath(there.folder), sys.executable, "run_eval.py", "write:eval_results.json")
    run_dir = there.run(command=command, script="", script_sha256="")
    (output,) = journal(run_dir).outputs
    assert output.origin == os.fspath(there.fixed)
    assert there.is_as_before()


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["python3", "{folder}/run_eval.py", "--x"], "{folder}/run_eval.py"),
        (["env", "-C", "{folder}", "python3", "run_eval.py"], "{folder}/run_eval.py"),
        (["env", "-C", "{folder}", "python3", "-m", "package"], "{folder}/package/__main__.py"),
        (["python3", "-m", "run_eval"], ""),
        (["python3", "{folder}/eval_results.json"], ""),
        (["{folder}/run.sh", "--x"], "{folder}/run.sh"),
        (["/bin/true"], ""),
    ],
)
def test_the_script_in_a_command(there: Lab, command: list[str], found: str) -> None:
    (there.folder / "package").mkdir()
    (there.folder / "package" / "__main__.py").write_text("")
    (there.folder / "run.sh").write_text("#!/bin/sh\n")
    (there.folder / "run.sh").chmod(0o755)
    words = [word.format(folder=there.folder) for word in command]
    assert script_of(words) == (Path(found.format(folder=there.folder)) if found else None)


@pytest.mark.parametrize(
    "text",
    [
        "python eval.py --prompts 3 --out {folder}/old.json",
        "OUT = '{folder}'\nopen(os.path.join(OUT, 'old.json'), 'w')",
        'open("{folder}/old.json", "w")',
        "cat > {folder}/old.json <<EOF",
        "# writes first.json and {folder}/old.json",
    ],
)
def test_paths_that_the_scripts_text_names_are_found(there: Lab, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "old.json").write_bytes(OLD)
    there.script.write_text(text.format(folder=folder))
    assert os.fspath(folder / "old.json") in look(there).guarded


def test_the_end_of_a_longer_name_is_no_path_at_the_top(there: Lab) -> None:
    there.script.write_text('open(f"{out}/fresh.json", "w")\nopen(out + "/other.json", "w")')
    command = (sys.executable, os.fspath(there.script))
    paths = [file.path for file in guard(command, (), (), there.root, there.root).files]
    assert os.fspath(there.folder / "fresh.json") in paths
    assert not {"/fresh.json", "/other.json"} & set(paths)


def look(there: Lab) -> ExternalLooked:
    request = ExternalLook((sys.executable, os.fspath(there.script)), os.fspath(there.root))
    began = time.process_time()
    found = looked(request)
    assert time.process_time() - began < 5.0
    return found


@pytest.mark.parametrize("text", ["iVBORw0KGgoAAAANSUhEUgAA" * 40_000, f"'{'a' * 270}.json'", "a " * 500_000])
def test_a_scripts_text_may_hold_anything(there: Lab, text: str) -> None:
    there.script.write_text(text)
    found = look(there)
    assert (found.guarded, found.unguarded, found.problems) == ((os.fspath(there.fixed),), (), ())


def test_what_would_be_kept_safe_is_told_before_anything_is_created(there: Lab) -> None:
    request = ExternalLook((sys.executable, os.fspath(there.script)), os.fspath(there.root))
    said = loads(ExternalLooked, harness("external-look", stdin=dumps(request)).stdout, "answer")
    assert said.script == os.fspath(there.script)
    assert said.guarded == (os.fspath(there.fixed),)
    assert said.problems == ()
    assert list((there.root / "runs").iterdir()) == []


def test_a_file_whose_name_is_no_text_is_kept_safe_too(there: Lab) -> None:
    odd = os.fsencode(there.folder) + b"/\xff\n.json"
    with open(odd, "wb") as stream:
        stream.write(OLD)
    spoiler = there.folder / "spoiler.py"
    spoiler.write_text(f"open({odd!r}, 'w').write('x')\nopen('out.json', 'w').write('{{}}')\n")
    run_dir = there.run(command=(sys.executable, os.fspath(spoiler)), script="", results=("out.json",))
    assert ending(run_dir).state == "finished", ending(run_dir)
    with open(odd, "rb") as stream:
        assert stream.read() == OLD
    assert "\\udcff" in log(run_dir)
