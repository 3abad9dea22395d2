"""What names and pointers tell, whatever the run is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.checkpoints.listing import Listed, candidates
from dflash_tui.checkpoints.names import Named, is_temporary, read_name
from dflash_tui.checkpoints.pointers import Pointer, finished, pointer_files, pointer_of_link, pointer_of_text

RUNS = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,8}(-[A-Za-z][A-Za-z0-9]{0,8}){0,2}", fullmatch=True).filter(
    lambda run: (
        not any(word in run.lower() for word in ("step", "iter", "epoch", "ckpt", "checkpoint", "state", "model"))
        and run.lower() not in ("draft", "drafter", "weights", "global", "save")
    )
)
NUMBERS = st.integers(0, 10**9)


@given(run=RUNS, step=NUMBERS)
def test_specforge_names_run_and_step(run: str, step: int) -> None:
    assert read_name(f"{run}-step{step}") == Named("step", step, run)
    assert read_name(f"{run}-latest") is None


@given(step=NUMBERS, epoch=st.integers(0, 999), width=st.integers(1, 9))
def test_names_without_a_run_tell_the_step(step: int, epoch: int, width: int) -> None:
    for name in (
        f"step_{step}", f"step-{step:0{width}d}", f"checkpoint-{step}", f"global_step{step}", f"global_step_{step}",
        f"draft_step_{step}", f"iter_{step:07d}", f"epoch_{epoch}_step_{step}", f"epoch={epoch}-step={step}.ckpt",
        f"epoch={epoch}-step={step}-v1.ckpt", f"epoch={epoch}-step={step}-val_loss=0.25.ckpt",
    ):  # fmt: skip
        assert read_name(name) == Named("step", step, ""), name
    assert read_name(f"model_{step:06d}", file=True) == Named("step", step, "")
    for name in (f"epoch_{epoch}", f"state_{epoch}", str(epoch), f"checkpoint-epoch-{epoch}"):
        assert read_name(name) == Named("epoch", epoch, ""), name


@given(st.text(max_size=40))
def test_any_text_is_read_or_not(name: str) -> None:
    named = read_name(name)
    assert named is None or named.number >= 0
    read_name(name, file=True)
    is_temporary(name)
    pointer_of_text("latest", name.encode("utf-8", "surrogatepass"), 1.0)
    pointer_of_link(name, name, 1.0)


@pytest.mark.parametrize("name", [".checkpoint.pt.a8XyZ1", "tmp_checkpoint-5", ".metadata.tmp", "x/.tmpAb12cd"])
def test_copies_and_saves_under_way_have_temporary_names(name: str) -> None:
    assert is_temporary(name)


@pytest.mark.parametrize("name", [".metadata", ".transfer.json", "step_5/model.safetensors", "latest.txt"])
def test_other_hidden_files_have_not(name: str) -> None:
    assert not is_temporary(name)


@given(saved=NUMBERS, told=NUMBERS, lag=st.floats(-100, 100))
def test_a_pointer_proves_what_came_before_it_and_denies_what_comes_later(saved: int, told: int, lag: float) -> None:
    pointers = [Pointer("latest", f"step_{told}", "", 1000.0 + lag)]
    said, _ = finished(pointers, f"step_{saved}", read_name(f"step_{saved}"), 1000.0)
    if saved > told:
        assert said is False
    else:
        assert said is (True if lag >= -1.0 else None)


@pytest.mark.parametrize(
    ("pointer", "name", "said"),
    [
        (pointer_of_link("run-latest", "run-step200", 9.0), "run-step200", True),
        (pointer_of_link("run-latest", "run-step200", 9.0), "run-step300", False),
        (pointer_of_link("run-latest", "run-step200", 9.0), "other-step300", None),
        (pointer_of_link("step_latest", "/data/ckpt/step_300", 9.0), "step_300", True),
        (pointer_of_link("LATEST", "epoch_1_step_900", 9.0), "epoch_1_step_950", False),
        (pointer_of_text("latest_checkpointed_iteration.txt", b"500\n", 9.0), "iter_0000500", True),
        (pointer_of_text("latest_checkpointed_iteration.txt", b"60", 9.0), "global_step_70", False),
        (pointer_of_text("latest", b"global_step100", 9.0), "global_step100", True),
        (pointer_of_text("latest.txt", b"1000", 9.0), "1000", True),
        (pointer_of_text("LATEST.txt", b"epoch_1_step_900", 9.0), "epoch_1_step_900", True),
    ],
)
def test_each_writer_s_pointer(pointer: Pointer | None, name: str, said: bool | None) -> None:
    assert pointer is not None
    assert finished([pointer], name, read_name(name), 5.0)[0] is said


@pytest.mark.parametrize("text", [b"", b"release", b"\xff\xfe", b"\0\0\0"])
def test_a_text_that_names_nothing_is_no_pointer(text: bytes) -> None:
    assert pointer_of_text("latest", text, 1.0) is None


def test_only_files_of_known_names_are_read_as_pointers() -> None:
    entries = [
        ("latest", "file"),
        ("latest", "link"),
        ("train.log", "file"),
        ("latest_checkpointed_iteration.txt", "file"),
    ]
    assert pointer_files(entries) == ("latest", "latest_checkpointed_iteration.txt")


def test_a_link_to_the_best_speaks_of_that_one_alone() -> None:
    best = pointer_of_link("checkpoint_best", "1", 9.0)
    assert best is not None
    for name, newest, said in (("1", 5.0, True), ("1", 50.0, None), ("0", 5.0, None), ("2", 5.0, None)):
        assert finished([best], name, read_name(name), newest)[0] is said


def ordered(*entries: tuple[str, float]) -> list[str]:
    listed = [Listed(name, "folder", mtime=mtime) for name, mtime in entries]
    times = dict(entries)

    def listing(path: str) -> list[Listed]:
        return [Listed("checkpoint.pt", "file", mtime=times[path.rpartition("/")[2]])]

    return [item.name for item in candidates("/c", listed, listing)]


def test_what_has_no_number_stands_where_its_time_puts_it() -> None:
    assert ordered(("0", 100.0), ("1", 1000.0), ("interrupted", 5000.0)) == ["0", "1", "interrupted"]
    assert ordered(("0", 100.0), ("1", 9000.0), ("interrupted", 5000.0)) == ["0", "interrupted", "1"]


def test_a_copy_saved_together_with_a_numbered_one_is_not_newer() -> None:
    assert ordered(("step_100", 1000.0), ("step_200", 2000.0), ("last", 2003.0)) == ["step_100", "last", "step_200"]


def test_epochs_and_steps_side_by_side_follow_their_times() -> None:
    assert ordered(("epoch_1", 3000.0), ("step_500", 1000.0), ("step_900", 4000.0)) == [
        "step_500",
        "epoch_1",
        "step_900",
    ]


def test_numbers_alone_are_steps_where_nanotron_s_pointer_lies() -> None:
    listed = [Listed("1000", "folder"), Listed("latest.txt", "file")]
    (item,) = candidates("/c", listed, lambda _: [Listed("checkpoint_metadata.json", "file")])
    assert (item.name, item.step) == ("1000", 1000)


def test_the_newest_of_several_links_names_an_epoch_s_step() -> None:
    links = [Listed("epoch0_step100", "link", "0", 10.0), Listed("epoch0_step200", "link", "0", 20.0)]
    (item,) = candidates("/c", [Listed("0", "folder"), *links], lambda _: [Listed("model.safetensors", "file")])
    assert (item.step, item.link) == (200, "epoch0_step200")


def test_parts_of_a_checkpoint_lie_in_folders_of_their_own_and_nothing_else_is_looked_into() -> None:
    inside = {
        "iter_5": [Listed("model", "folder"), Listed("logs", "folder"), Listed("meta.json", "file")],
        "model": [Listed(".metadata", "file"), Listed("__0_0.distcp", "file")],
    }
    asked: list[str] = []

    def listing(path: str) -> list[Listed]:
        asked.append(path)
        return inside.get(path.rpartition("/")[2], [])

    (item,) = candidates("/c", [Listed("iter_5", "folder"), Listed("src", "folder")], listing)
    assert item.files == ("meta.json", "model/.metadata", "model/__0_0.distcp")
    assert asked == ["/c/iter_5", "/c/iter_5/model", "/c/src"]
