"""Find small sizes for KernelBench's problems, and write their tables.

Run ``python -m benchmarks.conformance.small_sizes --kernelbench-root DIR --work FILE`` with a
checkout of KernelBench, of which nothing is shipped here; add ``--write`` to write the tables in
``src/kernelgym/suites``. FILE keeps what was found, so that a stopped run goes on from it. Two
cores and 4 GB suffice; levels 1 to 3 take about an hour.

For each problem, sizes are halved by role (batch, space, features) until a call moves and computes
little. What is kept: parity and powers of two (4095 becomes 255, not 256), equal sizes, whole
groups and heads, and all numbers that are no sizes, such as strides. A size that the module does
not run with is not taken. Then the degeneracy gate tests the form under ``strict``: it may find no
reason that is not known of the full size. Otherwise a larger form is tried, and at last none.

Facts only: ids, names of constants, numbers, bytes, seconds and reasons.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import math
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kernelgym
from kernelgym.judge.lint.process import HygieneProcess
from kernelgym.judge.tensors import bytes_of
from kernelgym.rulesets import ruleset
from kernelgym.suites.kernelbench import KernelBenchSuite
from kernelgym.suites.kernelbench_facts import degenerate, fact
from kernelgym.suites.kernelbench_small import SMALL, resized, size_constants
from kernelgym.types import Problem

MOST_BYTES = 64_000_000
MOST_SECONDS = 1.0
TIED = ("space", "features")
BYTES = ("input_bytes", "output_bytes", "param_bytes")
AIMS = {1: ((4e6, 1e8), (3.2e7, 2e9)), 2: ((4e6, 1e8), (3.2e7, 2e9)), 3: ((4e6, 5e8), (3.2e7, 4e9))}
"""By level, bytes and floating-point operations to come down to, and what is tried where a form of
that size is degenerate."""
MEMORY = 4 << 30
SEARCH_S, LINT_S = 400, 150

WARM = """
import torch
Model = lambda: torch.nn.Linear(2, 2)
get_init_inputs = lambda: []
get_inputs = lambda: [torch.rand(2, 2)]
"""

_NEVER = re.compile(
    r"kernel|stride|pad|dilation|group|head|layers$|patch|scale|scaling|divisor|pool|reduce|alpha|"
    r"stages|cluster|block|state|factor|value|^dropout|ratio|multipl|slope|clamp|hardtanh|eps|^bias$",
    re.I,
)
_BATCH = re.compile(r"batch|^b$")
_SPACE = re.compile(r"height|width|depth|length|seq|^dim\d|^[DHW]$|image_size")
_SOFT = {"batch": 4, "space": 16, "features": 64}
_HARD = {"batch": 2, "space": 8, "features": 32}
_NETWORK = {"batch": 4, "space": 16, "features": 32}
"""For level 3: a batch norm over two values gives their signs, whatever came before it."""
_IMAGE = (200, 56)  # networks halve an image five times: one of at least 200 keeps 56


def shrunk(value: int, halvings: int) -> int:
    """Return a value halved, about.

    Odd values stay odd, and multiples of 4 stay multiples of 4.
    """
    twos = (value & -value).bit_length() - 1
    odd = value >> twos
    if odd == 1:
        return 1 << max(0, twos - halvings)
    whole = min(halvings, max(0, twos - 2))
    rest = halvings - whole
    if odd & (odd + 1) == 0:  # all bits set, such as 65535: so it stays
        odd = max(3, (1 << max(2, odd.bit_length() - rest)) - 1)
    elif rest:
        odd = max(3, 2 * round((odd / 2**rest - 1) / 2) + 1)
    return odd << (twos - whole)


def role(name: str, value: int) -> str:
    """Return what a constant is a size of; '' if of nothing."""
    if name.startswith("get_inputs()"):
        return "space" if value >= 32 else ""
    if name.startswith("get_init_inputs()"):
        return "features" if value >= 16 else ""
    plain = name.partition("[")[0]
    if plain.endswith("_shape"):
        return "space" if value >= 32 and plain == "input_shape" else ""
    if _BATCH.search(plain):
        return "batch"
    if _NEVER.search(plain) and plain not in ("hidden_layer_sizes", "layer_sizes"):
        return ""
    if value < 8 or (name.endswith("]") and value < 32):
        return ""
    return "space" if _SPACE.search(plain) else "features"


def least(problem: Problem, name: str, value: int) -> int:
    """Return what a size may come down to."""
    kind = role(name, value)
    floor = (_NETWORK if problem.level == 3 else _HARD)[kind]
    if problem.level == 3 and kind == "space" and "seq" not in name and value >= _IMAGE[0]:
        floor = _IMAGE[1]
    return min(value, floor)


def sized(problem: Problem, halvings: Mapping[str, int]) -> dict[str, int]:
    """Return the new values of a problem's constants, only those that change."""
    new = {}
    for name, constant in size_constants(problem.source).items():
        old = constant.value
        if not (kind := role(name, old)):
            continue
        tried = range(halvings[kind], -1, -1)
        values = (old >> n if kind == "batch" else shrunk(old, n) for n in tried)
        value = next((v for v in values if v >= least(problem, name, old)), old)
        if value != old:
            new[name] = value
    return new


