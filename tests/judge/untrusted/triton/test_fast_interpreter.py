"""The fast interpreter of Triton gives what Triton's own gives: values, types and errors."""

import json
import os
import subprocess
import sys

import pytest

from kernelgym.judge.untrusted.triton.fast_interpreter import launches, values

PROGRAM = """
import hashlib, json, sys
import numpy as np
import torch
import triton
import triton.language as tl
from kernelgym.judge.untrusted.triton.fast_interpreter import launches, values
from kernelgym.judge.untrusted.triton.fast_interpreter.switch import install
from kernelgym.suites.synthetic import SyntheticSuite, solve

found = {}
if sys.argv[1] == "quick":
    found["left"] = install(values, launches)


@triton.jit
def helper(value, scale):
    return value * scale + 1


@triton.jit
def kernel(out, n, big, BLOCK: tl.constexpr, CASE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = at + big
    if CASE == "overflow":
        x = (x * x).to(tl.int32) + x
    elif CASE == "uint":
        x = (at.to(tl.uint8) * 200 + 100).to(tl.int32)
    elif CASE == "bool":
        x = ((at > 3) & (at < n)).to(tl.int32)
    elif CASE == "wide":
        x = (at[:, None] * at[None, :] + tl.zeros((1, BLOCK), tl.int32)).to(tl.float64)
        x = tl.sum(tl.sum(x, 1) * 0.1, 0).to(tl.int32) + at
    elif CASE == "helper":
        x = helper(helper(x, 2), at)
    elif CASE == "half":
        x = (helper(at.to(tl.float16), 0.3) / 7 + at.to(tl.bfloat16)).to(tl.float32).to(tl.int32)
    elif CASE == "shapes":
        x = at + tl.arange(0, 2 * BLOCK)
    elif CASE == "negative":
        x = at.to(tl.uint32) + -1
    elif CASE == "pointers":
        x = out + out
    elif CASE == "scalar":
        x = tl.full((BLOCK,), n, tl.int64) // 3 + x.shape[0] + x.numel
    tl.store(out + at, x.to(tl.int32), mask=at < n)


cases = "plain overflow uint bool wide helper half shapes negative pointers scalar".split()
for case in cases:
    out = torch.zeros(16, dtype=torch.int32)
    try:
        kernel[(2,)](out, 13, 2**30, BLOCK=16, CASE=case)
        found[case] = out.tolist()
    except Exception as error:
        found[case] = f"{type(error).__name__}: {error}: {error.__cause__!r}"
    if case == "plain":
        try:
            tl.arange(0, 4)  # the language is as it was once a launch is over
        except ValueError as error:
            found["outside"] = str(error)
tl.own = tl.core.builtin(lambda x, _semantic=None: x + 1)


@triton.jit
def with_own(out):
    tl.store(out, tl.own(tl.load(out)))


with_own[(1,)](out)
found["own"] = out.tolist()
for number, problem in enumerate(list(SyntheticSuite().problems(level=1))[::9]):
    names, space = {}, {"__name__": f"kernel{number}"}
    exec(problem.source, names)
    path = f"{sys.argv[2]}/kernel{number}.py"
    open(path, "w").write(solve(problem, "triton").source)
    exec(compile(open(path).read(), path, "exec"), space)
    torch.manual_seed(1)
    model = space["ModelNew"](*names["get_init_inputs"]())
    torch.manual_seed(2)
    with torch.no_grad():
        output = model(*names["get_inputs"]())
    found[problem.id] = hashlib.sha256(output.numpy().tobytes()).hexdigest()
print(json.dumps(found))
"""


