"""C++ functions for element-wise chains, rearrangements and products.

Each stage becomes one function on contiguous fp32 tensors: plain loops, OpenMP across the outer one
where there is enough to do. `cpp_rows` writes the work along an axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelgym.suites.synthetic.operators import OPERATORS
from kernelgym.suites.synthetic.slips import slipped
from kernelgym.suites.synthetic.spec import (
    DotStage,
    ElementStep,
    MoveStage,
    RowsStage,
    Spec,
    Spread,
    Stage,
)
from kernelgym.suites.synthetic.style import Defect, Style
from kernelgym.suites.synthetic.triton_parts import argument, arguments, indent

__all__ = ["chain", "function", "parallel", "read", "write_dot", "write_move", "write_pointwise"]


def function(
    stage: Stage, style: Style, body: Sequence[str], out: str, integers: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a whole C++ function."""
    names = [argument(name) for name in arguments(stage, style)]
    formal = ", ".join(f"torch::Tensor {name}" for name in names)
    pointers = [
        f"const {_type(name, integers)}* {name}_p = {name}.data_ptr<{_type(name, integers)}>();"
        for name in names
    ]
    checks = [
        f'TORCH_CHECK({name}.is_contiguous(), "{name} must be contiguous");' for name in names
    ]
    lines = [
        *checks,
        f"auto out = {out};",
        *pointers,
        "float* out_p = out.data_ptr<float>();",
        *body,
    ]
    if style.defect is Defect.NAME_ERROR:
        last = max(place for place, line in enumerate(lines) if "out_p[" in line)
        lines[last] = lines[last].replace("out_p[", "result_p[", 1)
    return (
        f"torch::Tensor {style.function}({formal}) {{",
        *indent([*lines, "return out;"]),
        "}",
    )


def _type(name: str, integers: Sequence[str]) -> str:
    return "int64_t" if name in integers else "float"


def parallel(work: str) -> str:
    """Return a pragma that uses threads if there is enough to do."""
    return f"#pragma omp parallel for if ({work} > 65536)"


def read(style: Style, text: str) -> str:
    """Return the first value's expression."""
    return (
        f"static_cast<float>(static_cast<int>({text}))"
        if style.defect is Defect.TYPE_SLIP
        else text
    )


def chain(
    style: Style, steps: Sequence[ElementStep], where: Mapping[Spread, str], slip: int = -1
) -> list[str]:
    """Return the statements that run a chain of steps on the running value."""
    value = style.names.value
    lines = []
    for number, step in enumerate(steps):
        second = f"{argument(step.operand)}_p[{where[step.spread]}]" if step.operand else ""
        if number == slip:
            text, step = slipped(step, "cpp")
        else:
            text = OPERATORS[step.op].cpp
        lines.append(f"{value} = {text.format(*step.consts, x=value, t=second)};")
    return lines


def write_pointwise(spec: Spec, stage: RowsStage, style: Style, slip: int = -1) -> tuple[str, ...]:
    """Write an element-wise chain: one flat loop, or rows and columns."""
    x, v = argument(stage.source), style.names.value
    steps = (*stage.before, *stage.after)
    nested = style.skeleton in ("row", "tile")
    short = " / 32 * 32" if style.defect is Defect.NO_BOUNDS_CHECK else ""
    row = "r" if nested else "i / cols"
    col = "c" if nested else "i % cols"
    where: dict[Spread, str] = {"full": "i", "row": col, "col": row}
    if style.defect is Defect.WRONG_AXIS:
        where["row"] = row
    work = [
        f"float {v} = {read(style, f'{x}_p[i]')};",
        *chain(style, steps, where, slip),
        f"out_p[i] = {v};",
    ]
    out = f"torch::empty_like({x})"
    uses_cols = nested or any(step.spread in ("row", "col") for step in steps)
    sizes = [f"const int64_t cols = {x}.size({x}.dim() - 1);"] if uses_cols else []
    if nested:
        body = [
            *sizes,
            f"const int64_t rows = {x}.numel() / cols;",
            parallel("rows * cols"),
            "for (int64_t r = 0; r < rows; ++r) {",
            f"    for (int64_t c = 0; c < cols{short}; ++c) {{",
            "        const int64_t i = r * cols + c;",
            *indent(work, 2),
            "    }",
            "}",
        ]
        return function(stage, style, body, out)
    body = [
        *sizes,
        f"const int64_t n = {x}.numel(){short};",
        parallel("n"),
        "for (int64_t i = 0; i < n; ++i) {",
        *indent(work),
        "}",
    ]
    return function(stage, style, body, out)


