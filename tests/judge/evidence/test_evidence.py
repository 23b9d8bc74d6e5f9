"""Evidence of custom kernels: which kernels are refused, and on what the judge goes by."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.evidence.evidence import (
    Evidence,
    from_watched_call,
    with_launches,
)
from kernelgym.judge.evidence.reports import in_later_calls, work_on_host
from kernelgym.judge.evidence.torch_share import TorchWork
from kernelgym.judge.outcome import Circumstances, JudgedCalls, JudgeOutcome, verdict_of
from kernelgym.judge.session.launch_count import LaunchTally
from kernelgym.rulesets import RULESETS, Ruleset
from kernelgym.testing import SAMPLE_KERNELS
from kernelgym.types import Kernel, Severity, Status, Verdict
from support.programs import (
    AFFINE,
    CPP_SOURCE,
    TIGHT,
    TRITON,
    TRITON_SOURCE,
    doing,
    forward_only,
    problem,
    replaced,
)


@pytest.fixture
def judge(asking):
    return asking


def refused(verdict, code):
    hard = [f for f in verdict.findings if f.severity is Severity.HARD]
    assert verdict.status is Status.REJECTED and [f.code for f in hard] == [code], verdict
    assert verdict.message == hard[0].message and verdict.compiled
    assert verdict.trials_passed == verdict.trials > 0 and verdict.timing is None
    return True


TORCH = "torch.relu(x) * 2 + b"


def instead(result, before="", kernel=TRITON_SOURCE):
    """The Triton kernel is launched as ever, but `result` is returned."""
    return Kernel(
        kernel.replace("        return out\n", f"{before}        return {result}\n"), "triton"
    )


ADD_ZERO = TRITON_SOURCE.replace(
    "tl.store(out + offsets, tl.maximum(value, 0.0) * 2 + bias, mask=mask)",
    "tl.store(out + offsets, tl.load(out + offsets, mask=mask) + 0.0, mask=mask)",
)
COPY = TRITON_SOURCE.replace("tl.maximum(value, 0.0) * 2 + bias", "value")


@pytest.mark.parametrize(
    "kernel",
    [
        TRITON,
        # Torch does part of the work.
        replaced(
            replaced(TRITON, "tl.maximum(value, 0.0)", "value"),
            "affine[(",
            "x = x.relu()\n        affine[(",
        ),
        # A workspace is kept and reused.
        replaced(
            TRITON,
            "out = torch.empty_like(x)",
            "out = self.out = getattr(self, 'out', torch.empty_like(x))",
        ),
        # What the launches leave unwritten is filled by torch.
        replaced(TRITON, "torch.empty_like", "torch.zeros_like"),
        doing("with torch.inference_mode():\n    y = x.view(-1)"),
        doing("import threading\nt = threading.Thread(target=lambda: x + 1)\nt.start()\nt.join()"),
    ],
    ids=["plain", "torch for a part", "workspace", "zeros", "inference", "thread"],
)
def test_honest_kernels_pass(judge, kernel):
    verdict = judge.evaluate(AFFINE, kernel)
    assert verdict.status is Status.CORRECT, verdict
    assert not [f for f in verdict.findings if f.severity is Severity.HARD]


@pytest.mark.parametrize(
    "kernel, code",
    [
        (forward_only(f"return {TORCH}", "x, b"), "no_kernel_launch"),
        (instead(TORCH), "work_not_replaced"),
        (instead("torch.add(b, x.clamp(min=0).add(x.clamp(min=0)))"), "work_not_replaced"),
        (instead("x.relu().add_(x.relu()).add_(b)"), "work_not_replaced"),
        (
            replaced(
                instead(TORCH),
                "affine[(",
                "if torch._C._len_torch_dispatch_stack():\n"
                "            return (x.relu().add_(b / 2)).mul_(2).clone()\n        affine[(",
            ),
            "no_kernel_launch",
        ),
        (
            instead(
                "out",
                f"        x = {TORCH}\n",
                COPY.replace("out = ", f"x = {TORCH}\n        out = "),
            ),
            "decoy_kernel",
        ),
        (Kernel(ADD_ZERO.replace("torch.empty_like(x)", TORCH), "triton"), "decoy_kernel"),
        (
            Kernel(
                TRITON_SOURCE.replace(
                    "        return out\n", "        return self.f(x, b)\n"
                ).replace(
                    "super().__init__()",
                    "super().__init__()\n        "
                    f"self.f = torch.compile(lambda x, b: {TORCH}, backend='eager')",
                ),
                "triton",
            ),
            "work_not_replaced",
        ),
    ],
    ids=[
        "torch only",
        "scratch",
        "other operators",
        "in place",
        "no launch when watched",
        "copy",
        "adds zero",
        "torch.compile",
    ],
)
def test_kernels_without_custom_work_are_refused(judge, kernel, code):
    assert refused(judge.evaluate(AFFINE, kernel), code)


FEW = (
    "few = torch.tensor(x.shape).tolist() + x[0, :5].tolist() + [x[1, 1].item()]\n"
    "x = x if few else torch.tensor([1.0, 2.0])"
)


def test_a_few_numbers_may_be_read_on_the_host(judge):
    verdict = judge.evaluate(AFFINE, doing(FEW))
    assert verdict.correct, verdict


HALVES = TRITON_SOURCE.replace("tl.maximum(value, 0.0) * 2 + bias", "value * 0.5")
IN_NUMPY = "torch.from_numpy(np.maximum(x.numpy(), 0) * 4 + 2 * b.numpy())"


@pytest.mark.parametrize(
    "made",
    [
        IN_NUMPY,
        "torch.tensor(np.asarray((x.clamp(min=0) * 4 + 2 * b).tolist(), np.float32))",
        "torch.as_tensor(data=np.maximum(np.from_dlpack(x), 0) * 4 + 2 * b.numpy())",
        "torch.frombuffer(bytearray(x.clamp(min=0).mul(4).add(2 * b).numpy().tobytes()),"
        " dtype=x.dtype).view(x.shape)",
    ],
    ids=["from_numpy", "lists", "dlpack", "bytes"],
)
def test_work_on_the_host_is_refused(judge, made):
    source = "import numpy as np\n" + HALVES.replace("affine[(", f"x = {made}\n        affine[(")
    verdict = judge.evaluate(AFFINE, Kernel(source, "triton"))
    assert refused(verdict, "work_on_host") and "Triton kernel" in verdict.message


ONLY_WATCHED = f"if not torch._C._len_torch_dispatch_stack():\n    return {TORCH}"


def test_launching_only_while_watched_is_refused(judge):
    verdict = judge.evaluate(AFFINE, doing(ONLY_WATCHED))
    assert refused(verdict, "no_kernel_launch") and "only while" in verdict.message


@pytest.mark.slow
def test_a_call_without_a_launch_is_refused(cache_dir):
    kernel = replaced(
        doing("self.calls += 1\nif self.calls == 3:\n    return " + TORCH),
        "super().__init__()",
        "super().__init__()\n        self.calls = 0",
    )
    # Calls on other kinds of inputs do not count, and which of the calls those are is secret.
    rules = dataclasses.replace(RULESETS["strict"], limits=TIGHT, distributions=())
    with LocalEvaluator(ruleset=rules, cache_dir=cache_dir, timing=False) as evaluator:
        verdict = evaluator.evaluate(AFFINE, kernel)
    assert refused(verdict, "no_kernel_launch") and "in 1 of " in verdict.message


GELU = problem(
    "return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x ** 3)))",
    "torch.randn(40, 100)",
    name="gelu",
)


def test_a_fused_operator_of_torchs_beside_a_decoy_is_refused(judge):
    source = TRITON_SOURCE.replace("self, x, b", "self, x").replace(
        "(x, b, out, n, x.s", "(x, x, out, n, x.s"
    )
    body = "torch.nn.functional.gelu(x, approximate='tanh')"
    assert refused(judge.evaluate(GELU, instead(body, kernel=source)), "work_not_replaced")


def test_less_torch_work_beside_an_unused_launch_is_a_decoy(judge):
    # Constants are folded by hand: less traffic, still no custom work.
    double = problem("return (x * 2 * 3 * 4).relu()", "torch.randn(40, 100)", name="double")
    source = TRITON_SOURCE.replace("self, x, b", "self, x").replace(
        "(x, b, out, n, x.s", "(x, x[0], out, n, x.s"
    )
    verdict = judge.evaluate(double, instead("(x * 24).relu()", kernel=source))
    assert refused(verdict, "decoy_kernel") and "skipped" in verdict.message


RELU = problem("return torch.relu(x)", "torch.randn(37, 131)", name="relu")


@pytest.mark.slow
def test_operators_written_in_python_are_counted_by_what_they_do(judge):
    top = (
        "import torch\n\n\n@torch.library.custom_op('mine::affine', mutates_args=())\n"
        f"def work(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:\n    return {TORCH}\n"
    )
    hidden = Kernel(top + instead("torch.ops.mine.affine(x, b)").source, "triton")
    assert refused(judge.evaluate(AFFINE, hidden), "work_not_replaced")
    launching = TRITON_SOURCE.replace("class ModelNew", "PLACE\n\n\nclass ModelNew")
    body = launching.split("def forward(self, x, b):\n")[1].replace("        ", "    ")
    operator = (
        "@torch.library.custom_op('mine::affine', mutates_args=())\n"
        f"def work(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:\n{body}"
    )
    head = launching.split("        out = torch.empty_like")[0].replace("PLACE", operator)
    assert judge.evaluate(AFFINE, Kernel(head + "        return work(x, b)\n", "triton")).correct


@pytest.mark.slow
def test_torch_compile_is_reported(judge):
    top = "import torch\nf = torch.compile(lambda x: x, backend='eager')\n"
    verdict = judge.evaluate(AFFINE, Kernel(top + TRITON_SOURCE, "triton"))
    assert verdict.correct and [f.code for f in verdict.findings] == ["torch_compile"]


WATCHED = "if torch._C._len_torch_dispatch_stack():\n    "


@pytest.mark.parametrize("what", ["raise ValueError('watched')", "return x + 7"])
def test_failing_only_when_watched_is_no_way_out(judge, what):
    verdict = judge.evaluate(AFFINE, doing(WATCHED + what))
    assert refused(verdict, "no_evidence_run")


def test_a_single_failure_of_the_watched_run_is_forgiven(judge, tmp_path):
    # About every other process fails its watched run: some verdict is reached either way, and an
    # honest kernel's is `correct` as soon as one of two runs succeeds.
    flaky = doing(WATCHED + "import os\n    if os.urandom(1)[0] < 64:\n        raise ValueError")
    verdicts = [judge.evaluate(AFFINE, flaky) for _ in range(8)]
    assert any(v.correct for v in verdicts)
    assert {v.status for v in verdicts} <= {Status.CORRECT, Status.REJECTED}


def test_a_crash_without_the_custom_kernels_shows_that_they_matter(judge):
    kernel = replaced(TRITON, "return out", "assert not out.isnan().any()\n        return out")
    assert judge.evaluate(AFFINE, kernel).correct


def test_references_with_state_are_run_from_their_start(judge):
    counting = problem(
        "self.n += 1\nreturn torch.relu(x) * 2 + b * self.n",
        "torch.randn(37, 131), torch.randn(131)",
        init='self.register_buffer("n", torch.zeros(()))',
        arguments="x, b",
        name="counting",
    )
    kernel = replaced(
        replaced(TRITON, "affine[(", "self.n += 1\n        b = b * self.n\n        affine[("),
        "super().__init__()",
        'super().__init__()\n        self.register_buffer("n", torch.zeros(()))',
    )
    for _ in range(2):
        verdict = judge.evaluate(counting, kernel)
        assert verdict.correct, verdict


@pytest.mark.slow
def test_the_evidence_is_not_asked_for_where_the_rules_do_not(kernelbench):
    verdict = kernelbench.evaluate(AFFINE, forward_only(f"return {TORCH}", "x, b"))
    assert verdict.correct
    assert [(f.code, f.severity) for f in verdict.findings] == [("no_kernel_launch", Severity.SOFT)]


MORE = """
torch::Tensor forwards(torch::Tensor x, torch::Tensor b) { return at::relu(x) * 2 + b; }
torch::Tensor copies(torch::Tensor x) { return x.clone(); }
void into(torch::Tensor x, torch::Tensor b, torch::Tensor out) { out.copy_(affine(x, b)); }
void by_address(int64_t x, int64_t b, int64_t out, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows * columns; ++i) {
    const float value = reinterpret_cast<const float*>(x)[i];
    reinterpret_cast<float*>(out)[i] =
        (value > 0 ? value : 0) * 2 + reinterpret_cast<const float*>(b)[i % columns];
  }
}
double first(torch::Tensor x) { return x.data_ptr<float>()[0]; }
"""
FUNCTIONS = '["affine", "forwards", "copies", "into", "by_address", "first"]'
EXTENSION = CPP_SOURCE.replace('["affine"]', FUNCTIONS).replace('}\n"""', "}\n" + MORE + '"""')


def calling(body):
    assert "        return extension.affine(x, b)\n" in EXTENSION
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return Kernel(EXTENSION.replace("        return extension.affine(x, b)\n", lines), "cpp")


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "return extension.affine(x, b)",
        "out = torch.empty_like(x)\nextension.into(x, b, out)\nreturn out",
        "out = torch.empty_like(x)\n"
        "extension.by_address(x.data_ptr(), b.data_ptr(), out.data_ptr(), *x.shape)\nreturn out",
        "out = extension.affine(x, b)\nreturn out + (extension.first(out) - float(out[0, 0]))",
    ],
    ids=["returns", "fills", "addresses", "numbers"],
)
def test_honest_extensions_pass(judge, body):
    verdict = judge.evaluate(AFFINE, calling(body))
    assert verdict.correct, verdict


@pytest.mark.parametrize(
    "body, code",
    [
        ("return extension.forwards(x, b)", "work_not_replaced"),
        (f"extension.affine(x, b)\nreturn {TORCH}", "work_not_replaced"),
        (f"return extension.copies({TORCH})", "decoy_kernel"),
        (f"return {TORCH}", "no_kernel_launch"),
    ],
    ids=["forwards to torch", "unused", "copies", "not called"],
)
def test_extensions_without_custom_work_are_refused(judge, body, code):
    assert refused(judge.evaluate(AFFINE, calling(body)), code)


@pytest.mark.slow
@pytest.mark.parametrize("definition", ['m.def("affine", &affine);', None])
def test_operators_of_extensions_count(judge, definition):
    definition = definition or 'm.def("affine(Tensor x, Tensor b) -> Tensor", &affine);'
    source = CPP_SOURCE.replace(
        '}\n"""',
        "}\n#include <torch/library.h>\nTORCH_LIBRARY(mine, m) { " + definition + ' }\n"""',
    )
    source = source.replace('functions=["affine"]', "is_python_module=False")
    source = source.replace("extension.affine", "torch.ops.mine.affine")
    honest = Kernel(source, "cpp")
    verdict = judge.evaluate(AFFINE, honest)
    assert verdict.correct, verdict
    # One operator for one operator: an extension's are none of torch's own.
    one = source.replace("* 2 + bias[j]", "").replace("self, x, b", "self, x")
    verdict = judge.evaluate(
        RELU, Kernel(one.replace("affine(x, b)\n", "affine(x, x[0])\n"), "cpp")
    )
    assert verdict.correct, verdict
    unused = (
        source.replace("return torch.ops", f"y = {TORCH}\n        torch.ops") + "        return y\n"
    )
    assert refused(judge.evaluate(AFFINE, Kernel(unused, "cpp")), "work_not_replaced")


