"""Which sandbox tier is used: the strongest that works, no weaker one than is required."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from programs import AFFINE, TRITON

from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator, tiers, zygote
from kernelgym.judge.sandbox import TIERS, Plan

HERE = os.path.dirname(__file__)
STRONGEST, MIDDLE, WEAKEST = TIERS


class _Host(zygote._Zygote):
    """A zygote on a host that allows some tiers: a trial child fails in the others."""

    def __init__(self, *allowed):
        self.sandbox = SimpleNamespace(TIERS=TIERS)
        self.plan = Plan("limits", "", (), (), 1 << 29, 1 << 24, 64, 256)
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


def test_what_is_remembered_is_taken_only_where_it_suffices(tmp_path):
    for tier in TIERS:
        tiers.remember(tmp_path, "cpu", tier)
        for wanted in ("auto", *TIERS, *(f"require:{name}" for name in TIERS)):
            name = wanted.removeprefix("require:")
            stronger = wanted == "auto" or TIERS.index(tier) <= TIERS.index(name)
            enough = stronger if wanted != name or wanted == "auto" else tier == name
            assert tiers.recall(tmp_path, "cpu", wanted) == (tier if enough else "")
    assert tiers.recall(tmp_path, "cuda:0", "auto") == ""  # a GPU's probe opens device memory
    tiers.forget(tmp_path, "cpu")
    tiers.forget(tmp_path, "cpu")
    assert tiers.recall(tmp_path, "cpu", "auto") == ""


def test_what_is_no_tier_is_not_recalled(tmp_path):
    tiers.remember(tmp_path, "cpu", STRONGEST)
    (file,) = (tmp_path / "tiers").iterdir()
    for text in ("", "none", f"{STRONGEST}\n"):
        file.write_text(text)
        assert tiers.recall(tmp_path, "cpu", "auto") == ""


def test_the_strongest_can_be_required_here(cache_dir):
    wanted = f"require:{STRONGEST}"
    with LocalEvaluator(cache_dir=cache_dir, timing=False, isolation=wanted) as evaluator:
        assert evaluator.evaluate(AFFINE, TRITON).isolation == STRONGEST


CONFINED = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
ids = {"setgroups": "deny", "uid_map": "{0} {0} 1", "gid_map": "{1} {1} 1"}
ids = {name: text.format(os.geteuid(), os.getegid()) for name, text in ids.items()}
assert ctypes.CDLL(None).unshare(0x10000000) == 0  # a user namespace, for its own limit below
for name, text in ids.items():
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
from programs import AFFINE, TRITON
from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.sandbox import TIERS
for isolation in ("auto", f"require:{TIERS[0]}"):
    with LocalEvaluator(cache_dir=sys.argv[2], timing=False, isolation=isolation) as evaluator:
        try:
            verdict = evaluator.evaluate(AFFINE, TRITON)
            print(verdict.status.value, verdict.isolation)
        except UsageError as error:
            print("refused", error)
"""


def test_a_host_without_namespaces_is_refused_where_they_are_required(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-c", CONFINED, HERE, str(tmp_path)], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    first, second = answer.stdout.splitlines()
    assert first == f"correct {MIDDLE}"
    assert second.startswith(f"refused isolation 'require:{STRONGEST}' is not to be had")
    assert "unshare" in second
    assert [path.read_text() for path in (tmp_path / "tiers").iterdir()] == [MIDDLE]


def test_requiring_no_tier_is_refused():
    with pytest.raises(UsageError, match="require:TIER"):
        LocalEvaluator(isolation="require:walls")
