"""What the documents say, run and followed: sessions, links, ids, options, defaults."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import kernelgym
from kernelgym.infos import REWARD_PARTS
from kernelgym.rewards import REWARDS
from kernelgym.rulesets import RULESETS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_the_session_of_the_readme_runs_as_it_stands(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path))
    text = (ROOT / "README.md").read_text()
    session = re.search(r"```python\n(>>>.*?)```", text, re.DOTALL).group(1)
    test = doctest.DocTestParser().get_doctest(session, {}, "README", "README.md", 0)
    assert len(test.examples) >= 10
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_document_holds_a_path_of_a_machine(path):
    assert not re.search(r"/(root|home|work|tmp)/", path.read_text())


def test_the_environment_page_names_what_there_is():
    text = (ROOT / "docs" / "environment.md").read_text()
    for name in (*REWARDS, "turn_returns", "judge_s", "stop_when", "exclude_degenerate"):
        assert f"`{name}`" in text, name
    pattern = text.replace("L{1,2,3,4}", "L1").replace("L{1,2,3}", "L1")
    for env_id in kernelgym.ENV_IDS:
        assert re.sub(r"L\d", "L1", env_id) in pattern, env_id
    assert REWARD_PARTS


def test_the_judge_page_quotes_the_rulesets():
    text = (ROOT / "docs" / "judge.md").read_text()
    strict, kernelbench = RULESETS["strict"], RULESETS["kernelbench"]
    assert f"{strict.min_calls}-{strict.max_calls}, number drawn in secret" in text
    assert f"`{strict.error_factor:g} e + {strict.error_floor:g} (" in text.replace("1e-5", "1e-05")
    assert f"exceeds {strict.error_distrust:g} of `abs(ref64) + typical`" in text
    for rules in (strict, kernelbench):
        fixed = f"`abs(ref - out) <= {rules.atol:g} + {rules.rtol:g} abs(out)`"
        assert fixed.replace("0.0001", "1e-4") in text
    assert kernelbench.min_calls == kernelbench.max_calls == 5
    assert f"after {strict.timing.max_pairs} pairs or {strict.timing.budget_s:g} s" in text
    assert strict.label in text
