"""Which folder of hidden states is used: the rule, and what the plan says of it."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_tui.evals.caches import Wanted, choose
from dflash_tui.evals.errors import EvaluationError
from dflash_tui.records.survey import Survey, SurveyedCache, SurveyedHost, SurveyedPrompt, SurveyProblem

HOST = SurveyedHost("lab", "b", "3.11", "/py", "2.13", "Linux", 2, 2, 1 << 34, 1 << 33, None, (0.0,), 1 << 40)
ASKED = tuple(f"p{index}" for index in range(10))


def cache(folder: str, usable: int, *, recorded: bool = True, skip: int = 0) -> SurveyedCache:
    """A folder with usable hidden states of the first so many prompts, after `skip` that it lacks."""
    origin: dict[str, Any] = (
        {"identity": {"target_config_sha256": "c"}, "layer_ids": (1, 3)} if recorded else {"identity": {}}
    )
    have = ASKED[skip : skip + usable]
    prompts = tuple(
        SurveyedPrompt(name, "s", name in have, f"{name}.safetensors" if name in have else None, **origin)
        for name in ASKED
    )
    problems = () if usable else (SurveyProblem("error", "hidden states", f"{folder}: none"),)
    return SurveyedCache(folder, prompts, usable, problems)


def survey(*caches: SurveyedCache) -> Survey:
    return Survey(1, HOST, None, None, (), 0, (SurveyProblem("warn", "x", "of the host"),), caches=caches)


def test_the_folder_that_is_usable_for_most_prompts_is_used_and_the_plan_says_why() -> None:
    found, chosen = choose(survey(cache("/root/eval/hs", 3), cache("/big/hs", 10)))
    assert (chosen.folder, chosen.why) == ("/big/hs", "10 of 10 prompts; /root/eval/hs has 3")
    assert chosen.usable == {"/root/eval/hs": 3, "/big/hs": 10}
    assert found.memory_needed == 10
    assert all(prompt.features for prompt in found.prompts)


def test_of_equals_the_one_that_records_what_it_is_of() -> None:
    _, chosen = choose(survey(cache("/old", 3, recorded=False), cache("/new", 3)))
    assert (chosen.folder, chosen.why) == ("/new", "3 of 10 prompts; /old has as many, of unrecorded origin")


def test_more_prompts_count_more_than_a_recorded_origin() -> None:
    assert choose(survey(cache("/new", 3), cache("/old", 4, recorded=False)))[1].folder == "/old"


def test_of_equals_otherwise_the_first_configured() -> None:
    _, chosen = choose(survey(cache("/b", 3), cache("/a", 3)))
    assert (chosen.folder, chosen.why) == ("/b", "3 of 10 prompts; /a has as many")


def test_where_none_holds_anything_the_first_is_the_one_that_is_captured_into() -> None:
    found, chosen = choose(survey(cache("/b", 0), cache("/a", 0)))
    assert chosen.folder == "/b"
    assert [problem.sentence for problem in found.problems] == ["of the host", "/b: none"]


def test_only_the_chosen_folder_s_problems_are_told() -> None:
    found, _ = choose(survey(cache("/b", 0), cache("/a", 1)))
    assert [problem.sentence for problem in found.problems] == ["of the host"]


def test_a_single_folder_needs_no_reason() -> None:
    assert choose(survey(cache("/a", 3)))[1].why == ""


def test_the_folder_of_the_result_to_be_like_wins_while_it_still_can() -> None:
    both = survey(cache("/big", 10), cache("/theirs", 3))
    _, chosen = choose(both, Wanted("previous", "/theirs", ("p0", "p2")))
    assert chosen.folder == "/theirs"
    assert chosen.why == "as previous used them; 3 of 10 prompts; /big has 10"


def test_one_that_lost_a_prompt_of_that_result_does_not_win_and_it_is_said() -> None:
    both = survey(cache("/big", 10), cache("/theirs", 3))
    _, chosen = choose(both, Wanted("previous", "/theirs", ("p0", "p5")))
    assert chosen.folder == "/big"
    assert chosen.why == ("previous used /theirs, which has 1 of its 2 prompts now; 10 of 10 prompts; /theirs has 3")


def test_without_any_folder_there_is_nothing_to_choose() -> None:
    with pytest.raises(EvaluationError, match=r"evaluation\.hidden_states"):
        choose(survey())
