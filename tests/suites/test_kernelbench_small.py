"""Small forms: what is replaced, what stays, and which modules are refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import ProblemError, UnknownName, UsageError
from kernelgym.rulesets import ruleset
from kernelgym.suites import get_problem, suite
from kernelgym.suites.kernelbench import KernelBenchSuite
from kernelgym.suites.kernelbench_facts import fact, facts
from kernelgym.suites.kernelbench_small import (
    SMALL,
    resized,
    size_constants,
    small_form,
    small_sizes,
)
from kernelgym.suites.known_hygiene import known_hygiene
from kernelgym.types import Problem
from support.small_forms import known_sigmoid, write_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which one problem has a small form."""
    return write_checkout(tmp_path)


def values(source: str) -> dict[str, int]:
    return {name: constant.value for name, constant in size_constants(source).items()}


def test_size_constants_every_spelling_is_named() -> None:
    source = (
        "N = 1024 * 2\nheight = width = 64\nD, H = 8, (16 + 1)\nshape = (3, N, 2 ** 4)\n"
        "widths = [512] * 3\neps = 1e-5\nflag = True\ngroups = N\n"
        "def get_inputs():\n    return [rand(2, N, 224)]\ndef get_init_inputs():\n    return [32]\n"
    )
    assert values(source) == {
        "N": 2048,
        "height": 64,
        "D": 8,
        "H": 17,
        **{"shape[0]": 3, "shape[1]": 16, "widths[0]": 512, "widths[1]": 3},
        **{"get_inputs()[0]": 2, "get_inputs()[1]": 224, "get_init_inputs()[0]": 32},
    }


def test_size_constants_assigned_twice_last_counts() -> None:
    source = "height = width = 2048\nheight, width = 32, 48\n"
    assert values(source) == {"height": 32, "width": 48}
    assert resized(source, {"height": 8}) == "height = width = 2048\nheight, width = 8, 48\n"


def test_resized_other_bytes_and_lines_stay() -> None:
    source = "# größe, 尺寸\nN = 2048 * 2  # N = 4096\nt = ('é', 7, 9)\nlong = (8 *\n   4)\nM = 1\n"
    new = resized(source, {"N": 64, "t[1]": 3, "long": 5})
    assert new == "# größe, 尺寸\nN = 64  # N = 4096\nt = ('é', 7, 3)\nlong = (5\n)\nM = 1\n"
    assert len(new.splitlines()) == len(source.splitlines())


def test_resized_unknown_constant_is_refused() -> None:
    with pytest.raises(ProblemError, match="no size constant M; it has N"):
        resized("N = 4\n", {"M": 2})


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.lists(st.integers(0, 10**6), min_size=1, max_size=3),
        min_size=1,
    ),
    st.data(),
)
def test_resized_gives_the_values_asked_for(
    numbers: dict[str, list[int]], data: st.DataObject
) -> None:
    source = "".join(f"{name} = ({', '.join(map(str, row))},)\n" for name, row in numbers.items())
    known = values(source)
    wanted = data.draw(st.dictionaries(st.sampled_from(sorted(known)), st.integers(0, 10**9)))
    new = resized(source, wanted)
    assert values(new) == known | wanted
    assert len(ast.parse(new).body) == len(numbers)


def test_small_form_id_and_digest_differ_name_stays() -> None:
    problem = known_sigmoid()
    form = small_form(problem)
    assert form.id == "KernelBench/L1/21@small" and form.name == problem.name
    assert form.digest != problem.digest
    rows = small_sizes(problem.id)
    assert values(form.source) == {name: new for name, (_, new) in rows.items()}
    assert all(new < old for old, new in rows.values())


@pytest.mark.parametrize(("rows", "columns"), [("2048", "393216"), ("len(str())", "393216")])
def test_small_form_other_version_is_refused(rows: str, columns: str) -> None:
    with pytest.raises(ProblemError, match=r"made for batch_size = 4096, and the source has"):
        small_form(known_sigmoid(rows, columns))


def test_small_form_other_name_is_refused() -> None:
    problem = Problem("KernelBench/L1/21", "KernelBench", 1, "21_Ours", known_sigmoid().source)
    with pytest.raises(ProblemError, match="has no small form: the table of small sizes lacks it"):
        small_form(problem)


