"""C++ functions that work along an axis: reductions, softmax, norms and running sums.

One lane at a time: read it through the steps into a buffer, work out what the tail needs (sums in
double), write it back through the remaining steps.
"""

from __future__ import annotations

from kernelgym.suites.synthetic.cpp_parts import chain, function, parallel, read
from kernelgym.suites.synthetic.spec import RowsStage, Spec, Spread
from kernelgym.suites.synthetic.style import Defect, Style, row_geometry
from kernelgym.suites.synthetic.triton_parts import argument, indent

__all__ = ["write_rows"]

_LOOP = "for (int64_t c = 0; c < length; ++c)"


def write_rows(spec: Spec, stage: RowsStage, style: Style, slip: int = -1) -> tuple[str, ...]:
    """Write steps, an operation along an axis, and steps on its result."""
    x, v = argument(stage.source), style.names.value
    axis = stage.axis % len(stage.shape)
    _, _, inner = row_geometry(spec, stage)
    at = "base + c * inner" if inner > 1 else "base + c"
    base = "lane / inner * (length * inner) + lane % inner" if inner > 1 else "lane * length"
    where: dict[Spread, str] = {"full": at, "row": "c", "col": "lane"}
    after_slip = slip - len(stage.before) if slip >= 0 else -1
    after = chain(style, stage.after, where, after_slip)
    short = " / 2 * 2" if style.defect is Defect.NO_BOUNDS_CHECK else ""
    fill = [
        f"{_LOOP} {{",
        f"    float {v} = {read(style, f'{x}_p[{at}]')};",
        *indent(chain(style, stage.before, where, slip)),
        f"    line[c] = {v};",
        "}",
    ]
    statistics, value = _tail(stage, style, slip)
    if stage.reduces:
        finish = [f"float {v} = {value};", *after, f"out_p[lane] = {v};"]
    else:
        order = (
            "for (int64_t c = length - 1; c >= 0; --c)" if stage.tail == "reverse_cumsum" else _LOOP
        )
        finish = [
            f"{order} {{",
            *indent([*_running(stage), f"float {v} = {value};", *_weighed(stage, v), *after]),
            f"    out_p[{at}] = {v};",
            "}",
        ]
    sizes = [f"const int64_t length = {x}.size({axis});"]
    if inner > 1:
        sizes.append(f"const int64_t inner = {x}.stride({axis});")
    body = [
        *sizes,
        f"const int64_t lanes = {x}.numel() / length{short};",
        parallel("lanes * length"),
        "for (int64_t lane = 0; lane < lanes; ++lane) {",
        *indent([f"const int64_t base = {base};", "std::vector<float> line(length);"]),
        *indent([*fill, *statistics, *finish]),
        "}",
    ]
    if style.defect is Defect.MISSING_LOOP:
        # Only the first half of the lane is looked at; the loop that writes is whole.
        body = _halve(body, v)
    out = f"torch::empty_like({x})"
    if stage.reduces:
        kept = [f"{x}.size({i})" for i in range(len(stage.shape)) if i != axis]
        out = f"torch::empty({{{', '.join(kept)}}}, {x}.options())"
    return function(stage, style, body, out)


def _halve(body: list[str], value: str) -> list[str]:
    marker = ("acc +=", "peak =", "peak = std")
    lines = list(body)
    for place, line in enumerate(lines):
        if _LOOP in line and any(text in line for text in marker):
            lines[place] = line.replace("c < length", "c < length / 2")
    return lines


def _running(stage: RowsStage) -> list[str]:
    return ["acc += line[c];"] if stage.tail in ("cumsum", "reverse_cumsum") else []


def _weighed(stage: RowsStage, v: str) -> list[str]:
    return [
        f"{v} = {v} {sign} {argument(name)}_p[c];"
        for name, sign in zip(stage.weights, "*+", strict=False)
    ]


def _tail(stage: RowsStage, style: Style, slip: int) -> tuple[list[str], str]:
    """Return the statements before the last loop, and the value in it (or per lane)."""
    length = "length"
    if style.defect is Defect.WRONG_CONSTANT and slip < 0:
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
