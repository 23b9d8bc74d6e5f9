"""Which sandbox a verdict ran in: the strongest, the one asked for, or none at all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.sandbox import tiers
from kernelgym.judge.untrusted import zygote
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS, SandboxPlan
from support import programs
from support.programs import AFFINE, TRITON

STRONGEST, MIDDLE, WEAKEST = TIERS
names = st.sampled_from(TIERS)

# In a user namespace of its own that may have no further ones, the strongest tier cannot be had.
WITHOUT_NAMESPACES = """
import json, sys
sys.path.insert(0, {folder!r})
from support import programs
from support.programs import AFFINE, TRITON
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


class _Host(zygote._Zygote):
    """A zygote on a host that allows some tiers: a trial child fails in the others."""

    def __init__(self, *allowed):
        self.sandbox = SimpleNamespace(TIERS=TIERS)
        self.plan = SandboxPlan("limits", "", (), (), 1 << 29, 1 << 24, 64, 256)
        self.allowed, self.tried = allowed, []

    def _fork(self, scratch, channel, stdout, stderr, exec_allowed=False):
        self.tried.append(self.plan.tier)
        pid = os.fork()
        if pid == 0:
            if self.plan.tier in self.allowed:
                os._exit(0)
            os.write(stderr, f"noise\n{self.plan.tier}: not permitted\n".encode())
            os._exit(255)
        return pid


@pytest.mark.parametrize(
    ("wanted", "allowed", "found", "tried"),
    [
        ("auto", TIERS, STRONGEST, TIERS[:1]),
        ("auto", TIERS[1:], MIDDLE, TIERS[:2]),
        ("auto", TIERS[2:], WEAKEST, TIERS),
        (f"require:{STRONGEST}", TIERS, STRONGEST, TIERS[:1]),
        (f"require:{MIDDLE}", TIERS, STRONGEST, TIERS[:1]),
        (f"require:{MIDDLE}", TIERS[1:], MIDDLE, TIERS[:2]),
        (f"require:{WEAKEST}", TIERS[2:], WEAKEST, TIERS),
        (MIDDLE, TIERS, MIDDLE, (MIDDLE,)),
    ],
)
def test_the_strongest_tier_that_works_is_taken(wanted, allowed, found, tried):
    host = _Host(*allowed)
    assert host._strongest_tier(wanted) == found
    assert tuple(host.tried) == tried


@pytest.mark.parametrize(
    ("wanted", "allowed", "tried"),
    [
        (f"require:{STRONGEST}", TIERS[1:], TIERS[:1]),
        (f"require:{MIDDLE}", TIERS[2:], TIERS[:2]),
        (STRONGEST, TIERS[1:], TIERS[:1]),
        ("auto", (), TIERS),
    ],
)
def test_no_weaker_tier_is_taken_than_is_required(wanted, allowed, tried):
    host = _Host(*allowed)
    with pytest.raises(RuntimeError) as error:
        host._strongest_tier(wanted)
    assert f"no sandbox tier of {wanted!r} works" in str(error.value)
    assert str(error.value).endswith(f"{tried[-1]}: not permitted")  # the last one's reason
    assert tuple(host.tried) == tried


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


def test_a_weaker_tier_is_tried_to_be_bettered_after_a_while(tmp_path):
    for tier in TIERS:
        tiers.remember(tmp_path, "cpu", tier)
        (kept,) = (tmp_path / "tiers").iterdir()
        long_ago = kept.stat().st_mtime - 2 * tiers._TRIED_AGAIN_S
        assert tiers.recall(tmp_path, "cpu", "auto") == tier
        os.utime(kept, (long_ago, long_ago))
        assert tiers.recall(tmp_path, "cpu", "auto") == (tier if tier == TIERS[0] else "")


def test_nonsense_in_the_cache_is_not_believed(tmp_path):
    tiers.remember(tmp_path, "cpu", "a very strong one")
    assert tiers.recall(tmp_path, "cpu", "auto") == ""


def test_an_unknown_requirement_is_refused():
    with pytest.raises(UsageError, match="require:TIER"):
        LocalEvaluator(isolation="require:walls")


@pytest.mark.slow
def test_a_host_that_allows_less_gives_less_and_refuses_what_is_required(tmp_path):
    folder = str(Path(programs.__file__).parents[1])
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
    assert strongest[0] == "refused" and "is not available" in strongest[1]


@pytest.mark.slow
def test_what_was_remembered_need_not_be_tried_again(tmp_path):
    for _ in range(2):
        with LocalEvaluator(cache_dir=tmp_path, timing=False) as evaluator:
            verdict = evaluator.evaluate(AFFINE, TRITON)
        assert verdict.correct
        # Its name holds the worker's own rights, of which it gives some up.
        (stored,) = (tmp_path / "tiers").iterdir()
        assert stored.read_text() == verdict.isolation


@pytest.mark.slow
def test_the_strongest_can_be_required_here(cache_dir):
    wanted = f"require:{STRONGEST}"
    with LocalEvaluator(cache_dir=cache_dir, timing=False, isolation=wanted) as evaluator:
        assert evaluator.evaluate(AFFINE, TRITON).isolation == STRONGEST


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("auto", TIERS[2]), (TIERS[1], TIERS[1]), (f"require:{TIERS[1]}", TIERS[1])],
)
def test_unknown_tier_of_a_host_is_the_weakest_wanted(tmp_path, wanted, found):
    assert tiers.tier_for(tmp_path, "cpu", wanted) == found
    tiers.remember(tmp_path, "cpu", TIERS[0])
    assert tiers.tier_for(tmp_path, "cpu", "auto") == TIERS[0]
