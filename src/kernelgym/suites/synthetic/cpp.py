"""C++ functions for every kind of stage: chains, rearrangements, products, work along an axis.

Each stage becomes one function on contiguous fp32 tensors: plain loops, OpenMP across the outer one
where there is enough to do. Work along an axis goes lane by lane: read the lane through the steps
into a buffer, compute what the tail needs (sums in double), write the lane through the remaining
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelgym.suites.synthetic.operators import step_and_text
from kernelgym.suites.synthetic.spec import (
    DotStage,
    ElementStep,
    MoveStage,
    RowsStage,
    Spec,
    Spread,
    Stage,
)
from kernelgym.suites.synthetic.style import Defect, Style, row_geometry
from kernelgym.suites.synthetic.triton_parts import argument, arguments, indent

_LOOP = "for (int64_t c = 0; c < length; ++c)"


def _function(
    stage: Stage, style: Style, body: Sequence[str], out: str, index: str = ""
) -> tuple[str, ...]:
    """Return the text of a C++ function; the tensor named `index` holds integers, others floats."""
    names = [argument(name) for name in arguments(stage, style)]
    types = {name: "int64_t" if name == index else "float" for name in names}
    if style.defect is Defect.NAME_ERROR:
        last = max(place for place, line in enumerate(body) if "out_p[" in line)
        wrong = body[last].replace("out_p[", "result_p[", 1)
        body = [*body[:last], wrong, *body[last + 1 :]]
    lines = [
        *(f'TORCH_CHECK({name}.is_contiguous(), "{name} must be contiguous");' for name in names),
        f"auto out = {out};",
        *(f"const {t}* {name}_p = {name}.data_ptr<{t}>();" for name, t in types.items()),
        "float* out_p = out.data_ptr<float>();",
        *body,
        "return out;",
    ]
    formal = ", ".join(f"torch::Tensor {name}" for name in names)
    return (f"torch::Tensor {style.function}({formal}) {{", *indent(lines), "}")


def _block(head: str, lines: Sequence[str]) -> list[str]:
    """Return a C++ statement with its block."""
    return [f"{head} {{", *indent(lines), "}"]


def _parallel(variable: str, end: str, work: str, lines: Sequence[str]) -> list[str]:
    """Return a C++ loop from zero, which uses threads if there is enough work."""
    head = f"for (int64_t {variable} = 0; {variable} < {end}; ++{variable})"
    return [f"#pragma omp parallel for if ({work} > 65536)", *_block(head, lines)]


def _short(style: Style, block: int) -> str:
    """Return the end of a C++ bound that drops the last, partial block; else empty."""
    return f" / {block} * {block}" if style.defect is Defect.NO_BOUNDS_CHECK else ""


def _first(style: Style, text: str) -> str:
    """Return the C++ expression of the first value, through an integer type as a defect."""
    wrong = style.defect is Defect.TYPE_SLIP
    return f"static_cast<float>(static_cast<int>({text}))" if wrong else text


def _chain(
    style: Style, steps: Sequence[ElementStep], where: Mapping[Spread, str], first: int = 0
) -> list[str]:
    """Return the statements that run a chain of steps on the running value.

    Args:
        style: Style of the stage.
        steps: The steps.
        where: Index expressions of second operands.
        first: Number of the first of the steps within the stage.
    """
    value = style.names.value
    lines = []
    for number, step in enumerate(steps, first):
        second = f"{argument(step.operand)}_p[{where[step.spread]}]" if step.operand else ""
        text, written = step_and_text(step, "cpp", number == style.slip)
        lines.append(f"{value} = {text.format(*written.consts, x=value, t=second)};")
    return lines


def write_pointwise(spec: Spec, stage: RowsStage, style: Style) -> tuple[str, ...]:
    """Return the C++ function of an element-wise chain: one flat loop, or rows and columns."""
    x, v = argument(stage.source), style.names.value
    nested = style.skeleton in ("row", "tile")
    short = _short(style, 32)
    row, col = ("r", "c") if nested else ("i / cols", "i % cols")
    if style.defect is Defect.WRONG_AXIS:
        col = row
    work = [
        f"float {v} = {_first(style, f'{x}_p[i]')};",
        *_chain(style, stage.before, {"full": "i", "row": col, "col": row}),
        f"out_p[i] = {v};",
    ]
    body = []
    if nested or any(step.spread in ("row", "col") for step in stage.before):
        body = [f"const int64_t cols = {x}.size({x}.dim() - 1);"]
    if nested:
        head = f"for (int64_t c = 0; c < cols{short}; ++c)"
        row_work = _block(head, ["const int64_t i = r * cols + c;", *work])
        body.append(f"const int64_t rows = {x}.numel() / cols;")
        body += _parallel("r", "rows", "rows * cols", row_work)
    else:
        body.append(f"const int64_t n = {x}.numel(){short};")
        body += _parallel("i", "n", "n", work)
    return _function(stage, style, body, f"torch::empty_like({x})")


def write_move(spec: Spec, stage: MoveStage, style: Style) -> tuple[str, ...]:
    """Return the C++ function of a rearrangement: each result element looks up its source."""
    x, v, index = argument(stage.source), style.names.value, argument(stage.index)
    rank = len(stage.shape)
    body = [f"const int64_t cols = {x}.size({rank - 1});"]
    shift = stage.shift + 1 if style.slip == 0 and not stage.after else stage.shift
    width, sizes, wrong = "cols", "", "i"
    match stage.kind:
        case "transpose" | "swap_last":
            body.append(f"const int64_t rows = {x}.size({rank - 2});")
            width = "rows"
            source = (
                "i / (rows * cols) * (rows * cols) + i % rows * cols + i % (rows * cols) / rows"
            )
            lead = f"{x}.size(0), " if rank == 3 else ""
            sizes = f"{lead}{x}.size({rank - 1}), {x}.size({rank - 2})"
        case "flip":
            source, wrong = "i / cols * cols + cols - 1 - i % cols", "total - 1 - i"
        case "roll":
            source = f"i / cols * cols + (i % cols + cols - {shift}) % cols"
            wrong = f"(i + total - {shift}) % total"
        case "select_rows":
            source = f"{index}_p[i / cols] * cols + i % cols"
            sizes = f"{index}.size(0), {x}.size(1)"
        case _:
            width = "picks"
            dim, at = (1, "i") if stage.kind == "gather_cols" else (0, "i % picks")
            body.append(f"const int64_t picks = {index}.size({dim});")
            source = f"i / picks * cols + {index}_p[{at}]"
            sizes = f"{x}.size(0), {index}.size({dim})"
    if style.defect is Defect.WRONG_AXIS:
        source = wrong
    work = [
        f"float {v} = {_first(style, f'{x}_p[{source}]')};",
        *_chain(style, stage.after, {"full": "i", "row": f"i % {width}"}),
        f"out_p[i] = {v};",
    ]
    body.append(f"const int64_t total = out.numel(){_short(style, 32)};")
    body += _parallel("i", "total", "total", work)
    out = f"torch::empty({{{sizes}}}, {x}.options())" if sizes else f"torch::empty_like({x})"
    return _function(stage, style, body, out, index)


def write_dot(spec: Spec, stage: DotStage, style: Style) -> tuple[str, ...]:
    """Return the C++ function of a product: dot products, or rows built up together."""
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
    short = _short(style, 8)
    first = _first(style, f"{a}_p[{left}]")
    row_wise = not right_t and not vector and not style.reverse
    product = _block(
        "for (int64_t j = 0; j < n; ++j)",
        [f"for (int64_t p = 0; p < k; ++p) acc[j] += {first} * {b}_p[{right}];"],
    )
    if row_wise:
        add = f"for (int64_t j = 0; j < n; ++j) acc[j] += scale * {b}_p[{right}];"
        product = _block("for (int64_t p = 0; p < k; ++p)", [f"const float scale = {first};", add])
    finish = [
        "const int64_t at = line * n + j;",
        f"float {v} = acc[j];",
        *_chain(style, stage.after, {"full": "at", "row": "j", "col": "i"}),
        f"out_p[at] = {v};",
    ]
    lines_end, row_end = (short, "") if vector or row_wise else ("", short)
    place = ["const int64_t i = line;"]
    if stage.batch:
        place = ["const int64_t plane = line / m;", "const int64_t i = line % m;"]
    work = [
        *place,
        "std::vector<float> acc(n, 0.0f);",
        *product,
        # The steps have a loop of their own, so that the compiler can vectorise them.
        *_block(f"for (int64_t j = 0; j < n{row_end}; ++j)", finish),
    ]
    body = [
        f"const int64_t m = {a}.size({m_axis});",
        f"const int64_t k = {a}.size({k_axis});",
        f"const int64_t n = {n};",
        f"const int64_t lines = {planes} * m{lines_end};",
        *_parallel("line", "lines", "lines * n * k", work),
    ]
    lead = f"{a}.size(0), " if stage.batch else ""
    shape = f"{lead}{a}.size({m_axis})" + ("" if vector else f", {n}")
    return _function(stage, style, body, f"torch::empty({{{shape}}}, {a}.options())")


def write_rows(spec: Spec, stage: RowsStage, style: Style) -> tuple[str, ...]:
    """Return the C++ function of steps, an operation along an axis, and steps on its result."""
    x, v = argument(stage.source), style.names.value
    axis = stage.axis % len(stage.shape)
    _, _, inner = row_geometry(spec, stage)
    sizes = [f"const int64_t length = {x}.size({axis});"]
    at, base = "base + c", "lane * length"
    if inner > 1:
        at, base = "base + c * inner", "lane / inner * (length * inner) + lane % inner"
        sizes.append(f"const int64_t inner = {x}.stride({axis});")
    where: dict[Spread, str] = {"full": at, "row": "c", "col": "lane"}
    after = _chain(style, stage.after, where, len(stage.before))
    fill = [
        f"float {v} = {_first(style, f'{x}_p[{at}]')};",
        *_chain(style, stage.before, where),
        f"line[c] = {v};",
    ]
    statistics, value = _tail(stage, style)
    if style.defect is Defect.MISSING_LOOP:
        # Only the first half of the lane is looked at; the loop that writes is whole.
        statistics = [
            line.replace("c < length", "c < length / 2")
            if "acc +=" in line or "peak =" in line
            else line
            for line in statistics
        ]
    finish = [f"float {v} = {value};", *after, f"out_p[lane] = {v};"]
    out = f"torch::empty_like({x})"
    if stage.reduces:
        kept = [f"{x}.size({i})" for i in range(len(stage.shape)) if i != axis]
        out = f"torch::empty({{{', '.join(kept)}}}, {x}.options())"
    else:
        order = _LOOP
        if stage.tail == "reverse_cumsum":
            order = "for (int64_t c = length - 1; c >= 0; --c)"
        running = ["acc += line[c];"] if stage.tail in ("cumsum", "reverse_cumsum") else []
        weighed = [
            f"{v} = {v} {sign} {argument(name)}_p[c];"
            for name, sign in zip(stage.weights, "*+", strict=False)
        ]
        write = [*running, f"float {v} = {value};", *weighed, *after, f"out_p[{at}] = {v};"]
        finish = _block(order, write)
    work = [
        f"const int64_t base = {base};",
        "std::vector<float> line(length);",
        *_block(_LOOP, fill),
        *statistics,
        *finish,
    ]
    body = [
        *sizes,
        f"const int64_t lanes = {x}.numel() / length{_short(style, 2)};",
        *_parallel("lane", "lanes", "lanes * length", work),
    ]
    return _function(stage, style, body, out)


def _tail(stage: RowsStage, style: Style) -> tuple[list[str], str]:
    """Return the C++ statements before the last loop, and the value used in it."""
    length = "length"
    if style.defect is Defect.WRONG_CONSTANT and style.slip < 0:
        length = "(length / 2)"
    total = ["double acc = 0.0;", f"{_LOOP} acc += line[c];"]
    squares = ["double acc = 0.0;", f"{_LOOP} acc += static_cast<double>(line[c]) * line[c];"]
    mean = [*total, "const double mean = acc / length;"]
    match stage.tail:
        case "sum":
            return total, "static_cast<float>(acc)"
        case "mean":
            return total, f"static_cast<float>(acc / {length})"
        case "norm2":
            return squares, "static_cast<float>(std::sqrt(acc))"
        case "max" | "min":
            grow = f"{_LOOP} peak = std::{stage.tail}(peak, line[c]);"
            return ["float peak = line[0];", grow], "peak"
        case "softmax" | "log_softmax":
            lines = [
                "float peak = line[0];",
                f"{_LOOP} peak = std::max(peak, line[c]);",
                "double acc = 0.0;",
                f"{_LOOP} acc += std::exp(line[c] - peak);",
            ]
            if stage.tail == "softmax":
                scale = "const float scale = static_cast<float>(1.0 / acc);"
                return [*lines, scale], "std::exp(line[c] - peak) * scale"
            lines.append("const float shift = static_cast<float>(peak + std::log(acc));")
            return lines, "line[c] - shift"
        case "layer_norm":
            lines = [
                *mean,
                "double power = 0.0;",
                f"{_LOOP} power += (line[c] - mean) * (line[c] - mean);",
                "const double scale = 1.0 / std::sqrt(power / length + 1e-5);",
            ]
            return lines, "static_cast<float>((line[c] - mean) * scale)"
        case "center":
            return mean, "static_cast<float>(line[c] - mean)"
        case "rms_norm":
            lines = [*squares, "const double scale = 1.0 / std::sqrt(acc / length + 1e-5);"]
            return lines, "static_cast<float>(line[c] * scale)"
        case "unit_norm":
            lines = [*squares, "const double scale = 1.0 / std::sqrt(acc);"]
            return lines, "static_cast<float>(line[c] * scale)"
        case _:
            return ["double acc = 0.0;"], "static_cast<float>(acc)"
