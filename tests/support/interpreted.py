"""Kernels for the interpreter on a CPU: what a GPU's compiler takes, and what it refuses."""

from kernelgym.types import Kernel
from support.programs import problem

RELU = problem("return torch.relu(x)", "torch.randn(37, 131)", name="relu")
MATMUL = problem(
    "return x @ y", "torch.randn(64, 48), torch.randn(48, 32)", arguments="x, y", name="matmul"
)
ROW_SUM = problem("return x.sum(-1)", "torch.randn(40, 33)", name="row_sum")

_TOP = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
_MODEL = """

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        {launch}
        return out
"""


def relu(lines="y = tl.maximum(v, 0.0)", top="", launch="", definition="", store="y"):
    """Return a relu kernel whose body has these lines between its load and its store."""
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    kernel = definition or (
        "@triton.jit\n"
        "def relu_kernel(x, out, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    mask = at < n\n"
        "    v = tl.load(x + at, mask=mask, other=0.0)\n"
        f"{body}"
        f"    tl.store(out + at, {store}, mask=mask)\n"
    )
    call = "relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"
    source = f"{_TOP}{top}\n\n{kernel}{_MODEL.replace('{launch}', launch or call)}"
    return Kernel(source, "triton")


_FACTORY = """
def make():
    @triton.jit
    def relu_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        tl.store(out + at, tl.maximum(tl.load(x + at, mask=mask, other=0.0), 0.0), mask=mask)

    return relu_kernel


relu_kernel = make()
"""
_CLASS = """
class Kernels:
    @triton.jit
    def relu_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0)
        tl.store(out + at, tl.where(v > 0, v, 0.0), mask=at < n)
"""
_LAUNCH = "(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024{more})"

TAKEN = {
    "plain": relu(),
    "factory": relu(definition=_FACTORY),
    "kernel_of_a_class": relu(
        definition=_CLASS, launch=f"Kernels.relu_kernel[{_LAUNCH.format(more='')}"
    ),
    "constant_of_the_module": relu("y = tl.maximum(v, LOW)", top="LOW = tl.constexpr(0.0)\n"),
    "helper_with_default": relu(
        "y = at_least(v)",
        top="\n@triton.jit\ndef at_least(v, low=0.0):\n    return tl.maximum(v, low)\n",
    ),
    "name_imported": relu("y = maximum(v, 0.0)", top="from triton.language import maximum\n"),
    "libdevice": relu(
        "y = tl.maximum(v, 0.0) + 0 * libdevice.tanh(v)",
        top="from triton.language.extra import libdevice\n",
    ),
    "function_of_constants": relu(
        "y = tl.maximum(v, low(3))",
        top="\n@triton.constexpr_function\ndef low(n):\n    return float(n - n)\n",
    ),
    "static_range": relu("y = v\nfor i in tl.static_range(2):\n    y = tl.maximum(y, 0.0 * i)"),
    "options_of_a_launch": relu(
        launch=f"relu_kernel[{_LAUNCH.format(more=', num_warps=8, num_stages=2')}"
    ),
    "one_as_an_integer": relu(
        definition="@triton.jit\ndef relu_kernel(x, out, n, step, BLOCK: tl.constexpr):\n"
        "    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * step\n"
        "    v = tl.load(x + at, mask=at < n, other=0.0)\n"
        "    tl.store(out + at, tl.maximum(v, 0.0), mask=at < n)\n",
        launch="relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 1, BLOCK=1024)",
    ),
}
"""Kernels that Triton compiles for a GPU."""