def keeps_relations(problem: Problem, new: Mapping[str, int]) -> bool:
    """Return True if different sizes still differ, and groups keep their channels.

    A kernel that takes one axis for another fails only where their sizes differ. Groups keep two
    channels and heads eight, where they had as many.
    """
    known = {name: c.value for name, c in size_constants(problem.source).items()}
    for kind in _SOFT:
        sizes = {(old, new.get(n, old)) for n, old in known.items() if role(n, old) == kind}
        if len({now for _, now in sizes}) < len(sizes):
            return False
    parts = {n: v for n, v in known.items() if re.search(r"group|head", n) and v > 1}
    for name, value in new.items():
        if role(name, known[name]) != "features":
            continue
        for part, count in parts.items():
            least = 8 if "head" in part else 2
            if known[name] % count == 0 and (
                value % count or value // count < min(least, known[name] // count)
            ):
                return False
    return True


def namespace(source: str) -> dict[str, Any]:
    """Return what a module's text defines."""
    import types

    module = types.ModuleType("problem")
    sys.modules["problem"] = module
    exec(compile(source, "problem", "exec"), module.__dict__)
    return module.__dict__


@cache
def estimate(source: str) -> tuple[float, float]:
    """Return bytes and floating-point operations of a call, from shapes alone."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), torch.no_grad():
        names = namespace(source)
        model = names["Model"](*names["get_init_inputs"]())
        inputs = names["get_inputs"]()
        with FlopCounterMode(display=False) as counter:
            output = model(*inputs)
    weights = [*model.parameters(), *model.buffers()]
    total = bytes_of(inputs) + bytes_of(output) + bytes_of(weights)
    return total, counter.get_total_flops()


def measured(source: str) -> dict[str, Any]:
    """Return a call's bytes and seconds."""
    import torch

    torch.set_num_threads(2)
    with torch.no_grad():
        torch.manual_seed(0)
        names = namespace(source)
        model = names["Model"](*names["get_init_inputs"]())
        inputs = names["get_inputs"]()
        seconds = math.inf
        for _ in range(3):
            started = time.perf_counter()
            output = model(*inputs)
            seconds = min(seconds, time.perf_counter() - started)
            if seconds > 3 * MOST_SECONDS:
                break
    return {
        "input_bytes": bytes_of(inputs),
        "output_bytes": bytes_of(output),
        "param_bytes": bytes_of([*model.parameters(), *model.buffers()]),
        "seconds": round(seconds, 4),
    }


