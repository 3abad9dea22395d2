from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dflash_tui.evals.preflight import preflight, queue
from dflash_tui.records.survey import Survey, SurveyedHost, SurveyedRun, SurveyProblem

GIB = 1 << 30


def surveyed(problems: tuple[SurveyProblem, ...] = (), needed: int | None = 2 * GIB, **host: Any) -> Survey:
    machine = SurveyedHost(
        hostname="lab",
        boot_id="b",
        python="3.11.7",
        executable="/usr/bin/python3",
        torch="2.13.0",
        platform="Linux",
        cpus=8,
        cpus_usable=8,
        memory_total=64 * GIB,
        memory_available=32 * GIB,
        memory_limit=None,
        loadavg=(0.5, 0.5, 0.5),
        free_bytes=100 * GIB,
    )
    return Survey(1, replace(machine, **host), None, None, (), needed, problems)


def test_a_host_with_room_is_not_complained_about() -> None:
    judged = preflight(surveyed(), "ct129", 4)
    assert judged.refusals == ()
    assert judged.warnings == ()


def test_too_little_memory_is_refused_with_both_figures() -> None:
    (sentence,) = preflight(surveyed(memory_available=GIB), "ct129", 4).refusals
    assert "1.0 GiB of memory free, about 2.0 GiB needed" in sentence


def test_the_container_s_own_limit_counts() -> None:
    assert preflight(surveyed(memory_limit=GIB), "ct129", 4).refusals
    assert not preflight(surveyed(memory_limit=3 * GIB), "ct129", 4).refusals


def test_a_full_disk_is_refused() -> None:
    (sentence,) = preflight(surveyed(free_bytes=1 << 20), "ct129", 4).refusals
    assert "1 MiB free" in sentence


def test_a_busy_host_is_a_warning_and_an_idle_one_is_not() -> None:
    (sentence,) = preflight(surveyed(loadavg=(7.5, 7.0, 6.0)), "ct129", 4).warnings
    assert "load 7.5 on 8 cores" in sentence
    assert not preflight(surveyed(loadavg=(4.0, 7.0, 9.0)), "ct129", 4).warnings


def test_every_reason_is_told_once() -> None:
    problem = SurveyProblem("error", "target", "no config.json")
    judged = preflight(surveyed((problem, problem, SurveyProblem("warn", "prompt", "zero rows"))), "ct129", 1)
    assert judged.refusals == ("no config.json",)
    assert judged.warnings == ("zero rows",)


def run(name: str, memory: int | None = GIB, phase: str = "drafting", request: str = "r") -> SurveyedRun:
    return SurveyedRun(name, request, phase, memory)


def test_memory_that_a_run_of_ours_holds_is_waited_for() -> None:
    short = replace(surveyed(memory_available=GIB), working=(run("full-1", 2 * GIB),))
    judged = preflight(short, "ct129", 4)
    assert judged.refusals == ()
    assert judged.warnings == (
        "ct129: 1.0 GiB of memory free, about 2.0 GiB needed; it will be there when full-1 has ended",
    )


@pytest.mark.parametrize("memory", [GIB // 2, None])
def test_memory_that_its_end_would_not_give_is_refused_all_the_same(memory: int | None) -> None:
    short = replace(surveyed(memory_available=GIB), working=(run("full-1", memory),))
    assert preflight(short, "ct129", 4).refusals


def test_a_container_that_is_too_small_is_refused_whoever_works_there() -> None:
    small = replace(surveyed(memory_limit=GIB, memory_available=GIB // 2), working=(run("full-1", 8 * GIB),))
    assert preflight(small, "ct129", 4).refusals


def test_the_load_of_runs_that_end_before_is_no_warning() -> None:
    busy = replace(surveyed(loadavg=(7.5, 7.0, 6.0)), working=(run("full-1"),))
    assert not preflight(busy, "ct129", 4).warnings


def test_the_queue_is_told_before_it_is_joined() -> None:
    found = replace(surveyed(), working=(run("full-1"), run("quick-2", phase="queued"), run("capture-3", request="")))
    assert queue(found, "ct129", "another") == (
        "ct129: waits for its turn behind full-1 and 2 more; one run works there at a time",
    )
    assert queue(found, "ct129", "r") == ()
    assert queue(surveyed(), "ct129", "another") == ()
