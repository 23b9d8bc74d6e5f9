"""The command as a process: what it imports, exit codes, pipes and interrupts."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelgym import __version__

COMMAND = (sys.executable, "-m", "kernelgym.cli")


def call(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *argv], capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload, no-any-return]


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from kernelgym.cli import main\n"
        "assert main(['--help']) == 0\n"
        "assert main(['check', '--help']) == 0\n"
        "heavy = {'torch', 'triton', 'datasets', 'faiss', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("ls", "show", "check", "play", "lint"):
        assert command in done.stdout
    assert "Exit codes" in done.stdout and "130" in done.stdout


def test_no_command_is_help_and_an_unknown_one_an_error():
    assert call().returncode == 0
    done = call("nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kernelgym: error: ") and "nosuch" in done.stderr


def test_a_usage_error_leaves_no_traceback(folder: Path):
    done = call("check", "missing.py", "--problem", "problem.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kernelgym: error: cannot read kernel file 'missing.py'")
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_error():
    shell = f"{' '.join(COMMAND)} ls --suite Synthetic | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert (done.stdout.split()[-1], done.stderr) == ("0", "")


@pytest.mark.parametrize(
    "argv", [("ls",), pytest.param(("--help",), marks=pytest.mark.slow)], ids=" ".join
)
def test_pipe_closed_at_once_is_no_error(argv: tuple[str, ...]):
    """The reader goes before the first line is written, as `| true` may."""
    process = subprocess.Popen([*COMMAND, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=120), err) == (0, b"")


def test_package_run_as_a_module_is_the_command():
    argv = [sys.executable, "-m", "kernelgym", "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kernelgym {__version__}\n", "")


def test_an_interrupted_batch_is_130_keeps_its_rows_and_goes_on(folder: Path):
    source = (folder / "right.py").read_text()
    (folder / "sleeps.py").write_text(
        source.replace("        x = x.contiguous()", "        import time\n        time.sleep(60)")
    )
    jobs = folder / "jobs.jsonl"
    row = '{{"id": "{0}", "problem": "problem.py", "kernel": "{0}.py"}}\n'
    jobs.write_text(row.format("right") + row.format("sleeps"))
    out = folder / "out.jsonl"
    argv = [*COMMAND, "check", "--batch", str(jobs), "--out", str(out)]
    # A shell that runs the tests in the background has them, and so their children, ignore it.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, preexec_fn=heed)
    try:
        deadline = time.monotonic() + 60
        while not (out.exists() and out.read_text().endswith("\n")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "kernelgym: interrupted\n")
    assert len(out.read_text().splitlines()) == 1


_KILLED = """
import sys
from kernelgym.cli import judging, main
from kernelgym.testing import ScriptedEvaluator


class SlowFirst(ScriptedEvaluator):
    \"\"\"Judges the first job last, once the test has looked at the others' rows.\"\"\"

    def evaluate_iter(self, jobs):
        waiting = list(enumerate(jobs))
        for index, job in [*waiting[1:], waiting[0]]:
            if index == 0 or len(waiting) == 1:
                print("blocked", flush=True)
                sys.stdin.readline()
            yield index, self.evaluate(job.problem, job.kernel)


judging.make_evaluator = lambda *a, **k: SlowFirst()
sys.exit(main(sys.argv[1:]))
"""


def test_killed_batch_repeats_nothing_that_was_judged(folder: Path):
    source = (folder / "right.py").read_text()
    jobs, out = folder / "jobs.jsonl", folder / "out.jsonl"
    rows = []
    for number in range(12):
        (folder / f"k{number}.py").write_text(f"{source}# {number}\n")
        rows.append(f'{{"id": {number}, "problem": "problem.py", "kernel": "k{number}.py"}}\n')
    jobs.write_text("".join(rows))
    argv = [sys.executable, "-c", _KILLED, "check", "--batch", str(jobs), "--out", str(out)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "blocked\n"  # all other jobs are judged by now
        process.kill()
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == list(range(1, 12))
    with subprocess.Popen(argv, **pipes) as process:  # type: ignore[call-overload]
        said, _ = process.communicate("go on\n", timeout=60)
    assert said.startswith("blocked\njudged 1 jobs (11 more were judged before): 1 correct")
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == list(range(12))