@pytest.mark.parametrize(("left", "share"), [(0.0, 1.0), (0.25, 0.75), (0.999, 0.001)])
def test_a_verdict_holds_the_share_that_custom_kernels_replaced(left: float, share: float) -> None:
    kernel = SAMPLE_KERNELS["triton"]

    def judged(evidence: Evidence) -> Verdict:
        found = with_launches(evidence, LaunchTally(4, 0), kernel)
        return verdict_of(
            JudgeOutcome(JudgedCalls(4, 4), loaded=True, evidence=found), Circumstances()
        )

    found = judged(Evidence(1, left, contributes=True))
    assert found.correct and found.custom_share == pytest.approx(share)
    assert judged(Evidence(1, left, complaint="a decoy")).custom_share is None


def _shares(own, left, unknown="dear"):
    """Return evidence of a kernel that leaves `left` of a relu."""
    reference = TorchWork({"relu": 1000.0}, 0.0, 0.0)
    seen = {"launches": 1, "working": 1, "bytes": left}
    rules = Ruleset("r", unknown_operators=unknown, small_share=0.1, least_share=0.02)
    return from_watched_call(seen, reference, SAMPLE_KERNELS["triton"], own and rules)


@pytest.mark.parametrize(
    ("left", "complaint", "codes"),
    [
        (500.0, False, []),
        (950.0, False, ["small_share"]),
        (985.0, True, ["small_share"]),
        (999.0, True, ["work_not_replaced"]),
    ],
)
def test_sliver_of_the_work_is_no_replacement(left, complaint, codes):
    found = _shares(True, {"relu": left})
    assert bool(found.complaint) is complaint
    assert [each.code for each in found.findings] == codes


