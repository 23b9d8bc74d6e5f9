"""The whole page: that it is whole, harmless, complete without scripts, and loads nothing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given, settings

from kernelgym.benchmark.pages.code import changes, code
from kernelgym.benchmark.pages.text import MOST_CHARACTERS, escaped
from kernelgym.benchmark.pages.view import STATES, anchor
from kernelgym.benchmark.reporting import report
from kernelgym.testing import reply
from kernelgym.types import Kernel, Mismatch, Status, Timing, Verdict
from kernelgym.verdict import KernelTime, Profile, Stages
from support.benchmark_runs import CHEAT, WRONG, eval_run, made, problem, record
from support.html_pages import Page, parsed
from support.strategies import texts

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>]]>--><!-- \x00\u202e\ud800"
RICH = Verdict(
    Status.CORRECT,
    compiled=True,
    trials=4,
    trials_passed=4,
    timing=Timing(
        0.5,
        1.0,
        2.0,
        1.9,
        3,
        speedup_high=2.1,
        floor_ms=0.4,
        moved_bytes=10**6,
        windows=((0.5, 1.0), (0.52, 1.0), (0.49, 1.02)),
    ),
    custom_share=0.9,
    seed="00ff",
    device="cuda:0",
    wall_s=3.0,
    stages=Stages(build_s=1.0, check_s=1.5),
    profile=Profile(0.5, (KernelTime("_my_kernel", 2, 0.4),)),
    log="ptxas info: 32 registers",
)
OFF = dataclasses.replace(
    WRONG, mismatch=Mismatch(3, (7, 33), pattern="only the last row", call=2, calls=4)
)


def page_of(*paths: Path) -> tuple[str, Page]:
    text = report(*paths).html()
    return text, parsed(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    """A run of every state, with a hostile answer, costs, failures and a rich verdict."""
    failing = Verdict(
        Status.COMPILE_ERROR, message="k.cu:3:1: error: no type", log="no type", wall_s=1.0
    )
    episodes = [
        record(made([failing, OFF, RICH], "Rich"), device="cuda:0"),
        record(made([CHEAT], "Evil", texts=[reply(Kernel(EVIL, "triton"), EVIL)])),
        record(made([Verdict(Status.NO_KERNEL)], "None", texts=[EVIL])),
        record(made([WRONG], "Filtered", texts=[""])),
    ]
    rows = [
        {
            "problem": problem("Rich").id,
            "sample": 0,
            "turn": turn,
            "text": "",
            "usage": {"prompt": 1000, "cached": 0, "completion": 250, "reasoning": 9},
            "usd": 0.5,
            "model": "some-model",
        }
        for turn in range(3)
    ]
    failures = [
        {"problem": problem("Gone").id, "sample": 0, "turn": 0, "kind": "provider", "message": EVIL}
    ]
    folder = eval_run(
        tmp_path_factory.mktemp("runs") / "every state",
        {"A": "wr 3 x", "B": "ww c w-", "Gone": ""},
        episodes=episodes,
        answers=rows,
        failures=failures,
        samples=3,
    )
    return page_of(folder)


def test_page_has_every_section(whole: tuple[str, Page]) -> None:
    _, page = whole
    names = ("front", "wall", "speed", "wrong", "integrity", "cost", "problems", "method")
    assert set(names) <= set(page.ids())
    assert len(page.ids()) == len(set(page.ids())), "an id is there twice"


def test_page_loads_nothing_and_leads_nowhere_else(whole: tuple[str, Page]) -> None:
    text, page = whole
    assert all(link.startswith("#") for link in page.links())
    for target in page.links():
        assert target[1:] in page.ids(), f"{target} leads nowhere"
    assert not re.search(r"https?://|@import|url\(", text)
    assert "default-src 'none'" in text


def test_hostile_texts_are_only_text(whole: tuple[str, Page]) -> None:
    text, page = whole
    tags = [name for name, _ in page.tags]
    assert tags.count("script") == 1 and "img" not in tags
    assert all(not name.startswith("on") for _, found in page.tags for name in found)
    assert "alert" not in page.code and "alert(1)" in page.text
    assert "\x00" not in text and "\u202e" not in text
    text.encode("utf-8")


def test_page_tells_what_became_of_everything(whole: tuple[str, Page]) -> None:
    _, page = whole
    for said in (
        "solved 2 of 6 answered problems; 1 not answered",
        "no_custom_kernel",
        "3: ",  # the line that the finding is about
        "error: no type",
        "only the last row",
        "_my_kernel",
        "--replay 00ff",
        "provider",
        "some-model",
        "strict@",
        "ptxas info: 32 registers",
        "3,000",  # tokens read
    ):
        assert said in page.text, said


def test_wall_has_a_letter_and_a_title_in_every_cell(whole: tuple[str, Page]) -> None:
    _, page = whole
    cells = [found for _, found in page.tags if "cell" in found.get("class", "").split()]
    titled = [found for found in cells if "title" in found]
    assert len(cells) - len(titled) == len(set(STATES.values())), "only the legend's have none"
    tiles = [found for name, found in page.tags if found.get("class") == "tile"]
    assert [found["href"] for found in tiles] == [
        f"#{anchor(problem(n).id)}" for n in ("A", "B", "Gone", "Rich", "Evil", "None", "Filtered")
    ]


def test_every_problem_can_be_opened_without_scripts(whole: tuple[str, Page]) -> None:
    _, page = whole
    folded = {found.get("id"): name for name, found in page.tags if "id" in found}
    for name in ("A", "B", "Gone", "Rich", "Evil", "None", "Filtered"):
        assert folded[anchor(problem(name).id)] == "details"


def test_folder_form_has_all_samples(tmp_path: Path) -> None:
    episodes = [
        record(made([WRONG], texts=[reply(Kernel(f"class ModelNew: x = {n}000", "triton"))]), n)
        for n in range(4)
    ]
    folder = eval_run(tmp_path / "one", {}, episodes=episodes, samples=4)
    one, _ = page_of(folder)
    assert "0000" in one and "3000" not in one, "the first and best sample only"
    report(folder, html=f"{tmp_path}/site/")
    pages = {path.relative_to(tmp_path / "site"): path for path in (tmp_path / "site").rglob("*")}
    files = {str(path) for path in pages if path.suffix == ".html"}
    assert files == {"index.html", f"problems/{anchor(problem().id)}.html"}
    there = (tmp_path / "site" / "problems" / f"{anchor(problem().id)}.html").read_text()
    assert all(f"{n}000" in parsed(there).text for n in range(4))
    index = parsed((tmp_path / "site" / "index.html").read_text())
    for link in index.links():
        assert link[1:] in index.ids() if link[0] == "#" else (tmp_path / "site" / link).exists()


def test_a_kernel_of_a_megabyte_is_cut(tmp_path: Path) -> None:
    source = "import torch\nclass ModelNew:\n    pass\n" + "x = '</script>'\n" * 70_000
    played = made([WRONG], texts=[reply(Kernel(source, "triton"))])
    text, page = page_of(eval_run(tmp_path / "one", {}, episodes=[record(played)]))
    assert len(text) < 12 * MOST_CHARACTERS
    assert "more characters are not shown" in page.text


@settings(max_examples=40)
@given(texts)
def test_any_text_is_shown_and_harmless(text: str) -> None:
    for made_of in (code(text), f"<pre>{escaped(text)}</pre>", changes("", text) or "<pre></pre>"):
        page = parsed(made_of)
        assert {name for name, _ in page.tags} <= {"pre", "span", "ins", "del", "p"}
        made_of.encode("utf-8")
    visible = parsed(f"<pre>{escaped('a' + text)}</pre>").text
    assert visible.startswith("a") and "\x00" not in visible


def test_kernels_are_highlighted_here() -> None:
    assert '<span class="k">' in code("def f(x):\n    return x\n")
    assert "<span" not in code("x = 1\n" * 10_000), "too long to highlight"


def test_changes_are_lines_taken_out_and_put_in() -> None:
    found = parsed(changes("a\nb\nc\n", "a\n<b>\nc\n"))
    assert [name for name, _ in found.tags] == ["pre", "del", "ins"]
    assert "-b" in found.text and "+<b>" in found.text
    assert changes("a", "a") == "" and "too many" in changes("a\n" * 4000, "b\n" * 4000)


def test_two_runs_are_compared(tmp_path: Path) -> None:
    one = eval_run(tmp_path / "one", {"A": "w", "B": "2", "C": "r"})
    two = eval_run(tmp_path / "two", {"A": "r", "B": "4", "C": "w", "D": "r"})
    text, page = page_of(one, two)
    assert "compare" in page.ids() and "two against one" in page.text
    assert "0 problems are in one only, 1 in two only" in page.text
    assert 'aria-label="speedup in two against speedup in one"' in text


def test_prompts_are_shown_where_they_can_be_rebuilt(tmp_path: Path) -> None:
    _, page = page_of(eval_run(tmp_path / "one", {"A": "r"}))
    assert "prompt of the first turn" in page.text and "class ModelNew" in page.text
