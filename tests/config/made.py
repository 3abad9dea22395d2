"""Configs made by hypothesis: whole ones, and data that is nearly one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dflash_tui.config import (
    BaselineConfig,
    Config,
    EvaluationConfig,
    HarnessConfig,
    HostConfig,
    TrainingConfig,
    TransferConfig,
)
from dflash_tui.config.keys import LARGEST_BLOCK, TABLES

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
paths = words.map(lambda text: f"/{text}")
naturals = st.integers(0, 1 << 40)
names = st.one_of(st.sampled_from(["pve1", "ct200", "a.b", 'q"', "ü"]), words).filter(
    lambda name: name not in ("", "local")
)
argv = st.lists(words, min_size=1, max_size=3).filter(lambda words: bool(words[0])).map(tuple)


def configs() -> st.SearchStrategy[Config]:
    """Every kind of config that reading accepts."""
    return st.composite(_config)()


def _config(draw: st.DrawFn) -> Config:
    hosts = _hosts(draw)
    usable = ["local", *(name for name, host in hosts.items() if not host.jump_only)]
    evaluation = draw(st.none() | st.builds(
        EvaluationConfig,
        host=st.sampled_from(usable), root=paths, target=paths, prompts=paths, python=words,
        hidden_states=st.lists(paths, min_size=1, max_size=3, unique=True).map(tuple),
        block_size=st.just(0) | st.integers(2, LARGEST_BLOCK), threads=naturals,
    ))  # fmt: skip
    where = st.sampled_from(["", *usable])
    drafters = st.builds(BaselineConfig, name=st.just(""), drafter=paths, config=st.just("") | paths, host=where)
    files = st.builds(BaselineConfig, name=st.just(""), file=paths, host=where)
    baselines = draw(st.lists(drafters | files if evaluation else files, max_size=3))
    return Config(
        path="config.toml",
        training=draw(
            st.builds(
                TrainingConfig,
                name=words.filter(lambda name: "/" not in name and name not in ("", ".", "..")),
                host=st.sampled_from(usable),
                log=paths,
                checkpoints=paths,
                arguments=st.just("") | paths,
            )
        ),
        evaluation=evaluation,
        hosts=hosts,
        drafter=draw(_drafter()),
        baselines=tuple(
            BaselineConfig(f"b{at}", item.file, item.drafter, item.host, item.config)
            for at, item in enumerate(baselines)
        ),
        harness=draw(st.none() | _harness()) if evaluation else None,
        transfer=draw(
            st.builds(
                TransferConfig,
                mode=st.sampled_from(["slim", "full"]),
                route=st.sampled_from(["relay", "direct", "auto"]),
                limit=st.sampled_from(["", "200 MB/s", "1.5GiB/s", "800 Mbit/s"]),
            )
        ),
        theme=draw(st.just("harbour") | words),
    )


def _hosts(draw: st.DrawFn) -> dict[str, HostConfig]:
    """Hosts that are reached over SSH, each after the first perhaps through the one before, then containers on them."""
    made: dict[str, HostConfig] = {}
    for name in draw(st.lists(names, max_size=3, unique=True)):
        jump = draw(st.sampled_from(["", *made]))
        only = draw(st.booleans())
        direct = "" if only else draw(st.sampled_from(["", "10.0.0.2", "root@[fe80::2]:22", "me@lab.example.org:2222"]))
        made[name] = HostConfig(name, ssh=draw(words), jump=jump, jump_only=only, direct=direct)
    vias = ["local", *(name for name, host in made.items() if not host.jump_only)]
    for name in draw(st.lists(names.filter(lambda name: name not in made), max_size=2, unique=True)):
        via = draw(st.sampled_from([name for name in vias if name]))
        made[name] = HostConfig(name, via=via, container=draw(argv), attached=draw(st.booleans()))
    return made


def _drafter() -> st.SearchStrategy[dict[str, Any]]:
    reals = st.floats(allow_nan=False) | st.integers(-(1 << 60), 1 << 60)
    values: dict[str, st.SearchStrategy[Any]] = {
        "config": paths,
        "taps": st.lists(naturals, max_size=3),
        "layer_types": st.lists(words, max_size=3),
        "rope_theta": reals,
        "rms_norm_eps": reals,
        "is_causal": st.booleans(),
        "sample_from_anchor": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional={key: values.get(key, naturals) for key in TABLES["drafter"]})


def _harness() -> st.SearchStrategy[HarnessConfig]:
    places = words.filter(lambda text: text and ".." not in text.split("/"))
    return st.builds(
        HarnessConfig,
        command=argv,
        results=st.lists(places, max_size=2).map(tuple),
        progress=st.sampled_from(["", r"(?P<done>\d+)/(?P<total>\d+)"]),
        import_as=words,
        environment=st.dictionaries(words, words, max_size=2),
    )


_anything = st.one_of(
    st.sampled_from(["", "/x", "x", "local", "pve1", "ct200", ".."]),
    st.sampled_from(["full", "me@x:22", "-x", "1 kB/s", "0 B/s", "1 Mb/s"]),
    st.sampled_from([0, 1, 2, 16, 256, 257, -1, 1.5]),
    st.booleans(),
    st.lists(st.sampled_from(["", "/x", "pct", "../x", 1, True]), max_size=2),
    st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["", "x", 1]), max_size=2),
)


def near_configs() -> st.SearchStrategy[dict[str, Any]]:
    """What a file that is nearly a config holds: a right one in which a few values were replaced, added or left out."""
    return st.composite(_near)()


def _near(draw: st.DrawFn) -> dict[str, Any]:
    data: dict[str, Any] = {
        "version": 1,
        "training": {"host": "ct200", "log": "/t/log", "checkpoints": "/t/checkpoints"},
        "evaluation": {
            "host": "ct129", "root": "/e", "target": "/m", "prompts": "/p", "hidden_states": "/h", "block_size": 16,
        },
        "hosts": {
            "pve1": {"ssh": "pve1"},
            "ct200": {"via": "pve1", "container": ["pct", "exec", "200", "--"]},
            "ct129": {"ssh": "ct129"},
        },
        "baseline": [{"name": "previous", "file": "/x"}],
        "harness": {"command": ["python"]},
        "transfer": {"mode": "slim", "route": "auto", "limit": "200 MB/s"},
    }  # fmt: skip
    for _ in range(draw(st.integers(0, 3))):
        place, table = draw(st.sampled_from(_places(data)))
        if draw(st.booleans()) and table is not None:
            place[draw(st.sampled_from([*TABLES[table], "unknown"]))] = draw(_anything)
        elif place:
            key = draw(st.sampled_from(sorted(place)))
            if draw(st.booleans()):
                del place[key]
            else:
                place[key] = draw(_anything)
    return data


def _places(data: dict[str, Any]) -> list[tuple[dict[str, Any], str | None]]:
    """Every table in the data, with its name under TABLES."""
    hosts, baselines = data.get("hosts"), data.get("baseline")
    inner = [(item, "hosts") for item in hosts.values()] if isinstance(hosts, dict) else []
    inner += [(item, "baseline") for item in baselines] if isinstance(baselines, list) else []
    inner += [(data[name], name) for name in ("training", "evaluation", "harness", "transfer") if name in data]
    return [(data, None), *((item, name) for item, name in inner if isinstance(item, dict))]