def search(problem: Problem, aim: tuple[float, float]) -> dict[str, Any]:
    """Return the sizes found, or why there are none."""
    halvings = dict.fromkeys(_SOFT, 0)
    known = {n: c.value for n, c in size_constants(problem.source).items()}
    roles = {name: role(name, value) for name, value in known.items()}
    stuck: set[tuple[str, ...]] = set()
    spaces = [name for name, kind in roles.items() if kind == "space"]
    if spaces and all(re.search(r"length|seq|input_shape|^dim", name) for name in spaces):
        space = 128 // len(spaces)
    else:
        space = 64 if problem.level == 3 else 8 if len(spaces) >= 3 else 16
    soft = _SOFT | {"space": space}
    try:
        estimate(problem.source)
        blind = False
    except Exception:  # it needs values, so that nothing tells quickly whether a size fits
        blind = True

    def room(kinds: tuple[str, ...]) -> float:
        """Return the largest size of some roles, over its least useful size."""
        new = sized(problem, halvings)
        return max(
            (new.get(n, known[n]) / soft[r] for n, r in roles.items() if r in kinds), default=0
        )

    def halve(kinds: tuple[str, ...]) -> bool:
        """Halve sizes of some roles, if the module then runs and costs less."""
        before, start = sized(problem, halvings), dict(halvings)
        for _ in range(3):
            halvings.update({kind: halvings[kind] + 1 for kind in kinds})
            after = sized(problem, halvings)
            if after != before and keeps_relations(problem, after):
                if blind:
                    return True
                try:
                    cost = estimate(resized(problem.source, after))
                except Exception:
                    break
                old = estimate(resized(problem.source, before))
                if any(now < 0.95 * then for now, then in zip(cost, old, strict=True)):
                    return True
                break  # a size that decides nothing stays
        halvings.update(start)
        return False

    def smaller(most: float) -> bool:
        """Halve sizes where `room` is above `most`; return False if nowhere."""
        choices = [("batch",)] if blind else [*((kind,) for kind in _SOFT), tuple(_SOFT), TIED]
        while left := [kinds for kinds in choices if kinds not in stuck and room(kinds) > most]:
            # Roles that only shrink together, such as a batch added to a row of as many, come last.
            kinds = max(left, key=lambda kinds: (-len(kinds), room(kinds)))
            if halve(kinds):
                return True
            stuck.add(kinds)
        return False

    while True:
        new = sized(problem, halvings)
        source = resized(problem.source, new)
        total, flops = (math.inf, math.inf) if blind else estimate(source)
        if (total > aim[0] or flops > aim[1]) and (smaller(1.0) or smaller(0.5)):
            continue
        if blind:
            total = flops = 0.0
        if (total > MOST_BYTES or flops > 2e10) and smaller(0.25):
            continue
        if total > MOST_BYTES:
            return {"none": f"a call takes at least {total / 1e6:.0f} MB"}
        found = measured(source)
        if sum(found[part] for part in BYTES) > MOST_BYTES:
            if smaller(0.25):
                continue
            return {"none": "a call takes more than 64 MB"}
        if found["seconds"] > 0.2 and smaller(1.0):
            continue
        if found["seconds"] > MOST_SECONDS:
            if smaller(0.25):
                continue
            return {"none": f"a call of the reference takes {found['seconds']:.1f} s"}
        return {"sizes": {n: [known[n], v] for n, v in new.items()}} | found


def in_a_child(problem: Problem, aim: tuple[float, float]) -> dict[str, Any]:
    """Return what `search` finds, in a process with limits of its own."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY + (8 << 30), MEMORY + (8 << 30)))
        signal.alarm(SEARCH_S)
        try:
            found = search(problem, aim)
        except BaseException as error:
            found = {"none": f"it does not run: {type(error).__name__}: {str(error)[:200]}"}
        os.write(send, json.dumps(found).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    nothing = "no sizes were found in the time that the search had"
    return json.loads(text) if text else {"none": nothing}


class Gate:
    """The degeneracy gate, restarted where a problem overran."""

    def __init__(self, rules: str) -> None:
        self._rules = ruleset(rules)
        self._process: HygieneProcess | None = None

    def reasons(self, problem: Problem) -> tuple[list[str], str]:
        """Return the reasons found, and what else was said."""
        if self._process is None or not self._process.alive:
            self._process = HygieneProcess(self._rules, "cpu")
        found = self._process.examine(problem, LINT_S)
        return list(found.reasons), found.detail


def small(problem: Problem, sizes: Mapping[str, list[int]]) -> Problem:
    """Return the small form that these sizes give."""
    source = resized(problem.source, {name: new for name, (_, new) in sizes.items()})
    return dataclasses.replace(problem, id=problem.id + SMALL, source=source)


def unlike(problem: Problem, form: Mapping[str, Any], gate: Gate) -> list[str]:
    """Return why a small form is worth less than its problem.

    The reasons of the problem in full size are those of the shipped table. That table knows no idle
    parameters: they are compared with those of a form that is less small.
    """
    listed = set(degenerate(problem.id, "fp32", problem.name))
    new = sorted(set(form["strict"]) - listed - {"idle_parameters"})
    if "idle_parameters" in form["strict"] and not listed:
        larger = in_a_child(problem, AIMS[problem.level][1])
        if "none" in larger or idle(gate.reasons(small(problem, larger["sizes"]))[1]) != idle(
            form["detail"]
        ):
            new.append("idle_parameters")
    return new


def idle(detail: str) -> str:
    """Return the idle parameters that a result of the gate names."""
    return next((part for part in detail.split("; ") if part.startswith("idle_parameters")), "")


def examine(problem: Problem, strict: Gate, public: Gate) -> dict[str, Any]:
    """Return a small form's sizes and facts, or why there is none."""
    entry = fact(problem.id, problem.name)
    kept = dict(entry.reasons) if entry else {}
    found: dict[str, Any] = {}
    for aim in AIMS[problem.level]:
        found = in_a_child(problem, aim)
        if "none" in found:
            return found
        found["strict"], found["detail"] = strict.reasons(small(problem, found["sizes"]))
        if "not tested" in found["detail"]:
            found["none"] = f"the degeneracy gate could not test it: {found['detail'][:150]}"
        elif new := unlike(problem, found, strict):
            found["none"] = f"its small form is degenerate: {', '.join(new)}"
        else:
            break
    if "none" in found:
        return found
    at_fp32 = set(degenerate(problem.id, "fp32", problem.name))
    if at_fp32:  # smaller sizes may take a reason away
        found["public"] = public.reasons(small(problem, found["sizes"]))[0]
        for reason in at_fp32 - {"partial_computation", "analytic"} - set(found["public"]):
            del kept[reason]
    found["reasons"] = kept
    return found