TABLE = """
import hashlib, itertools, json, sys
import numpy as np
import torch
import triton
import triton.language as tl
from kernelgym.judge.untrusted.triton.fast_interpreter import launches, values
from kernelgym.judge.untrusted.triton.fast_interpreter.switch import install

if sys.argv[1] == "quick":
    install(values, launches)
np.seterr(all="ignore")
TYPES = "int1 int8 uint8 int32 uint32 int64 float16 bfloat16 float32 float64"
NUMBERS = {
    "zero": 0, "one": 1, "minus": -3, "byte": 300, "int": 2**31 - 1, "uint": 2**31,
    "long": -(2**40), "ulong": 2**63, "none": 2**64, "yes": True, "half": 0.5,
    "nought": -0.0, "tiny": 2.0**-130,
    "huge": 1e300, "infinite": float("-inf"), "nan": float("nan"), "numpy": np.float32(1.5),
}
OPERATORS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "floor": lambda a, b: a // b, "mod": lambda a, b: a % b,
    "and": lambda a, b: a & b, "less": lambda a, b: a < b, "equal": lambda a, b: a == b,
    "most": lambda a, b: tl.maximum(a, b), "where": lambda a, b: tl.where(a > 0, a, b),
}
SHAPES = {
    "block": lambda x: x, "number": lambda x: tl.sum(x, 0), "column": lambda x: x[:, None],
    "row": lambda x: x[None, :], "matrix": lambda x: x[:, None] + x[None, :],
    "longer": lambda x: tl.zeros((8,), tl.int32) + tl.sum(x, 0),
    "cube": lambda x: x[:, None, None], "pointer": lambda x: POINTERS[0], "pointers":
    lambda x: POINTERS[0] + tl.arange(0, 4),
}
POINTERS, told = [None], {}


@triton.jit
def run(pointer, OP: tl.constexpr):
    OP(pointer)


def values(name):
    return (tl.arange(0, 4) * 3 - 2).to(getattr(tl, name))


def note(name, make):
    try:
        x = make()
        data = x.handle.data
        if "pointer" in str(x.handle.dtype):  # another one in every process
            base = POINTERS[0].handle.data[0]
            data = (data - base).astype(np.int64) if x.dtype.is_ptr() else data[:0]
        shape, bits = x.type.shape if x.type.is_block() else (), str(data.dtype)
        text = [str(x.type), str(x.dtype), str(x.handle.dtype), str(x.numel), str(x.shape)]
        text += [str(shape), bits, str(data.shape), hashlib.sha256(data.tobytes()).hexdigest()]
        told[name] = "; ".join(text)
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"


def note_all(pointer):
    POINTERS[0] = pointer
    for a, (op, do) in itertools.product(TYPES.split(), OPERATORS.items()):
        for b in TYPES.split():
            note(f"{a} {op} {b}", lambda: do(values(a), values(b)))
        for name, number in NUMBERS.items():
            note(f"{a} {op} {name}", lambda: do(values(a), number))
            note(f"{name} {op} {a}", lambda: do(number, values(a)))
    for one, other, (op, do) in itertools.product(SHAPES, SHAPES, OPERATORS.items()):
        make = lambda: do(SHAPES[one](values("int32")), SHAPES[other](values("int32")))
        note(f"{one} {op} {other}", make)
    for name, number in itertools.product(TYPES.split(), NUMBERS):
        note(f"full {name} {number}", lambda: tl.full((4, 2), NUMBERS[number], getattr(tl, name)))


run[(1,)](torch.zeros(16), note_all)
print(json.dumps(told))
"""

SEVERAL = """
import importlib, json, sys
import torch
import triton
import triton.language as tl
from kernelgym.judge.untrusted.triton.fast_interpreter import launches, values
from kernelgym.judge.untrusted.triton.fast_interpreter.switch import install

if sys.argv[1] == "quick":
    install(values, launches)

BY_CORE = '''
import triton
import triton.language.core as tl

@triton.jit
def join(a, b):
    return a + b * 2

@triton.jit
def reduced(out):
    at = tl.arange(0, 4)
    tl.store(out + at, at.to(tl.float32) + tl.reduce(at.to(tl.float32), 0, join))

@triton.jit
def scanned(out):
    at = tl.arange(0, 4)
    tl.store(out + at, tl.associative_scan(at.to(tl.float32), 0, join))
'''
BROKEN = '''
import triton
import triton.language as tl

@triton.jit
def broken(out):
    "A text in which a line begins as follows:
def something(
    "
    tl.store(out, 1.0)
'''
for name, text in (("by_core", BY_CORE), ("broken", BROKEN.replace('"', '"' * 3))):
    open(f"{sys.argv[2]}/{name}.py", "w").write(text)
sys.path.insert(0, sys.argv[2])
by_core, broken = map(importlib.import_module, ("by_core", "broken"))


@triton.jit
def summed(out):
    tl.store(out, tl.sum(tl.arange(0, 4), 0) + tl.load(out))


@triton.jit
def moved(x, out):
    at = tl.arange(0, 4)
    tl.store(out + at, tl.load(x + at).to(tl.float32))


found = {}


def note(name, kernel, *arguments):
    out = torch.zeros(4)
    try:
        kernel[(1,)](*arguments, out)
        found[name] = out.tolist()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"


for turn in range(2):
    note(f"summed {turn}", summed)
    note(f"reduced {turn}", by_core.reduced)
    note(f"scanned {turn}", by_core.scanned)
for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3fn", "float8_e5m2", "bfloat16"):
    note(name, moved, torch.arange(4.0).to(getattr(torch, name)))
note("broken", broken.broken)
print(json.dumps(found))
"""

