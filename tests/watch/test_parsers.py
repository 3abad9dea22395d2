"""Lines of every dialect of this version, and lines that only look like progress."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.watch.lines import LINE_LIMIT, plain
from dflash_tui.watch.parsers import parse, parse_unfinished
from dflash_tui.watch.reading import Reading, Throughput

bits = st.sampled_from(
    ["step", "loss", "=", ": ", " ", "/", "%|", "|", "[", "]", "<", "{", "}", "'", '"', ",", "1", "20000", "1e-4",
     "nan", "2026-05-21", "09:00:00", "it/s", "s/it", "tok/s", "K", "█", "(", ")", "saved checkpoint", "tensor(", "\\",
     "epoch", "block_size", "null", " - ", "#015", "^M", "[rank0]:", "(W pid=1) ", '{"log":"', "1 day, 2:03:11"]
)  # fmt: skip


def one(text: str) -> Reading:
    readings = parse(text)
    assert len(readings) == 1, readings
    return readings[0]


def test_reads_the_line_of_the_story() -> None:
    found = one("[2026-05-21 09:36:25] step=5329/20000 loss=2.0065 lr=2.90e-04 block_size=32 tok/s=19.5K")
    assert (found.step, found.total, found.loss, found.lr) == (5329, 20000, 2.0065, 2.9e-4)
    assert found.block_size == 32
    assert found.throughput == Throughput(19500.0, "tok/s", "unknown")
    assert found.logged_at == datetime(2026, 5, 21, 9, 36, 25)


@pytest.mark.parametrize("speed", ["inf", "nan", "n/a"])
def test_the_value_before_a_speed_that_is_no_number_is_not_the_speed(speed: str) -> None:
    found = one(f"step=5329/20000 loss=2.0065 block_size=32 tok/s={speed}")
    assert (found.block_size, found.throughput) == (32, None)


def test_reads_the_announcement_of_a_save() -> None:
    found = one("[2026-05-21 09:00:35] saved checkpoint: /workspace/checkpoints/step_4000/checkpoint.pt")
    assert found.announcement is not None
    assert (found.announcement.kind, found.announcement.step) == ("saved", 4000)
    assert found.announcement.path == "/workspace/checkpoints/step_4000/checkpoint.pt"
    assert found.step is None


@pytest.mark.parametrize(
    "text",
    [
        "Saved checkpoint to /data/runs/dspark/step_2750",
        "saved checkpoint /data/runs/dspark/step_2750",
        "INFO Model weights saved in /data/runs/dspark/step_2750",
        "Checkpoint saved at /data/runs/dspark/step_2750.",
        "wrote checkpoint '/data/runs/dspark/step_2750'",
    ],
)
def test_knows_a_save_in_other_words(text: str) -> None:
    (said,) = [reading.announcement for reading in parse(text) if reading.announcement is not None]
    assert (said.kind, said.path, said.step) == ("saved", "/data/runs/dspark/step_2750", 2750)


def test_a_save_that_only_begins_is_no_save() -> None:
    (said,) = [reading.announcement for reading in parse("Saving model checkpoint to output/checkpoint-1000")]
    assert said is not None
    assert said.kind == "saving"


def test_other_losses_are_not_the_loss() -> None:
    found = one("step 7 | unscaled_loss: 9.0 | loss scale: 1.0 | cross-entropy-loss: 8.0 | loss: 2.5 | val_loss: 3.0")
    assert found.loss == 2.5


@pytest.mark.parametrize("value", ["16", "32"])
def test_a_servers_cache_block_is_no_training_block(value: str) -> None:
    found = parse(f"INFO vllm.config: block_size={value}, gpu_memory_utilization=0.9, kv_cache_dtype=auto")
    assert not any(reading.block_size for reading in found)


@pytest.mark.parametrize(
    "text",
    [
        "[rank7]:[E419 10:42:28.858931807 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4486, OpType=ALLTOALL, NumelIn=46684160) ran for 600013 milliseconds before timing out.",
        'INFO:     127.0.0.1:52024 - "GET /health HTTP/1.1" 200 OK',
        "Warmup steps: 100",
        "eval step 3/64",
        "Trainable parameters = 57,016,320/6,852,203,520 (0.83% trained)",
        "tokenizer.json: 100%|██████████| 7.15M/7.15M [00:00<00:00, 9.24MB/s]",
    ],
)
def test_numbers_that_are_no_steps(text: str) -> None:
    assert all(reading.step is None for reading in parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "Epoch: 3 | Step: 5329/20000 | Loss: 2.5 | LR: 1e-4 | 19,500 tokens/s",
        "step 5,329/20,000 · loss 2.5 · lr 1e-4 · 19.5 Ktok/s · eta 3h12m",
        "[INFO] 2026-05-21 09:36:25,123 trainer.py:88 global_step=5329/20000 loss=2.5 lr=1e-4 tokens_per_sec=19500",
        "Step 5329/20000, loss=2.5, acc=0.61, lr=1.0e-04, tok/s=19.5K, 1.62s/step",
        "INFO:train:step: 5329 / 20000, loss: 2.5 (avg 3.2), lr: 0.0001, throughput 19500 tok/s",
        "{'global_step': 5329, 'max_steps': 20000, 'loss': '2.5', 'learning_rate': 1e-4, 'tokens_per_second': 19500}",
        'step 5329: {"total_steps": 20000, "train/loss": 2.5, "train/lr": 0.0001, "tok/s": "19.5K"}',
        "\x1b[36m(Trainer pid=12)\x1b[0m step=5329/20000 loss=2.5 lr=1e-4 tok/s=19.5k [repeated 3x across cluster]",
    ],
)
def test_reads_the_same_values_in_any_layout(text: str) -> None:
    found = one(plain(text))
    assert (found.step, found.total, found.loss, found.lr) == (5329, 20000, 2.5, 1e-4)
    assert found.throughput is not None
    assert (found.throughput.value, found.throughput.unit) == (19500.0, "tok/s")


def test_a_bar_and_a_record_on_one_line_are_two_readings() -> None:
    bar, record = parse(" 8%|▊  | 500/6060 [3:21:10<37:17:02, 24.14s/it]{'loss': '4.163', 'epoch': '1.25'}")
    assert (bar.bar, bar.step, bar.total, bar.step_seconds) == (True, 500, 6060, 24.14)
    assert (record.bar, record.loss, record.epoch) == (False, 4.163, 1.25)


def test_only_whole_bars_count_in_an_unfinished_line() -> None:
    assert parse_unfinished('{"step": 42, "loss": 0.87') == ()
    assert parse_unfinished("step 70030/90000 | loss: 2.4") == ()
    (bar,) = parse_unfinished("13%|█▎  | 4820/38250 [57:12<6:36:48, 1.40it/s, loss=2.28]")
    assert (bar.step, bar.loss) == (4820, 2.28)


def test_an_evaluation_replaces_nothing() -> None:
    found = one("step 2000: {'eval/avg_loss': 2.555, 'eval/avg_acc': 0.71, 'eval/per_position_acc': [0.7, 0.6]}")
    assert found.evaluation
    assert found.loss is None


def test_a_stamp_with_nanoseconds_and_zone_is_read() -> None:
    found = one("2026-03-04T05:06:09.223456789Z step 130/1000 loss 2.480 lr 1.00e-04 tok/s 15,180")
    assert found.logged_at == datetime(2026, 3, 4, 5, 6, 9, 223456, tzinfo=UTC)
    assert found.throughput == Throughput(15180.0, "tok/s")


@given(st.text(max_size=300) | st.lists(bits, max_size=40).map("".join))
def test_never_raises(text: str) -> None:
    parse(text)
    parse_unfinished(text)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "{",
        "1",
        " 1",
        "1,",
        "[",
        "%|",
        "100%|",
        "=",
        "a=",
        "a=1 ",
        "'",
        "1:",
        "/",
        "x/",
        "{'a':",
        "(",
        "saved ",
        "1/",
        "1h",
        "a.",
        "tensor(",
        "\\",
        "step ",
        "1 day, ",
        "_",
        ".",
        "100%|1/1 [",
        "saved /",
        "resumed x from ",
    ],
)
def test_takes_a_hostile_line_in_reasonable_time(piece: str) -> None:
    text = (piece * LINE_LIMIT)[:LINE_LIMIT]
    begin = time.process_time()
    parse(text)
    assert time.process_time() - begin < 2.0