def write(found: Mapping[str, dict[str, Any]], problems: Mapping[str, Problem]) -> None:
    """Write both tables."""
    folder = Path(kernelgym.__file__).parent / "suites"
    sizes: list[list[object]] = [["level", "id", "constant", "old", "new"]]
    facts: list[list[object]] = [
        ["level", "id", "name", *BYTES, "seconds", "degenerate", "no_small_form"]
    ]
    for key, problem in problems.items():
        row = found[key]
        number = key.rpartition("/")[2]
        head: list[object] = [problem.level, number]
        if "none" in row:
            facts.append([*head, problem.name, *[""] * 5, " ".join(row["none"].split())])
            continue
        sizes += [[*head, name, old, new] for name, (old, new) in row["sizes"].items()]
        parts = [row[part] for part in BYTES]
        reasons = ",".join(f"{reason}:{scope}" for reason, scope in row["reasons"].items())
        facts.append([*head, problem.name, *parts, row["seconds"], reasons, ""])
    for name, rows in (("sizes", sizes), ("facts", facts)):
        with open(folder / f"kernelbench_small_{name}.tsv", "w", newline="") as out:
            writer = csv.writer(out, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
            writer.writerows(rows)


def main() -> None:
    """Search, test, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernelbench-root", required=True)
    parser.add_argument("--work", required=True, type=Path, help="JSONL of what was found")
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--ids", default="", help="ids to search anew, such as L1/19,L2/3")
    parser.add_argument("--write", action="store_true", help="write the tables at the end")
    given = parser.parse_args()
    suite = KernelBenchSuite(given.kernelbench_root)
    problems = {
        problem.id: problem
        for level in map(int, given.levels.split(","))
        for problem in suite.problems(level)
    }
    found: dict[str, dict[str, Any]] = {}
    if given.work.exists():
        for line in given.work.read_text().splitlines():
            row = json.loads(line)
            found[row.pop("problem")] = row
    again = {f"KernelBench/{part}" for part in given.ids.split(",") if part}
    todo = [key for key in problems if (key in again if again else key not in found)]
    # Before the first fork: what this imports takes two seconds, and no child pays them again.
    estimate(WARM)
    strict, public = Gate("strict"), Gate("kernelbench")
    for key in todo:
        started = time.monotonic()
        found[key] = examine(problems[key], strict, public)
        with given.work.open("a") as out:
            out.write(json.dumps({"problem": key} | found[key]) + "\n")
        row = found[key]
        told = row.get("none") or f"{ {n: v[1] for n, v in row['sizes'].items()} } {row['strict']}"
        print(f"{key} {time.monotonic() - started:.1f} s {told}", flush=True)
    if given.write:
        write(found, problems)


if __name__ == "__main__":
    main()