REWRITTEN = """
import json, sys, traceback
import torch
import triton
import triton.language as tl
from kernelgym.judge.untrusted.triton.fast_interpreter import launches, values
from kernelgym.judge.untrusted.triton.fast_interpreter.switch import install

if sys.argv[1] == "quick":
    install(values, launches)


def plain(function):
    return function


@triton.jit
@plain
def nested(
    out, DIVISOR: tl.constexpr,
    FAILS: tl.constexpr = False,
):
    # an assignment in every kind of statement
    total = 0
    for i in range(3):
        if i % 2:
            total = total + 1
        else:
            first = total + 2
            total = first
    while total < 20:
        total += 7
        more = total
        total = more
    with open("/dev/null") as file:
        total = total + 1
    try:
        total = total / DIVISOR
    except ZeroDivisionError:
        total = total + 100
    finally:
        total = total + 3
    match DIVISOR:
        case 1:
            total = total * 2
        case _:
            total = total * 3

    class Holder:
        value = 4

    typed: float = total + Holder.value
    if FAILS:
        typed = typed + tl.arange(0, 4) + tl.arange(0, 8)
    tl.store(out, typed)


@triton.jit
def twice(out):
    a = b = 1.0
    tl.store(out, a + b)


@triton.jit
def apart(out):
    a, b = 1.0, 2.0
    [c, *d] = [a, b]
    out.own = c  # assignments to what is no name
    tl.store(out, a + b + c + d[0])


found = {}
for name, run in {
    "one": lambda out: nested[(1,)](out, 1),
    "two": lambda out: nested[(1,)](out, 2),
    "none": lambda out: nested[(1,)](out, 0),
    "fails": lambda out: nested[(1,)](out, 2, FAILS=True),
    "twice": lambda out: twice[(1,)](out),
    "apart": lambda out: apart[(1,)](out),
}.items():
    out = torch.zeros(1)
    try:
        run(out)
        found[name] = out.item()
    except Exception as error:
        cause = error.__cause__ or error
        lines = [frame.lineno for frame in traceback.extract_tb(cause.__traceback__)
                 if frame.filename == __file__]
        found[name] = [type(error).__name__, str(error), lines]
print(json.dumps(found))
"""


def told(program, which, folder):
    """Run a program with Triton's own interpreter or the fast one; what it prints."""
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(folder / "program.py"), which, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return [told(PROGRAM, which, tmp_path_factory.mktemp(which)) for which in ("own", "quick")]


def test_every_function_is_the_one_that_was_known(both):
    # Another version of Triton: read what has changed there before the texts are renewed.
    assert both[1]["left"] == []


@pytest.mark.parametrize("part", [values, launches])
def test_every_text_that_is_known_is_relied_on(part):
    relied_on = {name for _, names in part.MADE.values() for name in names}
    assert relied_on == set(part.TEXTS)


def test_values_and_errors_are_those_of_tritons_own_interpreter(both):
    own, quick = both
    assert len(own) > 20
    assert {name: value for name, value in quick.items() if name != "left"} == own


def test_a_builtin_that_the_kernel_adds_is_found(both):
    assert both[1]["own"][0] == both[1]["scalar"][0] + 1


def test_the_cases_tell_apart_what_they_are_for(both):
    failing = {name for name, value in both[0].items() if "Error" in str(value)}
    assert failing == {"shapes", "negative", "pointers"}
    assert "triton.jit" in both[0]["outside"]


@pytest.mark.slow
def test_every_operator_gives_the_same_for_all_types_numbers_and_shapes(tmp_path):
    own, quick = (told(TABLE, which, tmp_path) for which in ("own", "quick"))
    differing = {name: (own[name], quick.get(name)) for name in own if own[name] != quick.get(name)}
    assert not differing
    failing = sum("Error" in value or "Exception" in value for value in own.values())
    assert len(own) > 5000 and 500 < failing < len(own) // 2, "both have to be tried"


@pytest.mark.slow
def test_a_kernel_is_rewritten_alike_wherever_it_assigns_and_fails_on_the_same_line(tmp_path):
    own, quick = (told(REWRITTEN, which, tmp_path) for which in ("own", "quick"))
    assert quick == own
    numbers = [own[name] for name in ("one", "two", "none", "apart")]
    assert all(isinstance(each, float) for each in numbers) and len(set(numbers)) == 4
    assert "incompatible dimensions" in own["fails"][1]
    assert "Multiple assignments" in own["twice"][1]


@pytest.mark.slow
def test_kernels_one_after_the_other_that_see_the_language_differently_run_alike(tmp_path):
    own, quick = (told(SEVERAL, which, tmp_path) for which in ("own", "quick"))
    assert quick == own
    assert own["reduced 0"] == [12, 13, 14, 15] and own["scanned 0"] == [0, 2, 6, 12]
    failing = {name for name, value in own.items() if "Error" in str(value)}
    assert {"float8_e4m3fnuz", "float8_e5m2fnuz", "broken"} <= failing
