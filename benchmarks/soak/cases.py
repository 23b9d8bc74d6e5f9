"""The kernels of the soak: honest ones, mistaken ones and hostile ones, with their fair verdicts.

Every case names the statuses that would be a right answer; where a sandbox tier or a scheduler
decides between several, all of them. A case that leaves something behind and then does its work
(`correct` is fair, or `rejected` for how) is there for what is left, not for its verdict.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.soak.sources import BASES, DAEMON, FORGE, HOARD, LITTER, PROBLEM, SPIN, THREADS
from kernelgym.types import Kernel, Problem

HOSTILE_SHARE = 0.2


@dataclass(frozen=True)
class SoakCase:
    """One kernel and the statuses that are a right answer to it."""

    name: str
    kernel: Kernel
    fair: frozenset[str]
    hostile: bool = False
    weight: float = 1.0
    """How often it is drawn, beside the others of its kind."""


def problem(device: str) -> Problem:
    """Return the one problem of the soak, in a size fit for a device."""
    rows, columns = (37, 131) if device == "cpu" else (1031, 1024)
    source = PROBLEM.format(rows=rows, columns=columns)
    return Problem("Soak/L1/1", "Soak", 1, "affine", source)


def load_soak_cases(device: str, alone: bool = True) -> list[SoakCase]:
    """Return the cases that a kind of device can judge.

    Args:
        device: The device.
        alone: Whether one kernel is judged at a time. Otherwise none takes all of a device's
            memory, which its neighbours, judged on the same device, could not do without.
    """
    cases = _common() + (_on_cpu() if device == "cpu" else _on_cuda())
    return [case for case in cases if alone or case.name != "hoards_device_memory"]


def draw(cases: list[SoakCase], count: int, seed: int) -> list[SoakCase]:
    """Return `count` cases in random order, one in five hostile, every source one of several."""
    rng = random.Random(seed)
    hostile = round(count * HOSTILE_SHARE)
    drawn = []
    for kind, number in ((True, hostile), (False, count - hostile)):
        chosen = [case for case in cases if case.hostile is kind]
        # Each once if there is room, so that no case depends on luck.
        drawn += chosen[:number]
        weights = [case.weight for case in chosen]
        drawn += rng.choices(chosen, weights, k=max(0, number - len(chosen)))
    rng.shuffle(drawn)
    return [_renamed(case, rng.randrange(6)) for case in drawn]


def _renamed(case: SoakCase, number: int) -> SoakCase:
    """The same case under another source, so that not everything was judged before."""
    source = f"{case.kernel.source}\n# {number}\n"
    kernel = Kernel(source, case.kernel.language)
    return SoakCase(case.name, kernel, case.fair, case.hostile, case.weight)


def _case(
    name: str,
    fair: str,
    body: str = "",
    change: tuple[str, str] | None = None,
    language: str = "triton",
    top: str = "",
    weight: float = 1.0,
    hostile: bool = False,
) -> SoakCase:
    """Make a case from a correct kernel: statements first in `forward`, or one piece changed."""
    source = BASES[language]
    if change is not None:
        assert change[0] in source, change[0]
        source = source.replace(*change)
    if body:
        start = "    def forward(self, x, b):\n"
        lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
        source = source.replace(start, start + lines)
    kernel = Kernel(top + source, language)
    return SoakCase(name, kernel, frozenset(fair.split()), hostile, weight)


def _common() -> list[SoakCase]:
    done = ("return out\n", "return out.clone() + 1e-2\n")
    return [
        _case("right", "correct", weight=8),
        _case("wrong_factor", "wrong", change=("* 2 +", "* 3 +"), weight=2),
        _case("wrong_everywhere", "wrong", change=done),
        _case("never_written", "wrong", change=("mask = offsets < n", "mask = offsets < n - 5000")),
        _case("wrong_shape", "wrong", change=("return out\n", "return out[1:]\n")),
        _case("nan", "wrong", change=("return out\n", "return out * float('nan')\n")),
        _case("syntax_error", "compile_error", change=("return out\n", "return out)\n"), weight=2),
        _case("no_class", "compile_error", change=("class ModelNew", "class Model")),
        _case("import_error", "compile_error", top="import a_module_that_is_not_there\n"),
        _case("raises", "runtime_error", "raise ValueError('no')", weight=2),
        _case("raises_first", "runtime_error", change=("super().__init__()", "1 / 0")),
        _case("no_such_name", "runtime_error compile_error", change=("tl.maximum", "tl.maximun")),
        _case("torch_only", "rejected", "return torch.relu(x) * 2 + b"),
        # Hostile from here on. Signals do not reach the first process of a pid namespace.
        *(
            _case(name, fair, body, weight=weight, hostile=True)
            for name, fair, body, weight in (
                ("exits", "runtime_error", "import os\nos._exit(0)", 3),
                ("system_exit", "runtime_error", "raise SystemExit(0)", 2),
                ("segfault", "runtime_error", "import ctypes\nctypes.string_at(0)", 3),
                ("kills_itself", "correct runtime_error", "import os\nos.kill(os.getpid(), 9)", 2),
                (
                    "kills_parent",
                    "correct runtime_error",
                    "import os\ntry:\n    os.kill(os.getppid(), 9)\nexcept OSError:\n    pass",
                    2,
                ),
                ("hangs", "timeout", "while True:\n    pass", 0.5),
                ("sleeps", "timeout", "import time\ntime.sleep(3600)", 0.5),
                ("stops", "correct timeout", "import os\nos.kill(os.getpid(), 19)", 0.5),
                ("floods", "runtime_error", "while True:\n    print('x' * 9999)", 2),
                (
                    "floods_raw",
                    "runtime_error",
                    "import os\nwhile True:\n    os.write(2, b'x' * 9999)",
                    2,
                ),
                (
                    "hogs_memory",
                    "runtime_error",
                    "a = []\nwhile True:\n    a.append(bytearray(1 << 24))",
                    2,
                ),
                ("asks_too_much", "runtime_error", "torch.empty(1 << 45)", 2),
                ("forks", "runtime_error", "import os\nfor _ in range(5):\n    os.fork()", 3),
                (
                    "runs_programs",
                    "runtime_error",
                    "import subprocess\nsubprocess.run(['sleep', '600'])",
                    2,
                ),
                ("leaves_a_daemon", "correct runtime_error", DAEMON, 3),
                # On a GPU they may starve the compiler, which runs in the same process.
                ("leaves_threads", "correct runtime_error timeout", THREADS, 0.5),
                # Its memory files are made through ctypes, which no kernel's work needs.
                ("litters", "correct rejected runtime_error", LITTER, 3),
                ("closes_fds", "runtime_error timeout", "import os\nos.closerange(3, 256)", 3),
                ("forges_and_exits", "runtime_error", FORGE + "os._exit(0)", 2),
                ("forges_and_returns", "runtime_error wrong", FORGE + "return x.clone()", 2),
                (
                    "patches_comparison",
                    "wrong",
                    "torch.equal = torch.allclose = lambda *a, **k: True\nreturn x.clone()",
                    2,
                ),
            )
        ),
        _case(
            "hangs_at_import",
            "timeout compile_error",
            top="import time\ntime.sleep(3600)\n",
            weight=0.5,
            hostile=True,
        ),
    ]


def _on_cpu() -> list[SoakCase]:
    null = (
        "for (int64_t i = 0; i < rows",
        "*(volatile int*)nullptr = 1;\n  for (int64_t i = 0; i < rows",
    )
    done = "  return out;\n"
    return [
        _case("cpp_right", "correct", language="cpp", weight=5),
        _case("cpp_wrong", "wrong", language="cpp", change=("* 2 +", "* 3 +")),
        _case(
            "cpp_typo",
            "compile_error",
            language="cpp",
            change=("rows = x", "rows == x"),
            weight=0.2,
        ),
        _case("cpp_throws", "runtime_error", language="cpp", change=(done, "  throw 3;\n")),
        _case("cpp_segfault", "runtime_error", language="cpp", change=null, weight=2, hostile=True),
        _case(
            "cpp_exits",
            "runtime_error",
            language="cpp",
            change=(done, "  exit(0);\n" + done),
            weight=2,
            hostile=True,
        ),
    ]


def _on_cuda() -> list[SoakCase]:
    far = ("tl.store(out + offsets,", "tl.store(out + offsets.to(tl.int64) * 100000000,")
    trap = ("if (i < n)", 'if (i == 7) asm("trap;");\n  if (i < n)')
    block = "torch.empty(1 << 42, device=x.device)"
    return [
        _case("nvrtc_right", "correct", language="cuda", weight=4),
        _case("nvrtc_wrong", "wrong", language="cuda", change=("* 2.f +", "* 3.f +")),
        _case(
            "nvrtc_typo",
            "runtime_error compile_error",
            language="cuda",
            change=("if (i < n)", "iff (i < n)"),
        ),
        _case("device_memory", "runtime_error", block),
        *(
            _case(name, fair, weight=weight, hostile=True, **how)
            for name, fair, weight, how in (
                ("writes_far_away", "runtime_error", 3, {"change": far}),
                ("nvrtc_trap", "runtime_error", 3, {"language": "cuda", "change": trap}),
                (
                    "device_assert",
                    "runtime_error",
                    3,
                    {"body": "torch._assert_async(torch.zeros(1, device=x.device))"},
                ),
                ("spins_on_device", "timeout runtime_error", 1, {"change": SPIN}),
                ("hoards_device_memory", "correct runtime_error", 2, {"body": HOARD}),
                (
                    "exits_amid_work",
                    "runtime_error",
                    2,
                    {"change": ("return out\n", "import os\n        os._exit(1)\n")},
                ),
            )
        ),
    ]
