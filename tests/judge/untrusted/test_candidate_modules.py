"""What a live candidate has of ours: files of `judge/untrusted/`, and no other."""

import json
from pathlib import Path

import pytest

from kernelgym.judge.sandbox import paths
from kernelgym.judge.untrusted.watch import host_transfers
from support.programs import AFFINE, CPP, TRITON, doing

PACKAGE = Path(paths.__file__).parents[2]
UNTRUSTED = PACKAGE / "judge" / "untrusted"
LOOKING = (
    "import json, sys\n"
    "files = {str(getattr(m, '__file__', None) or '') for m in list(sys.modules.values())}\n"
    "print('FILES', json.dumps(sorted(f for f in files if '/kernelgym' in f)))"
)


@pytest.mark.parametrize("kernel", [TRITON, CPP], ids=["triton", "cpp"])
def test_live_candidate_holds_untrusted_files_only(strict, kernel):
    verdict = strict.evaluate(AFFINE, doing(LOOKING, kernel))
    line = next(line for line in verdict.log.splitlines() if line.startswith("FILES"))
    files = [Path(name) for name in json.loads(line.removeprefix("FILES"))]
    assert {"candidate.py", "tracer.py"} <= {file.name for file in files}
    assert all(file.is_relative_to(UNTRUSTED) for file in files), files


def test_sandbox_paths_hide_the_whole_package():
    """A folder too low, and candidates could read solutions of the Synthetic suite."""
    assert paths._PACKAGE == PACKAGE and (paths._PACKAGE / "suites" / "synthetic").is_dir()
    readable = paths.readable_paths(str(PACKAGE.parent))
    assert not [path for path in readable if PACKAGE.is_relative_to(path)]
    assert not [path for path in readable if Path(path).is_relative_to(PACKAGE)]


def test_solutions_cannot_be_read_from_a_kernel(strict):
    solved = PACKAGE / "suites" / "synthetic" / "solve.py"
    verdict = strict.evaluate(AFFINE, doing(f"print(open({str(solved)!r}).read()[:40])"))
    assert verdict.status.value == "runtime_error" and "denied" in verdict.message


def test_host_transfers_know_the_judges_own_ctypes_calls():
    """A folder too low, and the judge's own `mallopt` would count as the kernel's."""
    assert str(UNTRUSTED) in host_transfers._INSTALLED
    ours = [str(path) for path in UNTRUSTED.rglob("*.py") if "ctypes" in path.read_text()]
    assert ours and all(path.startswith(host_transfers._INSTALLED) for path in ours)