def test_suite_small_lists_forms_only(checkout: Path) -> None:
    small = KernelBenchSuite(str(checkout), sizes="small")
    assert [problem.id for problem in small.problems()] == ["KernelBench/L1/21@small"]
    assert small.problems(1, ids="20-25")[0].id == "KernelBench/L1/21@small"
    for key in (21, "L1/21", "L1/21@small", "21_Sigmoid", "KernelBench/L1/21@small"):
        assert small.problems(ids=[key])[0].id == "KernelBench/L1/21@small"
    with pytest.raises(UnknownName):
        small.problems(ids="KernelBench/L1/21")
    with pytest.raises(UnknownName, match=r"Level 4 has no small forms"):
        small.problems(4)


def test_suite_small_says_why_there_is_no_form(checkout: Path) -> None:
    small = KernelBenchSuite(str(checkout), sizes="small")
    with pytest.raises(ProblemError, match=r"L3/11 \(11_VGG16\) has no small form: a call takes"):
        small.problems(ids="L3/11")
    with pytest.raises(ProblemError, match=r"L1/2 \(2_Ours\) has no small form"):
        small.get("KernelBench/L1/2@small")
    with pytest.raises(ProblemError, match="sizes='small'"):
        small.problems(3)


def test_suite_get_id_decides_the_sizes(checkout: Path) -> None:
    full = KernelBenchSuite(str(checkout))
    small = KernelBenchSuite(str(checkout), sizes="small")
    assert full.get("KernelBench/L1/21@small") == small.get("KernelBench/L1/21@small")
    assert full.get("KernelBench/L1/21").source == known_sigmoid().source
    with pytest.raises(UnknownName, match="in full size"):
        small.get("KernelBench/L1/21")


def test_suite_small_keeps_splits(checkout: Path) -> None:
    full = KernelBenchSuite(str(checkout)).problems(1, ids=21)[0]
    small = KernelBenchSuite(str(checkout), sizes="small")
    split = "test" if full.family == "norm" else "train"
    assert small.problems(split=split)[0].family == full.family


def test_get_problem_sizes_and_suffix_agree(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(checkout))
    form = get_problem("KernelBench/L1/21@small")
    assert form == get_problem("KernelBench/L1/21", sizes="small")
    assert form == get_problem("KernelBench/L1/21@small", sizes="small")


@pytest.mark.parametrize("sizes", ["small", "tiny"])
def test_sizes_of_other_suites_are_refused(sizes: str, tmp_path: Path) -> None:
    for other in ("Synthetic", tmp_path):
        with pytest.raises(UsageError, match="small"):
            suite(other, sizes=sizes)
    with pytest.raises(UsageError, match="small"):
        get_problem("Synthetic/L1/1", sizes=sizes)
    assert suite("Synthetic", sizes="full").name == "Synthetic"


def test_sizes_of_a_suite_object_must_agree(checkout: Path) -> None:
    small = KernelBenchSuite(str(checkout), sizes="small")
    assert suite(small, sizes="small") is small and suite(small) is small
    with pytest.raises(UsageError, match="does not fit the suite that was given"):
        suite(KernelBenchSuite(str(checkout)), sizes="small")


def test_facts_of_forms_are_their_own() -> None:
    small, full = fact("KernelBench/L1/21@small", "21_Sigmoid"), fact("KernelBench/L1/21")
    assert small is not None and full is not None
    assert small.family == full.family
    assert small.input_bytes is not None and full.input_bytes is not None
    assert small.input_bytes < 64e6 < full.input_bytes
    assert fact("KernelBench/L1/21@small", "19_Other") is None
    assert not any(key.endswith(SMALL) for key in facts())


def test_table_of_forms_keeps_its_bounds() -> None:
    for key, full in facts().items():
        form = fact(key + SMALL)
        rows = small_sizes(key)
        assert form is not None or not rows
        if form is None:
            continue
        assert full.level <= 3
        parts = (form.input_bytes, form.output_bytes, form.param_bytes)
        assert sum(part for part in parts if part is not None) <= 64_000_000
        assert all(0 < new < old for old, new in rows.values())
        assert {reason for reason, _ in form.reasons} <= {reason for reason, _ in full.reasons}


def test_known_hygiene_of_a_form_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path))
    form = small_form(known_sigmoid())
    known = known_hygiene(form, ruleset("strict"))
    assert known.problem_id == form.id and known.tested
