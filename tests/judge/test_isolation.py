"""Which sandbox a verdict ran in: the strongest, the one asked for, or none at all."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import AFFINE, TRITON

from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator, tiers
from kernelgym.judge.sandbox import TIERS

names = st.sampled_from(TIERS)

# In a user namespace of its own that may have no further ones, the strongest tier cannot be had.
WITHOUT_NAMESPACES = """
import json, sys
sys.path.insert(0, {folder!r})
from programs import AFFINE, TRITON
from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator
if __name__ == "__main__":
    found = []
    for wanted in ("auto", "require:landlock+seccomp", "require:ns+landlock+seccomp"):
        with LocalEvaluator(isolation=wanted, cache_dir={cache!r}, timing=False) as evaluator:
            try:
                verdict = evaluator.evaluate(AFFINE, TRITON)
                found.append([verdict.status.value, verdict.isolation])
            except UsageError as error:
                found.append(["refused", str(error)])
    print(json.dumps(found))
"""


@given(names, names)
def test_a_stronger_tier_suffices_where_one_is_required(tier, wanted):
    assert tiers.suffices(tier, f"require:{wanted}") == (TIERS.index(tier) <= TIERS.index(wanted))
    assert tiers.suffices(tier, wanted) == (tier == wanted)
    assert tiers.suffices(tier, "auto")


def test_a_tier_is_remembered_for_its_kind_of_device_and_forgotten(tmp_path):
    assert tiers.recall(tmp_path, "cpu", "auto") == ""
    tiers.remember(tmp_path, "cpu", TIERS[1])
    assert tiers.recall(tmp_path, "cpu", "auto") == TIERS[1]
    assert tiers.recall(tmp_path, "cpu", f"require:{TIERS[0]}") == ""
    assert tiers.recall(tmp_path, "cuda:0", "auto") == ""
    tiers.forget(tmp_path, "cpu")
    assert tiers.recall(tmp_path, "cpu", "auto") == ""


def test_nonsense_in_the_cache_is_not_believed(tmp_path):
    tiers.remember(tmp_path, "cpu", "a very strong one")
    assert tiers.recall(tmp_path, "cpu", "auto") == ""


def test_an_unknown_requirement_is_refused():
    with pytest.raises(UsageError, match="require:TIER"):
        LocalEvaluator(isolation="require:walls")


def test_a_host_that_allows_less_gives_less_and_refuses_what_is_required(tmp_path):
    folder = os.path.dirname(__file__)
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_NAMESPACES.format(folder=folder, cache=str(tmp_path / "cache")))
    inside = f"echo 0 > /proc/sys/user/max_user_namespaces && exec {sys.executable} {program}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", inside],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr and not done.stdout:
        pytest.skip("this host allows no user namespaces, so there is none to forbid them in")
    auto, weaker, strongest = json.loads(done.stdout)
    assert auto == weaker == ["correct", "landlock+seccomp"]
    assert strongest[0] == "refused" and "is not to be had" in strongest[1]


def test_what_was_remembered_need_not_be_tried_again(tmp_path):
    for _ in range(2):
        with LocalEvaluator(cache_dir=tmp_path, timing=False) as evaluator:
            verdict = evaluator.evaluate(AFFINE, TRITON)
        assert verdict.correct
        assert tiers.recall(tmp_path, "cpu", "auto") == verdict.isolation
