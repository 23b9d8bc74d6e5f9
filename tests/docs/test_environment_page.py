"""docs/environment.md held against the code: its sessions run, its tables are complete."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import kernelgym
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.feedback import CATEGORIES, LEVELS
from kernelgym.prompts.context import CONTEXTS
from kernelgym.records.export import FORMATS, ExportRules
from kernelgym.records.trajectories import read_records
from kernelgym.rewards import REWARDS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply

PAGE = (Path(__file__).parents[2] / "docs" / "environment.md").read_text()
GOOD = reply(SAMPLE_KERNELS["triton"])


def section(title: str) -> str:
    found = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def rows(text: str) -> dict[str, list[str]]:
    """Return the rows of the tables in `text`, by each name in their first column."""
    found = {}
    for line in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE):
        first, *cells = (cell.strip() for cell in line.split(" | "))
        for name in re.findall(r"`([^`]+)`", first):
            assert name not in found, name
            found[name] = cells
    return found


def test_the_sessions_run_as_they_stand(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path))
    sessions = "\n".join(re.findall(r"```python\n(>>>.*?)```", PAGE, re.DOTALL))
    assert sessions.count(">>>") == PAGE.count(">>>")
    test = doctest.DocTestParser().get_doctest(sessions, {}, "environment", "environment.md", 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    result = runner.summarize(verbose=False)
    assert result.failed == 0, "".join(report)
    assert result.attempted >= 35


def test_every_id_is_listed() -> None:
    ids = []
    for name in rows(section("Ids")):
        head, levels, tail = re.fullmatch(r"(.*)\{(.*)\}(.*)", name).groups()
        ids += [f"{head}{level}{tail}" for level in levels.split(",")]
    assert sorted(ids) == sorted(kernelgym.ENV_IDS)


def test_every_option_is_listed_with_its_default() -> None:
    table = rows(section("Options of `gym.make`"))
    parameters = dict(inspect.signature(KernelEnv).parameters)
    for name in ("suite", "level", "unknown"):  # the id's; see docs/suites.md
        del parameters[name]
    assert sorted(table) == sorted(parameters)
    said_in_words = {"device", "ruleset", "max_turns", "problems", "evaluator", "memory_bytes"}
    for name, parameter in parameters.items():
        default = parameter.default
        if name not in said_in_words:
            written = "none" if default is None else str(default) or "none"
            assert table[name][0].strip("`") == written, name


def test_the_values_of_options_are_listed() -> None:
    table = rows(section("Options of `gym.make`"))
    for name, known in (("context", CONTEXTS), ("feedback_level", LEVELS)):
        assert re.findall(r"`(\w+)`", table[name][1]) == list(known)


def test_every_key_of_info_is_listed_with_its_type() -> None:
    env = KernelEnv(problems=[SAMPLE_PROBLEM], evaluator=ScriptedEvaluator())
    _, before = env.reset()
    *_, info = env.step(GOOD)
    table = rows(section("Info"))
    assert sorted(table) == sorted(info)
    for name, value in info.items():
        written = table[name][0].strip("`").partition(" ")[0]
        assert written == type(value).__name__, name
        assert (name in before) == ("steps only" not in table[name][1]), name


def test_every_preset_is_listed_with_its_need_of_timing() -> None:
    table = rows(section("Rewards"))
    assert list(table) == list(REWARDS)
    assert [cells[1] for cells in table.values()] == [preset.speed for preset in REWARDS.values()]


def test_every_category_of_feedback_is_listed() -> None:
    assert sorted(rows(section("Feedback"))) == sorted(CATEGORIES)


def test_every_field_of_a_line_is_listed(tmp_path) -> None:
    path = tmp_path / "played.jsonl"
    env = RecordTrajectories(
        KernelEnv(problems=[SAMPLE_PROBLEM], evaluator=ScriptedEvaluator()), path
    )
    env.reset()
    env.step(GOOD)
    (record,) = read_records(path)
    line = record.to_dict()
    table = rows(section("Trajectories"))
    assert sorted(table) == sorted([*line, *line["turns"][0]])
    assert re.findall(r"`(\w+)`", table["problem"][0])[: len(line["problem"])] == [*line["problem"]]
    assert re.findall(r"`(\w+)`", table["kernel"][0]) == list(line["turns"][0]["kernel"])


def test_formats_and_rules_of_the_export_are_named() -> None:
    text = section("Trajectories").partition("**Data to train on.**")[2]
    named = set(re.findall(r"`(\w+)[`=]", text))
    assert set(FORMATS) <= named
    unnamed = {field for field in ExportRules.__dataclass_fields__ if field not in named}
    assert unnamed <= {"gamma", "variant", "checked"}
