from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.config import ConfigError, load_config, parse_config

WHOLE = """
[training]
host = "ct200"
log = "/workspace/slammed5/train.log"
checkpoints = "/workspace/slammed5/checkpoints"

[evaluation]
host = "ct129"
root = "/root/eval"
target = "/models/target"
prompts = "/root/eval/prompts.jsonl"
hidden_states = "/root/eval/hs"
block_size = 16

[hosts.pve1]
ssh = "root@pve1"
[hosts.ct200]
via = "pve1"
container = ["pct", "exec", "200", "--"]
[hosts.ct129]
ssh = "ct129"

[[baseline]]
name = "previous"
host = "ct129"
file = "/root/eval/eval_results.json"
"""


def test_reads_the_whole_example() -> None:
    config = parse_config(WHOLE, "config.toml")
    assert config.training.name == "slammed5"
    assert config.hosts["ct200"].container == ("pct", "exec", "200", "--")
    assert config.evaluation is not None
    assert config.evaluation.block_size == 16
    assert [baseline.name for baseline in config.baselines] == ["previous"]


def test_a_gate_a_second_cache_a_drafter_as_baseline_and_an_own_harness_can_be_named() -> None:
    more = (
        WHOLE.replace('"/root/eval/hs"', '["/root/eval/hs", "/big/hs"]')
        + """
[[baseline]]
name = "z-lab"
drafter = "/models/z-lab"
[harness]
command = ["python", "run_eval.py", "{checkpoint}"]
results = "/root/eval/eval_results.json"
"""
    )
    more += '[hosts.gate]\njump_only = true\n[hosts.lab]\njump = "gate"\n'
    config = parse_config(more, "config.toml")
    assert config.evaluation is not None
    assert config.evaluation.hidden_states == ("/root/eval/hs", "/big/hs")
    assert [(item.name, item.drafter, item.file) for item in config.baselines][1] == ("z-lab", "/models/z-lab", "")
    assert config.harness is not None
    assert config.harness.results == ("/root/eval/eval_results.json",)
    assert config.hosts["gate"].jump_only
    assert config.hosts["lab"].jump == "gate"


def test_the_readme_s_example_is_a_valid_config() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    example = readme.split("```toml\n")[1].split("```")[0]
    evaluation = parse_config(example, "README.md").evaluation
    assert evaluation is not None
    assert evaluation.host == "ct129"


