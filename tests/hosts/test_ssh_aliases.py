from __future__ import annotations

from pathlib import Path

from dflash_tui.hosts.ssh_aliases import ssh_aliases


def test_the_hosts_that_a_person_named_are_offered_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "# Host commented\n"
        "Host pve1 pve2 # both\n  HostName 10.0.0.1\n"
        'host = "ct129"\n'
        "HOST=ct200\n"
        "Host *.lab gpu? !bad box\n"
        "Match host other\n  User root\n"
        "Host pve1\nHost *\n  ProxyJump gate\n"
    )
    assert ssh_aliases(tmp_path / "config") == ("pve1", "pve2", "ct129", "ct200", "box")


def test_included_files_are_read_where_they_are_included(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "b").write_text("Host b1\n")
    (tmp_path / "conf.d" / "a").write_text(f"Host a1\nInclude {tmp_path}/more\n")
    (tmp_path / "more").write_text("Host deep\nInclude config\n")
    (tmp_path / "config").write_text("Host first\nInclude conf.d/* absent\nHost last\n")
    assert ssh_aliases(tmp_path / "config") == ("first", "a1", "deep", "b1", "last")


def test_what_cannot_be_read_offers_nothing(tmp_path: Path) -> None:
    assert ssh_aliases(tmp_path / "none") == ()
    (tmp_path / "config").write_text('Host "unclosed\nHost good\nHost -oProxyCommand=x\n')
    assert ssh_aliases(tmp_path / "config") == ("good",)