@given(*[st.fixed_dictionaries({"mm": st.floats(0, 1e9)}) for _ in range(3)])
def test_warming_up_before_a_capture_is_left_out(warm_up, captured, later):
    first = {
        "launches": 2,
        "working": 1,
        "bytes": {"mm": warm_up["mm"] + captured["mm"]},
        "in_graphs": {"bytes": captured, "products": 3.0},
    }
    second = {"launches": 0, "bytes": later, "products": 1.0, "hidden": True}
    seen = in_later_calls(first, second)
    assert seen["launches"] == 2 and seen["working"] == 1 and seen["hidden"] is True
    assert seen["bytes"]["mm"] == pytest.approx(captured["mm"] + later["mm"])
    assert seen["products"] == 4.0


def test_rules_without_a_least_share_ask_for_none():
    found = _shares(None, {"relu": 985.0})
    assert not found.complaint and not found.findings


@pytest.mark.parametrize("name", ["fft_fft", "linalg_qr", "glu", "renorm", "_mkldnn_fused"])
def test_operator_of_unknown_cost_is_dear(name):
    moved = {name: 100.0}
    assert _shares(True, moved, "dear").complaint
    assert not _shares(True, moved, "cheap").complaint


@pytest.mark.parametrize("name", ["add", "mul", "relu", "exp", "sum", "where", "index_select"])
def test_operator_known_to_be_cheap_counts_its_bytes(name):
    assert _shares(True, {name: 100.0}, "dear").torch_share == pytest.approx(0.1)