def test_a_console_that_only_watches_needs_no_evaluation() -> None:
    head, _, tail = WHOLE.partition("[evaluation]")
    watching = head + tail[tail.index("[hosts.pve1]") :]
    assert parse_config(watching, "config.toml").evaluation is None


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('log = "/workspace/slammed5/train.log"\n', "", r"config.toml: training.log is missing"),
        ("block_size = 16", 'block_size = "16"', r"evaluation.block_size: found '16', expected a whole number"),
        ("block_size = 16", "block_size = -1", r"evaluation.block_size: found -1, expected 0 or more"),
        ("block_size = 16", "blocksize = 16", r"evaluation.blocksize: unknown key; did you mean 'block_size'\?"),
        ('host = "ct200"', 'host = "ct201"', r"training.host: found 'ct201', which no \[hosts.ct201\] describes"),
        ('root = "/root/eval"', 'root = "eval"', r"evaluation.root: found 'eval', expected an absolute path"),
        ('via = "pve1"\n', "", r"hosts.ct200: `container` and `via` go together"),
        ('name = "previous"', 'name = "../previous"', r"baseline.name: found '../previous', expected up to 64 letters"),
        ('via = "pve1"', 'via = "ct200"', r"hosts.ct200.via: the chain comes back to 'ct200'"),
        ('via = "pve1"', 'via = "pve1"\nssh = "ct200"', r"hosts.ct200.ssh: found 'ct200' beside `container`"),
        ("[hosts.pve1]", '[hosts.""]\n[hosts.pve1]', r"hosts: found an empty name"),
        ("[hosts.pve1]", "[hosts.local]\n[hosts.pve1]", r"hosts.local: the name means this machine"),
        ("block_size = 16", "block_size = 1", r"evaluation.block_size: found 1, expected 0 .* or 2 to 256"),
        ("block_size = 16", "block_size = true", r"evaluation.block_size: found True, expected a whole number"),
        ("[training]", '[training]\nname = "../other"', r"training.name: found '../other'"),
        ("[training]", '[training]\narguments = "args.json"', r"training.arguments: .* expected an absolute path"),
        ('file = "/root/eval/eval_results.json"', 'file = "x.json"', r"baseline.previous.file: .* an absolute path"),
        ("[[baseline]]", '[drafter]\ntaps = "1, 2"\n[[baseline]]', r"drafter.taps: .* a list of whole numbers"),
        ("[[baseline]]", '[drafter]\nrope_theta = "1e6"\n[[baseline]]', r"drafter.rope_theta: .* expected a number"),
        ("[[baseline]]", '[drafter]\nconfig = "c.json"\n[[baseline]]', r"drafter.config: .* an absolute path"),
        ("[[baseline]]", '[[baseline]]\nname = "previous"\nfile = "/x"\n[[baseline]]', r"two are called 'previous'"),
        ("[training]", "version = 9\n[training]", r"version: found 9, this dflash-tui knows 1"),
        ("[evaluation]", "[evaluation", r"config.toml: not TOML"),
        ('ssh = "root@pve1"', "jump_only = true", r"hosts.ct200.via: JUMP_ONLY: found 'pve1', which may be hopped"),
        ('ssh = "ct129"', "jump_only = true", r"evaluation.host: JUMP_ONLY: found 'ct129'"),
        ('ssh = "ct129"', 'jump = "gate"', r"hosts.ct129.jump: found 'gate', which no \[hosts.gate\] describes"),
        (
            'ssh = "ct129"',
            'jump = "ct200"',
            r"hosts.ct129.jump: found 'ct200', expected a host that is reached over SSH",
        ),
        ('ssh = "ct129"', "attached = true", r"hosts.ct129.attached: only what a `container` launcher starts ends"),
        ('via = "pve1"', 'via = "pve1"\njump = "ct129"', r"hosts.ct200.jump: found 'ct129' beside `container`"),
        ('via = "pve1"', 'via = "pve1"\njump_only = true', r"training.host: JUMP_ONLY"),
        ('"/root/eval/hs"', "[]", r"evaluation.hidden_states: found an empty list"),
        ('"/root/eval/hs"', '["/a", "b"]', r"evaluation.hidden_states: found 'b', expected an absolute path"),
        ('"/root/eval/hs"', '["/a", "/a"]', r"evaluation.hidden_states: '/a' is named twice"),
        ('host = "ct129"\nfile', 'drafter = "/x"\nfile', r"baseline.previous: found both of `file` and `drafter`"),
        ('file = "/root/eval/eval_results.json"', "", r"baseline.previous: found neither of `file` and `drafter`"),
        ("file = ", 'config = "/c.json"\nfile = ', r"baseline.previous.config: belongs to a `drafter`"),
        ("[[baseline]]", "[harness]\ncommand = []\n[[baseline]]", r"harness.command: found no program"),
        ("[[baseline]]", "[harness]\n[[baseline]]", r"harness.command is missing"),
        (
            "[[baseline]]",
            '[harness]\ncommand = ["x"]\nresults = "../y"\n[[baseline]]',
            r"harness.results: found '\.\./y'",
        ),
        (
            "[[baseline]]",
            '[harness]\ncommand = ["x"]\nprogress = "("\n[[baseline]]',
            r"harness.progress: .* no regular",
        ),
        ("[[baseline]]", '[harness]\ncommand = ["x"]\nprogress = "a"\n[[baseline]]', r"found no group done or total"),
        ("[[baseline]]", '[harness]\ncommand = ["x"]\nenvironment = {A = 1}\n[[baseline]]', r"a table of strings"),
        ('["pct", "exec", "200", "--"]', '"pct exec 200"', r"hosts.ct200.container: .* expected a list of strings"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_file_and_key(old: str, new: str, sentence: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError, match=sentence):
        parse_config(WHOLE.replace(old, new), "config.toml")


def test_a_byte_order_mark_and_line_ends_of_another_system_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf" + WHOLE.replace("\n", "\r\n").encode())
    assert load_config(path).training == parse_config(WHOLE, "x").training


def test_a_missing_file_points_to_init_and_the_demo(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"write one with: dflash-tui init .*dflash-tui demo"):
        load_config(tmp_path / "config.toml")


@given(st.text())
def test_any_other_text_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^config\.toml: "):
        parse_config(text, "config.toml")


def test_how_checkpoints_move_can_be_said_and_is_slim_through_this_machine_otherwise() -> None:
    plain = parse_config(WHOLE, "config.toml").transfer
    assert (plain.mode, plain.route, plain.bytes_per_second) == ("slim", "relay", None)
    said = parse_config(
        WHOLE.replace('ssh = "ct129"', 'ssh = "ct129"\ndirect = "root@10.0.0.29:22"')
        + '[transfer]\nmode = "full"\nroute = "auto"\nlimit = "1.6 Gbit/s"\n',
        "config.toml",
    )
    assert (said.transfer.mode, said.transfer.route, said.transfer.bytes_per_second) == ("full", "auto", 200e6)
    assert said.hosts["ct129"].direct == "root@10.0.0.29:22"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('mode = "thin"', ("transfer.mode", "'thin'", "'slim' or 'full'")),
        ('route = "joined"', ("transfer.route", "'joined'", "'relay' or 'direct' or 'auto'")),
        ('limit = "200"', ("transfer.limit", "'200'", "200 MB/s")),
        ('limit = "200 Mbps"', ("transfer.limit", "'200 Mbps'", "1 Gbit/s")),
        ('limit = "0 MB/s"', ("transfer.limit", "'0 MB/s'", "nothing would move")),
        ('limit = "-3MB/s"', ("transfer.limit", "'-3MB/s'", "less than nothing")),
        ("limit = 200", ("transfer.limit", "200", 'a string such as "200 MB/s"')),
    ],
)
def test_what_can_t_be_a_way_to_move_is_refused_with_what_could(line: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(f"{WHOLE}\n[transfer]\n{line}\n", "config.toml")
    for word in ("config.toml", *words):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("200 MB/s", 200e6), ("200MB/s", 200e6), ("3 KB/s", 3e3), ("3 kb/s", 3e3), ("1.5 mib/S", 1.5 * (1 << 20)),
        ("1 Gbit/s", 125e6), ("8 kBit/s", 1e3), ("5 b/s", 5.0),
    ],
)  # fmt: skip
def test_a_speed_is_in_bytes_unless_it_says_bit_in_whatever_capitals(text: str, rate: float) -> None:
    config = parse_config(f'{WHOLE}\n[transfer]\nlimit = "{text}"\n', "config.toml")
    assert config.transfer.bytes_per_second == rate


@pytest.mark.parametrize("found", ["-oProxyCommand=x", "root@", "a b", "host:0", "me@host:22:3"])
def test_a_way_for_other_hosts_that_ssh_could_misread_is_refused(found: str) -> None:
    with pytest.raises(ConfigError, match=r"hosts\.ct129\.direct"):
        parse_config(WHOLE.replace('ssh = "ct129"', f'ssh = "ct129"\ndirect = "{found}"'), "config.toml")


def test_no_file_goes_to_a_host_that_is_only_hopped_through() -> None:
    more = '[hosts.gate]\njump_only = true\ndirect = "me@gate:22"\n'
    with pytest.raises(ConfigError, match=r"hosts\.gate\.direct.*jump_only"):
        parse_config(WHOLE + more, "config.toml")
