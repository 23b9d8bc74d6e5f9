"""Screening rules about how torch is used: computing with it, streams, precision, caching."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernelgym.answers.screening.tree import Facts, Function
from kernelgym.rulesets import HALF_PRECISIONS, Ruleset

Raised = tuple[str, str, int]
"""Code, message and line (from 1; 0 for none) of a finding."""

# Of torch.<name>(...): what allocates, describes or reinterprets tensors, but computes nothing.
_ALLOWED = frozenset(
    """
    Generator Size Tensor arange as_strided as_tensor asarray atleast_1d atleast_2d
    broadcast_shapes broadcast_tensors broadcast_to detach device diagonal empty empty_like
    empty_permuted empty_strided enable_grad finfo flatten from_numpy full full_like
    get_default_dtype iinfo inference_mode is_contiguous is_floating_point is_grad_enabled
    is_tensor manual_seed movedim narrow no_grad numel ones ones_like permute ravel reshape select
    set_grad_enabled squeeze swapaxes t tensor tensor_split transpose typename unbind unflatten
    unsqueeze view_as_complex view_as_real zeros zeros_like split chunk unsafe_split
    """.split()
)
_COMPUTE_MODULES = (
    "torch.nn.functional.",
    "torch.linalg.",
    "torch.fft.",
    "torch.special.",
    "torch.sparse.",
    "torch.ops.aten.",
    "torch._C._nn.",
)
_METHODS = frozenset(
    """
    addbmm addmm addmv baddbmm bmm matmul mm mv einsum softmax log_softmax relu relu_ sigmoid
    sigmoid_ tanh tanh_ exp exp_ log1p sqrt rsqrt pow sum mean amax amin argmax argmin cumsum
    cumprod logsumexp norm var std prod clamp clamp_ clamp_min erf gelu mul mul_ add_ sub_ div_
    topk sort maximum minimum conv2d masked_fill where
    """.split()
)
# Of torch.nn: containers of parameters or of nothing; building or calling them computes nothing.
_PASSIVE_LAYERS = frozenset(
    "Parameter ParameterList ParameterDict Module ModuleList ModuleDict Buffer Identity".split()
)
# Bounded repetitions: a name that begins anew at every character must not cost its length again.
_CPP_CALL = re.compile(r"\b(?:at|torch)::(\w{1,80}(?:::\w{1,80}){0,2})\s{0,8}\(")
_CPP_ALLOWED = re.compile(
    r"(?:empty|zeros|ones|full|new_)\w*|from_blob|\w*TensorOptions|Tensor|device|dtype|arange"
    r"|\w*Guard|\w*ArrayRef|tensor|parallel_for|get_num_threads|set_num_threads|cuda::\w+|\w*Options"
    r"|autograd::\w+|detail::\w+|elementSize|toString|Scalar\w*|Half|BFloat16|optional|ceil_div"
)
# A line that goes on in the next, as compilers read it.
_CPP_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")
# What looks like a comment within a literal is none. One that is not closed ends with its line.
_CPP_COMMENT = re.compile(
    r"""
    (?<!\w)(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\( | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?
    | (?P<comment>//|/\*)
    """,
    re.VERBOSE,
)
_LOW = frozenset(
    f"{module}.{name}"
    for module in ("torch", "triton.language")
    for name in ("float16", "bfloat16", "half", "float8e4nv", "float8e5", "float8_e4m3fn")
)
_LOW_CPP = re.compile(
    r"__float2half\w*|__float2bfloat16\w*|__floats2half2\w*|\bat::Half\b|\bnv_bfloat16\b"
)
_CUDA_STREAM = re.compile(r"\b(?:cuda|hip)StreamCreate\w*|getStreamFromPool")
_STREAMS = frozenset(f"torch.cuda.{name}" for name in ("Stream", "ExternalStream", "stream"))
_TF32 = re.compile(r"torch\.backends\.(?:cuda\.matmul|cudnn)\.(?:allow_tf32|fp32_precision)")
_CACHES = frozenset(("functools.lru_cache", "functools.cache", "functools.cached_property"))


def torch_compute_call(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each torch operator that computes within forward."""
    for function in facts.forward:
        for node in function.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                yield "torch_compute_call", "the operator @ multiplies with torch", node.lineno
            elif isinstance(node, ast.Call) and (name := _compute_name(facts, node)):
                yield "torch_compute_call", f"{name} computes with torch", node.lineno
    for text, line in facts.strings:
        if "::" in text:
            for call in _CPP_CALL.finditer(without_comments(text)):
                if not _CPP_ALLOWED.fullmatch(call.group(1)):
                    message = f"the extension calls torch's {call.group(1)}"
                    yield "torch_compute_call", message, line


def stream_use(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each use of another CUDA stream, whose work may not be timed."""
    for call in facts.calls:
        name = facts.external(call.func)
        if name in _STREAMS:
            yield "stream_use", f"{name}: work on another stream may not be timed", call.lineno
    for text, line in facts.strings:
        if found := _CUDA_STREAM.search(text):
            yield "stream_use", f"{found.group()}: work on another stream may not be timed", line


def precision_downgrade(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each use of less than fp32, unless the ruleset's precision is less."""
    code = "precision_downgrade"
    if ruleset.precision in HALF_PRECISIONS:
        return
    # Screening does not know the problem: under `own` it may be one in fp16 or bf16.
    where = f"in an {ruleset.precision} problem"
    if ruleset.precision == "own":
        where = "is less precise than fp32"
    for call in facts.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("half", "bfloat16"):
            if not call.args:
                yield code, f".{call.func.attr}() {where}", call.lineno
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if (name := facts.external(argument)) in _LOW:
                yield code, f"{name} {where}", call.lineno
    for node in facts.of(ast.Assign):
        for target in node.targets:
            if _TF32.fullmatch(facts.dotted(target)):
                yield code, "TF32, which is less precise than fp32, is switched", node.lineno
    for text, line in facts.strings:
        if found := _LOW_CPP.search(text):
            yield code, f"{found.group()} {where}", line


def output_caching(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each way in which results are kept from one call to the next."""
    for function in facts.forward:
        node = function.node
        for decorator in node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            # Without arguments it returns a built extension or a constant, which is fine.
            if facts.dotted(target) in _CACHES and (node.args.args or node.args.vararg):
                if function.name == "forward" or _launches(function):
                    message = f"{function.name} keeps its results"
                    yield "output_caching", message, node.lineno
        yield from _keyed_by_address(function)
        if function.owner == "ModelNew" and function.name == "forward":
            yield from _returns_state(function)


def _compute_name(facts: Facts, call: ast.Call) -> str:
    """Return what to call a computing torch operator, or an empty string for anything else."""
    name = facts.external(call.func)
    if name:
        if name.startswith(_COMPUTE_MODULES):
            return name
        if name.startswith("torch.nn."):
            return "" if name.removeprefix("torch.nn.") in _PASSIVE_LAYERS else name
        head, _, last = name.rpartition(".")
        return name if head == "torch" and last[:1].islower() and last not in _ALLOWED else ""
    if not isinstance(call.func, ast.Attribute):
        return ""
    attribute = call.func.attr
    owner = call.func.value
    if isinstance(owner, ast.Name) and owner.id == "self":
        kind = facts.layers.get(attribute, "")
        return f"self.{attribute} (nn.{kind})" if kind and kind not in _PASSIVE_LAYERS else ""
    if isinstance(owner, ast.Call) and facts.dotted(owner.func) == "super":
        return ""
    return f".{attribute}()" if attribute in _METHODS else ""


def without_comments(source: str) -> str:
    """Return C++ source without its comments; an unclosed one goes on to the end."""
    source = _CPP_SPLICE.sub("", source)
    kept: list[str] = []
    position = searched = 0
    while (start := _CPP_COMMENT.search(source, searched)) is not None:
        searched = start.end()
        if (mark := start["mark"]) is not None:
            end = source.find(close := f'){mark}"', searched)
            searched = len(source) if end < 0 else end + len(close)
        elif comment := start["comment"]:
            kept.append(source[position : start.start()])
            close = "\n" if comment == "//" else "*/"
            end = source.find(close, searched)
            position = searched = len(source) if end < 0 else end + len(close)
            kept.append(" ")
    kept.append(source[position:])
    return "".join(kept)


def _launches(function: Function) -> bool:
    """Return True if a call launches a Triton kernel, in the form ``kernel[grid](...)``."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
        for node in function.nodes
    )


def _keyed_by_address(function: Function) -> Iterator[Raised]:
    keys: set[str] = set()
    for node in function.nodes:
        if isinstance(node, ast.Assign) and _has_address(node.value, frozenset()):
            keys.update(target.id for target in node.targets if isinstance(target, ast.Name))
    known = frozenset(keys)
    for node in function.nodes:
        looked_up: ast.AST | None = None
        if isinstance(node, ast.Subscript):
            looked_up = node.slice
        elif isinstance(node, ast.Compare):
            looked_up = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "setdefault") and node.args:
                looked_up = node.args[0]
        if looked_up is not None and _has_address(looked_up, known):
            line = getattr(node, "lineno", 0)
            yield (
                "output_caching",
                "a value is looked up by a tensor's address, as a cache of results would be",
                line,
            )


def _has_address(tree: ast.AST, keys: frozenset[str]) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in keys:
            return True
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "data_ptr":
                # Alignment checks (x.data_ptr() % 16 == 0) are honest.
                return not any(
                    isinstance(other, ast.BinOp) and isinstance(other.op, ast.Mod | ast.BitAnd)
                    for other in ast.walk(tree)
                )
            if isinstance(node.func, ast.Name) and node.func.id == "id":
                return True
    return False


def _returns_state(function: Function) -> Iterator[Raised]:
    """Yield a finding for each attribute of the module that forward sets and then returns."""
    kept = {
        target.attr
        for node in function.nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if _is_self_attribute(target) and isinstance(target, ast.Attribute)
    }
    for node in function.nodes:
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Attribute):
            if _is_self_attribute(node.value) and node.value.attr in kept:
                message = f"forward returns self.{node.value.attr}, which it keeps between calls"
                yield "output_caching", message, node.lineno


def _is_self_attribute(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