REFUSED = {
    "numpy": (relu("y = np.maximum(v.handle.data, 0)", top="import numpy as np\n"), "numpy"),
    "numpy_of_a_constant": (
        relu("y = tl.maximum(v, np.sin(0.0))", top="import numpy as np\n"),
        "numpy.sin is no part of Triton's language",
    ),
    "numpy_of_the_interpreter": (
        relu("y = tl.maximum(v, np.sin(0.0))"),
        "np is not defined",
    ),
    "helper_that_calls_itself": (relu(
        "y = at_least(v, 2)",
        top="\n@triton.jit\ndef at_least(v, times: tl.constexpr):\n    if times == 0:\n"
        "        return v\n    return tl.maximum(at_least(v, times - 1), 0.0)\n",
    ), "at 4:22"),
    "list": (
        relu("parts = []\nparts.append(v)\ny = tl.maximum(parts[0], 0.0)"),
        "has no attribute",
    ),
    "dictionary": (
        relu("parts = {'v': v}\ny = tl.maximum(parts['v'], 0.0)"),
        "unsupported AST node type: Dict",
    ),
    "try": (
        relu("try:\n    y = tl.maximum(v, 0.0)\nexcept ValueError:\n    y = v"),
        "unsupported AST node type: Try",
    ),
    "plain_global": (
        relu("y = tl.maximum(v, LOW)", top="LOW = 0.0\n"),
        "Cannot access global variable LOW",
    ),
    "type_changes_in_a_loop": (
        relu("y = 0\nfor i in range(n // n):\n    y = tl.maximum(v, 0.0)"),
        "make sure that the type stays consistent",
    ),
    "function_of_python": (
        relu("y = at_least(v)", top="\ndef at_least(v):\n    return tl.maximum(v, 0.0)\n"),
        "Cannot access global variable at_least",
    ),
    "too_many_warps": (
        relu(launch=f"relu_kernel[{_LAUNCH.format(more=', num_warps=64')}"),
        "a program has at most 32 warps",
    ),
    "too_many_programs": (
        relu(
            launch="relu_kernel[(1, 1, 65536)](x, out, x.numel(), BLOCK=1024)",
        ),
        "65536 programs along axis 2",
    ),
    "language_replaced": (
        relu("y = tl.maximum(v, 0.0)", top="tl.maximum = lambda x, y: x\n"),
        "triton.language.maximum is not Triton's own any more",
    ),
    "unknown_option": (
        relu(launch=f"relu_kernel[{_LAUNCH.format(more=', warps=8')}"),
        "warps was specified but unrecognised",
    ),
    "size_no_power_of_two": (
        relu(launch="relu_kernel[(triton.cdiv(x.numel(), 1000),)](x, out, x.numel(), BLOCK=1000)"),
        "power of 2",
    ),
    "past_the_language": (
        relu("y = tl.core.builtins.max(v, 0.0) if False else tl.maximum(v, 0.0)\n"
             "tl.core.sys.stdout.flush()"),
        "sys",
    ),
    "past_the_language_by_dunder": (
        relu("y = tl.maximum(v, 0.0)\nprobe = v.__class__"),
        "two underscores",
    ),
}  # fmt: skip
"""Kernels that only the interpreter takes, and what Triton's front end has to say."""


def matmul(dot="tl.dot(a, b)", load="tl.load({at}, mask={mask}, other=0.0)"):
    """Return a product of one tile a program whose inner size leaves lanes masked."""
    a = load.replace("{at}", "x + rows[:, None] * 48 + ks[None, :]")
    a = a.replace("{mask}", "ks[None, :] < 48")
    b = load.replace("{at}", "y + ks[:, None] * 32 + columns[None, :]")
    b = b.replace("{mask}", "ks[:, None] < 48")
    return Kernel(
        f"{_TOP}\n\n@triton.jit\ndef product(x, y, out, T: tl.constexpr):\n"
        "    rows, columns = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, T)\n"
        "    ks = tl.arange(0, 64)\n"
        f"    a = {a}\n    b = {b}\n    c = {dot}\n"
        "    tl.store(out + rows[:, None] * 32 + columns[None, :], c)\n"
        "\n\nclass ModelNew(nn.Module):\n    def forward(self, x, y):\n"
        "        out = torch.empty(64, 32)\n        product[(2,)](x, y, out, T=32)\n"
        "        return out\n",
        "triton",
    )


def row_sums(body, programs="40", more="", top=""):
    """Return a kernel of sums of rows; `body` has `x`, `out`, `work` and the program's `p`."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return Kernel(
        f"{_TOP}{top}\n\n@triton.jit\ndef sums(x, out, work, BLOCK: tl.constexpr):\n"
        "    p = tl.program_id(0)\n    at = tl.arange(0, BLOCK)\n"
        f"{lines}\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
        "        out, work = torch.zeros(40), torch.zeros(64, dtype=torch.float32)\n"
        f"        sums[({programs},)](x, out, work, BLOCK=64)\n{more}        return out\n",
        "triton",
    )