def test_extension_that_is_handed_functions_is_refused():
    assert "(matmul)" in work_on_host({"handed": ["matmul"]}, TorchWork({}, 0, 0), "C++ kernel")
    assert work_on_host({"handed": []}, TorchWork({}, 0, 0), "C++ kernel") == ""


@pytest.mark.parametrize(
    ("left", "codes"),
    [
        ({"relu": 850.0, "cat": 0.0}, []),
        ({"relu": 850.0, "cat": 300.0, "embedding": 400.0}, []),
        ({"relu": 920.0, "cat": 0.0}, ["small_share"]),
        ({"relu": 1000.0, "embedding": 0.0}, ["work_not_replaced"]),
    ],
)
def test_kernel_in_a_whole_model_must_replace_a_tenth_of_what_is_computed(left, codes):
    reference = TorchWork(
        {"relu": 1000.0, "cat": 300.0, "embedding": 400.0}, 0.0, 0.0, whole_model=True
    )
    seen = {"launches": 1, "working": 1, "bytes": left}
    rules = Ruleset("r", unknown_operators="dear", small_share=0.1, least_share=0.02)
    found = from_watched_call(seen, reference, SAMPLE_KERNELS["triton"], rules)
    assert [each.code for each in found.findings] == codes
    assert bool(found.complaint) == bool(codes)
