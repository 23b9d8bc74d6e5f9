"""KernelBench's folder becomes a run: kernels, claims, verdicts, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kernelgym.benchmark import report
from kernelgym.benchmark.claims import Claim, compare
from kernelgym.benchmark.interchange.importing import import_run, judge_import
from kernelgym.benchmark.kernelbench_folder import read_folder
from kernelgym.benchmark.recorded_runs import read_run
from kernelgym.errors import UsageError
from kernelgym.rulesets import RULESETS
from kernelgym.suites.kernelbench import KernelBenchSuite
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Job, Verdict
from support.benchmark_runs import CHEAT, LOST, RIGHT, WRONG
from support.html_pages import parsed

RULES = RULESETS["kernelbench"]
EVERY = {"language": "triton", "ruleset": "kernelbench"}


def module(said: str) -> str:
    """Return a kernel for which a scripted evaluator says this."""
    return f"import torch\n# verdict: {said}\nclass ModelNew(torch.nn.Module):\n    pass\n"


def entry(sample: int, compiled: bool, correct: bool, runtime: float = -1.0) -> dict[str, object]:
    told = {"sample_id": sample, "compiled": compiled, "correctness": correct, "metadata": {}}
    return told | {"runtime": runtime, "runtime_stats": {}}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A run of KernelBench's: two problems, two samples each, with results."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for (problem, sample), said in {
        (1, 0): "correct 2.0",
        (1, 1): "wrong",
        (2, 0): "compile_error",
        (2, 1): "correct 0.5",
    }.items():
        stem = f"level_1_problem_{problem}_sample_{sample}"
        (folder / f"{stem}_kernel.py").write_text(module(said))
        (folder / f"{stem}_prompt.txt").write_text(f"Write kernel {problem}.")
    results = {
        "1": [entry(0, True, True, 1.5), entry(1, True, True, 2.0)],
        "2": [entry(0, True, False), entry(1, True, True, 9.0)],
    }
    (folder / "eval_results.json").write_text(json.dumps(results))
    (folder / "generation_config.yaml").write_text(
        "model_name: some/model\ntemperature: 0.0\neval_mode: modal\n"
        "subset: !!python/tuple\n- null\n- null\n"
    )
    return folder


@pytest.fixture
def kernelbench(kernelbench_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> KernelBenchSuite:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))
    return KernelBenchSuite(str(kernelbench_checkout))


def judged(jobs: Sequence[Job]) -> Iterator[tuple[int, Verdict]]:
    return ScriptedEvaluator(ruleset=RULES).evaluate_iter(jobs)


def test_a_folder_becomes_a_judged_run(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    out = tmp_path / "ours"
    assert import_run(read_folder(theirs, 1), out, **EVERY) == 4
    with pytest.raises(UsageError, match="no verdict yet"):
        read_run(out)
    assert judge_import(out, judged) == 4
    run = read_run(out)
    assert run.kind == "import" and run.rulesets == (RULES.label,) and not run.missing
    statuses = {
        played.key[0][-1] + f"#{played.sample}": played.turns[0].verdict.status.value
        for played in run.episodes
    }
    assert statuses == {"1#0": "correct", "1#1": "wrong", "2#0": "compile_error", "2#1": "correct"}
    kernel = run.episodes[0].turns[0].reply.kernel
    assert kernel is not None and kernel.source == module("correct 2.0")
    assert run.episodes[0].answers[0].prompt == "Write kernel 1."


def test_page_shows_their_verdict_and_ours(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    baseline = tmp_path / "baseline_time_torch.json"
    names = [problem.name for problem in kernelbench.problems(1)]
    times = {f"{name}.py": {"mean": 9.0} for name in names}
    baseline.write_text(json.dumps({"level1": times}))
    out = tmp_path / "ours"
    found = read_folder(theirs, 1)
    import_run(found, out, baseline=baseline, **EVERY)
    judge_import(out, judged)
    done = report(out)
    differs = [row["differs"] for row in done.to_dict()["runs"][0]["claims"]]
    assert differs == [
        "",
        "claimed correct, wrong here",
        "claimed compiled, compile_error here",
        "",
    ]
    page = parsed(done.html())
    assert "claims" in page.ids() and "claimed correct, wrong here" in page.text
    assert "claimed 6x, 2x here" in page.text and "ignores `backend`" in page.text
    assert "claimed 1x, 0.5x here" in page.text
    assert "Write kernel 1." in page.text


def test_judging_goes_on_where_it_stopped(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    out = tmp_path / "ours"
    import_run(read_folder(theirs, 1), out, **EVERY)

    def killed(jobs: Sequence[Job]) -> Iterator[tuple[int, Verdict]]:
        yield 1, verdict("wrong")
        yield 2, LOST
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_import(out, killed)
    import_run(read_folder(theirs, 1), out, **EVERY)
    assert judge_import(out, judged) == 3, "one was judged for good"
    assert judge_import(out, judged) == 0
    assert len(read_run(out).episodes) == 4


def test_another_folder_in_its_place_is_refused(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    out = tmp_path / "ours"
    import_run(read_folder(theirs, 1), out, **EVERY)
    other = EVERY | {"language": "cuda"}
    with pytest.raises(UsageError, match="another plan: language"):
        import_run(read_folder(theirs, 1), out, **other)
    (theirs / "level_1_problem_1_sample_0_kernel.py").write_text(module("wrong"))
    with pytest.raises(UsageError, match=r"another plan: policy\.kernels"):
        import_run(read_folder(theirs, 1), out, **EVERY)


@pytest.mark.parametrize("content", [b"", b'{"kind": "impo', b"[]", b"\xff\xfe", b"[" * 5000])
def test_a_damaged_plan_is_refused_by_its_name(
    content: bytes, theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    out = tmp_path / "ours"
    found = read_folder(theirs, 1)
    import_run(found, out, **EVERY)
    whole = (out / "plan.json").read_bytes()
    (out / "plan.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"plan\.json"):
        import_run(found, out, **EVERY)
    with pytest.raises(UsageError, match=r"plan\.json"):
        judge_import(out, judged)
    (out / "plan.json").unlink()  # what the message says to do
    assert import_run(found, out, **EVERY) == 4
    told = [json.loads(data) for data in (whole, (out / "plan.json").read_bytes())]
    assert told[0] | {"created": ""} == told[1] | {"created": ""}


def test_gaps_are_refused_unless_asked_for(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    (theirs / "level_1_problem_2_sample_0_kernel.py").unlink()
    found = read_folder(theirs, 1)
    with pytest.raises(UsageError, match=r"problem 2 has no sample 0 .*--gaps"):
        import_run(found, tmp_path / "ours", **EVERY)
    count = import_run(found, tmp_path / "ours", gaps=True, **EVERY)
    assert count == 3 and len(found.claims) == 4
    judge_import(tmp_path / "ours", judged)
    told = read_run(tmp_path / "ours").claims[kernelbench.problems(1)[1].id, 0]
    assert "no kernel of this sample" in told.warnings[-1], "a claim without a file is kept"
    done = report(tmp_path / "ours", tmp_path / "ours")
    data = done.to_dict()
    assert data["runs"][0]["counts"]["missing"] == 1
    assert [each["sample"] for each in data["runs"][0]["missing"]] == [0]
    assert any("lacks 1 of 4 episodes" in told for told in data["comparisons"][0]["cautions"])


@pytest.mark.parametrize("where", ["generation_config.yaml", "eval_results.json"])
def test_import_in_another_size_than_the_folder_names_is_refused(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite, where: str
) -> None:
    if where == "eval_results.json":
        told = entry(0, True, True) | {"metadata": {"kernelgym_sizes": "small"}}
        (theirs / where).write_text(json.dumps({"1": [told]}))
    else:
        (theirs / where).write_text("kernelgym_sizes: small\n")
    with pytest.raises(UsageError, match="in small size, and --sizes is full; give --sizes small"):
        import_run(read_folder(theirs, 1), tmp_path / "ours", **EVERY)
    assert not (tmp_path / "ours").exists()


def test_import_of_an_empty_kernel_is_no_kernel_and_no_cheating(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    (theirs / "level_1_problem_1_sample_0_kernel.py").write_text("\n")
    out = tmp_path / "ours"
    import_run(read_folder(theirs, 1), out, **EVERY)
    assert judge_import(out, judged) == 3 and judge_import(out, judged) == 0
    first = read_run(out).episodes[0].turns[0]
    assert first.verdict.status.value == "no_kernel" and "is empty" in first.verdict.message
    assert first.reply.kernel is None and not first.verdict.findings


ODD_NUMBERS = {
    "eval_results.json": '{"1": [{"sample_id": 0, "compiled": true, "correctness": true, '
    '"runtime": Infinity, "metadata": {"max_difference": [NaN]}}]}',
    "generation_config.yaml": "temperature: .nan\nmodel_name: some/model\n",
}


def test_import_of_numbers_that_are_not_finite_reads_them_as_missing(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    for name, content in ODD_NUMBERS.items():
        (theirs / name).write_text(content)
    name = kernelbench.problems(1)[0].name
    baseline = tmp_path / "base.json"
    baseline.write_text(f'{{"level1": {{"{name}.py": {{"mean": NaN}}}}}}')
    found = read_folder(theirs, 1)
    assert found.notes == (
        "generation_config.yaml: temperature is nan; it is read as missing",
        "eval_results.json: entry 1[0].runtime is Infinity; it is read as missing",
        "eval_results.json: entry 1[0].metadata.max_difference[0] is NaN; it is read as missing",
    )
    out = tmp_path / "ours"
    assert import_run(found, out, baseline=baseline, **EVERY) == 4
    judge_import(out, judged)
    run = read_run(out)
    claim = run.claims[run.episodes[0].key]
    assert (claim.runtime_ms, claim.reference_ms, claim.correct) == (None, None, True)
    with pytest.raises(UsageError, match="a time of none of the problems"):
        report(out, baselines=[baseline])


def test_import_that_fails_half_way_leaves_nothing(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("kernelgym.benchmark.interchange.importing.write_plan", fail)
    with pytest.raises(UsageError, match="No space left"):
        import_run(read_folder(theirs, 1), tmp_path / "ours", **EVERY)
    assert sorted(tmp_path.iterdir()) == before


def test_an_id_beyond_the_level_is_refused(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    for sample in range(2):
        name = f"level_1_problem_101_sample_{sample}_kernel.py"
        (theirs / name).write_text(module("wrong"))
    with pytest.raises(UsageError, match="level 1 has no such problem"):
        import_run(read_folder(theirs, 1), tmp_path / "o", **EVERY)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("level_1_problem_01_sample_0_kernel.py", b"x = 1\n", "sample 0 of problem 1 twice"),
        ("level_1_problem_1_sample_1_kernel.py", b"\xff\xfe", "not UTF-8 text"),
        ("generation_config.yaml", b"a: [1\n", "is not YAML"),
        ("eval_results.json", b"{", "is not JSON .* remove it to import"),
        ("eval_results.json", b"[]", "holds no results"),
        ("eval_results.json", b'{"1": [{}]}', "problem 1 has no 'sample_id'"),
        ("eval_results.json", b'{"1": null}', "problem 1 is null, not an object"),
        ("eval_results.json", b'{"1": ["x"]}', 'problem 1 is "x", not an object'),
        (
            "eval_results.json",
            json.dumps({"1": [entry(0, True, True), entry(0, True, True)]}).encode(),
            "sample 0 of problem 1 twice",
        ),
    ],
)
def test_a_damaged_folder_is_refused(theirs: Path, name: str, content: bytes, says: str) -> None:
    (theirs / name).write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read_folder(theirs, 1)


def test_a_folder_of_another_level_is_refused(theirs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it has kernels of level 1"):
        read_folder(theirs, 2)
    with pytest.raises(UsageError, match="cannot read folder"):
        read_folder(tmp_path / "nowhere", 1)


def test_a_configuration_executes_nothing(theirs: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    (theirs / "generation_config.yaml").write_text(
        f"a: !!python/object/apply:pathlib.Path.touch [{made}]\n"
        "b: !!python/name:os.system ''\nc: !!python/tuple [1, 2]\n"
    )
    assert read_folder(theirs, 1).config == {"a": [str(made)], "b": "", "c": [1, 2]}
    assert not made.exists()


@pytest.mark.parametrize("source", ["x = 1\r\n", "<KERNEL>", "```\n</KERNEL>", "\ufeffx"])
def test_kernel_that_no_answer_could_hold_is_judged_unchanged(
    source: str, tmp_path: Path, kernelbench: KernelBenchSuite
) -> None:
    (tmp_path / "level_1_problem_1_sample_0_kernel.py").write_bytes(source.encode())
    import_run(read_folder(tmp_path, 1), tmp_path / "o", **EVERY)
    judge_import(tmp_path / "o", judged)
    kernel = read_run(tmp_path / "o").episodes[0].turns[0].reply.kernel
    assert kernel is not None and kernel.source == source


@pytest.mark.parametrize(
    ("claimed", "ours", "told"),
    [
        ((True, True), RIGHT, ""),
        ((True, False), WRONG, ""),
        ((True, True), CHEAT, "claimed correct, rejected here"),
        ((False, False), RIGHT, "claimed not correct, correct here"),
        ((True, True), LOST, "not judged here"),
        ((True, True), None, "not judged here"),
    ],
)
def test_claims_are_compared_in_their_terms(
    claimed: tuple[bool, bool], ours: Verdict | None, told: str
) -> None:
    assert compare(Claim("KernelBench/L1/1", 0, *claimed), ours) == told


def test_a_changed_problem_is_refused(
    theirs: Path, tmp_path: Path, kernelbench: KernelBenchSuite, kernelbench_checkout: Path
) -> None:
    import_run(read_folder(theirs, 1), tmp_path / "o", **EVERY)
    for file in kernelbench_checkout.rglob("1_*.py"):
        file.write_text(f"{file.read_text()}\n# changed\n")
    with pytest.raises(UsageError, match="was planned with"):
        judge_import(tmp_path / "o", judged)
