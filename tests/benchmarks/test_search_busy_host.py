"""A search on a busy host, and what the page of results tells of searches."""

from __future__ import annotations

from benchmarks.page.models import false_promotions, offline
from benchmarks.search.busy_host import spinning


def test_spinning_programs_end() -> None:
    with spinning(1) as programs:
        assert programs[0].poll() is None
    assert programs[0].poll() is not None


def test_page_tells_what_was_found() -> None:
    found = {"60": [0.5, 0.25]}
    case = {"table": "t", "failing": 0.3, "noise": 0.05, "figures": {"auto": found}}
    text = offline({"held_out": ["t"], "rows": [case, case | {"noise": 0.0}]})
    assert text.count("| t (held out) | 0.50 |") == 1
    again = [{"inside": True}, {"inside": False}]
    text = false_promotions({"searches": [{}, {}], "promoted": 1, "again": again})
    assert "Of 2 searches" in text and "1 promoted one" in text and "and 1 of them" in text