def write_move(spec: Spec, stage: MoveStage, style: Style, slip: int = -1) -> tuple[str, ...]:
    """Write a rearrangement: each element of the result looks up where it comes from."""
    x, v, index = argument(stage.source), style.names.value, argument(stage.index)
    wrong = style.defect is Defect.WRONG_AXIS
    rank = len(stage.shape)
    body = [f"const int64_t cols = {x}.size({rank - 1});"]
    shift = stage.shift + 1 if slip == 0 and not stage.after else stage.shift
    width = "cols"
    out = f"torch::empty_like({x})"
    match stage.kind:
        case "transpose" | "swap_last":
            body.append(f"const int64_t rows = {x}.size({rank - 2});")
            width = "rows"
            source = (
                "i / (rows * cols) * (rows * cols) + i % rows * cols + i % (rows * cols) / rows"
            )
            source = "i" if wrong else source
            lead = f"{x}.size(0), " if rank == 3 else ""
            out = (
                f"torch::empty({{{lead}{x}.size({rank - 1}), {x}.size({rank - 2})}}, {x}.options())"
            )
        case "flip":
            source = "total - 1 - i" if wrong else "i / cols * cols + cols - 1 - i % cols"
        case "roll":
            source = f"i / cols * cols + (i % cols + cols - {shift}) % cols"
            source = f"(i + total - {shift}) % total" if wrong else source
        case "select_rows":
            source = f"{index}_p[i / cols] * cols + i % cols"
            out = f"torch::empty({{{index}.size(0), cols}}, {x}.options())"
        case _:
            width = "picks"
            dim = 1 if stage.kind == "gather_cols" else 0
            body.append(f"const int64_t picks = {index}.size({dim});")
            at = "i" if stage.kind == "gather_cols" else "i % picks"
            source = f"i / picks * cols + {index}_p[{at}]"
            out = f"torch::empty({{{x}.size(0), {index}.size({dim})}}, {x}.options())"
    out = out.replace(", cols}", f", {x}.size(1)}}")
    short = " / 32 * 32" if style.defect is Defect.NO_BOUNDS_CHECK else ""
    where: dict[Spread, str] = {"full": "i", "row": f"i % {width}"}
    body += [
        f"const int64_t total = out.numel(){short};",
        parallel("total"),
        "for (int64_t i = 0; i < total; ++i) {",
        f"    float {v} = {read(style, f'{x}_p[{source}]')};",
        *indent(chain(style, stage.after, where, slip)),
        f"    out_p[i] = {v};",
        "}",
    ]
    return function(stage, style, body, out, [index] if index else [])


def write_dot(spec: Spec, stage: DotStage, style: Style, slip: int = -1) -> tuple[str, ...]:
    """Write a product: dot products, or rows of the result built up together."""
    a, b, v = argument(stage.left), argument(stage.right), style.names.value
    vector = stage.n == "1"
    right_t = stage.right_t != (style.defect is Defect.WRONG_AXIS)
    one, two = (1, 2) if stage.batch else (0, 1)
    m_axis, k_axis = (two, one) if stage.left_t else (one, two)
    n = "1" if vector else f"{b}.size({one if stage.right_t else two})"
    lead_a, lead_b = ("plane * m * k + ", "plane * k * n + ") if stage.batch else ("", "")
    left = f"{lead_a}{'p * m + i' if stage.left_t else 'i * k + p'}"
    right = f"{lead_b}{'j * k + p' if right_t else 'p * n + j'}"
    planes = f"{a}.size(0)" if stage.batch else "1"
    short = " / 8 * 8" if style.defect is Defect.NO_BOUNDS_CHECK else ""
    sizes = [
        f"const int64_t m = {a}.size({m_axis});",
        f"const int64_t k = {a}.size({k_axis});",
        f"const int64_t n = {n};",
    ]
    first = read(style, f"{a}_p[{left}]")
    where: dict[Spread, str] = {"full": "at", "row": "j", "col": "i"}
    row_wise = not right_t and not vector and not style.reverse
    finish = [
        "const int64_t at = line * n + j;",
        f"float {v} = acc[j];",
        *chain(style, stage.after, where, slip),
        f"out_p[at] = {v};",
    ]
    start = "std::vector<float> acc(n, 0.0f);"
    if row_wise:
        inner = [
            start,
            "for (int64_t p = 0; p < k; ++p) {",
            f"    const float scale = {first};",
            f"    for (int64_t j = 0; j < n; ++j) acc[j] += scale * {b}_p[{right}];",
            "}",
        ]
    else:
        inner = [
            start,
            "for (int64_t j = 0; j < n; ++j) {",
            f"    for (int64_t p = 0; p < k; ++p) acc[j] += {first} * {b}_p[{right}];",
            "}",
        ]
    # The steps have a loop of their own, so that the compiler can vectorise them.
    end = "" if vector or row_wise else short
    inner += [f"for (int64_t j = 0; j < n{end}; ++j) {{", *indent(finish), "}"]
    plane = ["const int64_t plane = line / m;", "const int64_t i = line % m;"]
    used = plane if stage.batch else ["const int64_t i = line;"]
    body = [
        *sizes,
        f"const int64_t lines = {planes} * m{short if vector or row_wise else ''};",
        parallel("lines * n * k"),
        "for (int64_t line = 0; line < lines; ++line) {",
        *indent([*used, *inner]),
        "}",
    ]
    lead = f"{a}.size(0), " if stage.batch else ""
    shape = f"{lead}{a}.size({m_axis})" + ("" if vector else f", {n}")
    return function(stage, style, body, f"torch::empty({{{shape}}}, {a}.options())")
