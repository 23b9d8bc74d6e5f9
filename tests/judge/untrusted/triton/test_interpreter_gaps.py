"""Kernels in the styles that models write run interpreted, by either interpreter."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import torch
import triton
import triton.language as tl
from kernelgym.judge.untrusted.triton import autotune, bounds_check, interpreter_gaps, libdevice
from kernelgym.judge.untrusted.triton.fast_interpreter import launches, values
from kernelgym.judge.untrusted.triton.fast_interpreter.switch import install

bounds_check.check_interpreter_accesses()
libdevice.install()
interpreter_gaps.fill(libdevice.with_semantic)
turns = autotune.install()
if sys.argv[1] == "fast":
    install(values, launches)

from triton.language import exp as own_exp
from triton.language.extra import libdevice as device
from triton.language.extra.cuda.libdevice import erf
from triton.tools.tensor_descriptor import TensorDescriptor

SIZES = tl.constexpr(16)
calls, found = [], {}


def hook(arguments, **kwargs):
    calls.append((arguments["BLOCK"], kwargs.get("reset_only", "exception" in kwargs)))
    arguments["out"].zero_()


def prune(configs, named, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] < 64]


@triton.autotune(
    [triton.Config({"BLOCK": size}, num_warps=4) for size in (64, 32, 16)],
    key=["n"], prune_configs_by={"early_config_prune": prune}, pre_hook=hook,
    do_bench=lambda call, quantiles: 1 / 0,
)
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def summed(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.static_assert(BLOCK < 32)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)) + EVEN)


@triton.autotune(
    [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[], restore_value=["x"]
)
@triton.jit
def in_place(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@triton.autotune(
    [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[], reset_to_zero=["out"]
)
@triton.jit
def added(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[])
@triton.jit
def added_carelessly(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def functions(x, out, n, BLOCK: tl.constexpr, WHICH: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if WHICH == "module":
        value = device.tanh(value) + device.pow(tl.abs(value), 2.0)
    elif WHICH == "name":
        value = erf(value) + own_exp(value)
    elif WHICH == "path":
        value = tl.extra.cuda.libdevice.log1p(tl.abs(value)) + tl.extra.libdevice.rsqrt(2.0)
    elif WHICH == "exchange":
        value += tl.atomic_xchg(x + at, value)
    elif WHICH == "assembly":
        value = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [value], dtype=tl.float32, is_pure=True, pack=1
        )
    tl.store(out + at, value, mask=at < n)


@triton.jit
def described(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    target = tl.make_tensor_descriptor(
        out, shape=[rows, columns], strides=[columns, 1], block_shape=[ROWS, COLUMNS]
    )
    place = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    value = x.load(place)
    target.store(place, value * 2)
    target.atomic_add(place, value)


@triton.jit
def grouped(sources, targets, n, BLOCK: tl.constexpr):
    group, at = tl.program_id(0), tl.arange(0, BLOCK)
    source = tl.load(sources + group).to(tl.pointer_type(tl.float32))
    target = tl.load(targets + group).to(tl.pointer_type(tl.float32))
    tl.store(target + at, tl.load(source + at, mask=at < n) * 2, mask=at < n)


def said(launch):
    try:
        launch()
    except Exception as error:
        return str(error)


def launch(kernel, *args, **kwargs):
    kernel[lambda meta: [triton.cdiv(40, meta["BLOCK"])]](*args, 40, **kwargs)


x, out = torch.linspace(-2, 2, 40), torch.zeros(40)
total = torch.zeros(1)
launch(summed, x.abs(), total)
found["summed"] = [abs(float(total - x.abs().sum())), summed.best_config.kwargs["BLOCK"]]
found["hooks"] = calls[:]
launch(summed, x.abs(), total.zero_())
found["hooks later"], found["summed later"] = len(calls), abs(float(total - x.abs().sum()))
y = x.clone()
launch(in_place, y)
found["restored"] = bool((y == x + 1).all())
for kernel in (added, added_carelessly):
    launch(kernel, x, out.zero_())
    found[kernel.base_fn.__name__] = round(float(out.abs().sum() / x.abs().sum()), 3)
expected = {
    "module": torch.tanh(x) + x * x, "name": torch.erf(x) + torch.exp(x),
    "path": torch.log1p(x.abs()) + 0.5**0.5, "exchange": 2 * x,
}
for which, value in expected.items():
    functions[(1,)](x, out, 40, BLOCK=64, WHICH=which) if which != "exchange" else (
        functions[(1,)](x[:32], out, 32, BLOCK=32, WHICH=which)
    )
    size = 32 if which == "exchange" else 40
    found[which] = float((out - value)[:size].abs().max()) < 1e-6
found["assembly"] = said(lambda: functions[(1,)](x, out, 40, BLOCK=64, WHICH="assembly"))
matrix, twice = torch.randn(20, 40), torch.zeros(20, 40)
source = TensorDescriptor.from_tensor(matrix, [16, 32])
described[(2, 2)](source, twice, 20, 40, ROWS=16, COLUMNS=32)
found["described"] = float((twice - 3 * matrix).abs().max()) < 1e-5
sources, targets = [torch.randn(10) for _ in "ab"], [torch.zeros(10) for _ in "ab"]


def pointers(tensors, more=0):
    return torch.tensor([tensor.data_ptr() + more for tensor in tensors])


grouped[(2,)](pointers(sources), pointers(targets), 10, BLOCK=16)
found["grouped"] = all(bool((t == 2 * s).all()) for s, t in zip(sources, targets))
far = pointers(sources, 1 << 40)
found["far"] = said(lambda: grouped[(2,)](far, pointers(targets), 10, BLOCK=16))
past = pointers(targets)
found["past"] = said(lambda: grouped[(2,)](pointers(sources), past, 11, BLOCK=16))


def doubled(*given):
    made = [torch.empty(10) for _ in given]
    grouped[(2,)](pointers(given), pointers(made), 10, BLOCK=16)
    return made


from kernelgym.judge.untrusted.watch import fingerprint, host_memory, host_transfers
from kernelgym.judge.untrusted.watch import launch_times, launches as counts
from kernelgym.judge.untrusted.watch import device_kernels, operator_work, records, tracer

parts = host_transfers, operator_work, host_memory, fingerprint, launch_times, records
parts += (device_kernels,)
watcher = tracer.Tracer(counts.Launches(), *parts).begin()
watcher.mode("record")
watcher.call(doubled, sources)
seen = watcher.mode("off")
turns.on, skips = True, []
turns.is_skipping = lambda: bool(skips)
taken = []


def launched(times):
    taken.clear()
    for _ in range(times):
        launch(in_turn, x, out)
        taken.append(in_turn.best_config.kwargs["BLOCK"])
    return [*taken, in_turn.cache.untried()]


@triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 64, 8, 32)], key=["n"])
@triton.jit
def in_turn(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK != 64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


found["turns"] = [launched(1)]
skips.append(1)
found["turns"].append(launched(2))
skips.clear()
found["turns"].append(launched(2))
found["turns"].append(launched(2))
turns.on = False
found["turns"].append(launched(2))
found["watched"] = [seen["launches"], seen["working"], seen["crossed"]]
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=["fast", pytest.param("plain", marks=pytest.mark.slow)])
def found(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(path), request.param],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_autotune_takes_the_first_config_that_runs(found):
    error, block = found["summed"]
    assert block == 16  # 64 is pruned, and of 32 an assertion fails while it compiles
    assert error < 1e-4 and found["summed later"] < 1e-4


def test_autotune_takes_configs_in_turn_where_it_is_told_to(found):
    # The second config never compiles. Launches that are left out take no turn.
    first, skipped, next_two, again, off = found["turns"]
    assert first == [16, 3] and skipped == [16, 16, 3]
    assert next_two == [8, 32, 0] and again == [16, 8, 0] and off == [8, 8, 0]


def test_autotune_calls_hooks_as_if_it_measured(found):
    assert found["hooks"] == [[32, False], [16, False], [16, True]]
    assert found["hooks later"] == 3  # the config is known


def test_autotune_restores_and_resets_what_it_is_told(found):
    assert found["restored"] and found["added"] == 1.0


def test_autotune_without_reset_adds_twice_as_on_a_gpu(found):
    assert found["added_carelessly"] == 2.0


@pytest.mark.parametrize("which", ["module", "name", "path", "exchange", "described", "grouped"])
def test_style_of_models_runs_interpreted(found, which):
    assert found[which]


def test_assembly_fails_and_says_what_to_do(found):
    assert "judge the kernel on a GPU" in found["assembly"]


def test_pointer_into_no_tensor_is_refused(found):
    assert "out-of-bounds load: 10 of 10" in found["far"]


def test_pointer_past_the_end_of_its_tensor_is_refused(found):
    assert "past the end of 'a tensor that an integer points to'" in found["past"]


def test_watched_launch_by_pointers_counts_as_work(found):
    launches, working, crossed = found["watched"]
    assert (launches, working) == (1, 1)
    assert crossed < 100  # the tables alone: what the pointers lead to was written by the kernel
