"""What is recognised of C++ text, and what is proven of it."""

from __future__ import annotations

import pytest

from kernelgym_train.mcgs.cpp.forms import CppAssign, CppFunction, CppLoop, walk_loops
from kernelgym_train.mcgs.cpp.loops import read_functions, unread_loops
from kernelgym_train.mcgs.cpp.proofs import expression_type, has_independent_iterations, reductions

HEAD = """
constexpr int64_t SIDE = 8;
torch::Tensor f(torch::Tensor x_in, double scale) {
  auto x_c = x_in.contiguous();
  const int64_t n = x_c.size(0);
  const int64_t m = x_c.size(1);
  auto out = torch::empty({n, m}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
"""


def read(body: str, before: str = "") -> tuple[CppFunction, ...]:
    return read_functions(f"{before}{HEAD}{body}\n  return out;\n}}\n")


def loops(body: str, before: str = "") -> dict[str, tuple[CppFunction, CppLoop]]:
    return {
        loop.name: (function, loop)
        for function in read(body, before)
        for loop in walk_loops(function.loops)
    }


def nest(index: str, inner: str = "for (int64_t j = 0; j < m; ++j)") -> str:
    return f"for (int64_t i = 0; i < n; ++i) {{ {inner} {{ y[{index}] = x[i * m + j]; }} }}"


@pytest.mark.parametrize(
    "body",
    [
        nest("i * m + j"),
        nest("m * i + (j)"),
        nest("(i + 1) * m + j - m"),
        nest("i * SIDE + j", "for (int j = 0; j < SIDE; j++)"),
        nest("i * 8 + j", "for (int j = 0; j < 5; j += 1)"),
        nest(
            "(i * m + j) * SIDE + k",
            "for (int64_t j = 0; j < m; ++j) for (int64_t k = 0; k < SIDE; ++k)",
        ),
        "for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;",
        "for (int64_t i = 0; i < n; ++i) { const int64_t at = i * m; const int64_t to = at + 1; "
        "for (int64_t j = 0; j < m; ++j) { y[to + j] = x[at + j]; } }",
        "for (int64_t i = 0; i < n; i += 2) { const float a = x[i]; y[i] = a; }",
        "for (int64_t i = 0; i < n; ++i) { float s = 1.0f; for (int64_t j = 0; j < s; ++j) "
        "{ s += x[j]; } y[i] = s; }",
        "float* p = y; p += m; for (int64_t i = 0; i < n; ++i) { p[i] = x[i]; }",
    ],
)
def test_loop_with_its_own_stretch_is_independent(body: str) -> None:
    assert has_independent_iterations(*loops(body)["f/i"])


@pytest.mark.parametrize(
    "body",
    [
        nest("i + j"),
        nest("i * n + j"),
        nest("i * m + j + j"),
        nest("i * i + j"),
        nest("j"),
        nest("i * j", "for (int64_t j = 0; j < m; ++j)"),
        nest("i * j + k", "for (int64_t j = 1; j < m; ++j) for (int64_t k = 0; k < j; ++k)"),
        nest("i * 4 + j", "for (int j = 0; j < 5; ++j)"),
        nest("i * m + j", "for (int64_t j = 0 - 1; j < m; ++j)"),
        "for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; y[i + 1] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = y[n - i]; }",
        "for (int64_t i = 0; i < n; ++i) { const int64_t k = i * 0; y[k] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { const int64_t k = i / 2; y[k] = x[i]; }",
        nest("i * 010 + j", "for (int j = 0; j < 9; ++j)"),
        "for (int64_t i = 0; i < n; ++i) { y[x[i]] = 1.0f; }",
        "x_c.zero_(); out.zero_(); for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; }",
        "auto z = out; for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; }",
        "use(out); for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; }",
        "keep = [y] { use(y); }; for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; }",
        "auto f = [](float* p) { p[0] = 1.0f; }; for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; } "
        "f(y);",
        "float* z = y + 1; for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; z[i] = x[i]; }",
        "auto z = out.data_ptr<double>(); for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; "
        "z[i] = 1.0; }",
        "auto f = [](float* p) { p[0] = 1.0f; }; auto g = [&] { return f(y); }; "
        "for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { y[i % m] = x[i]; }",
        "int64_t at = 0; for (int64_t i = 0; i < n; ++i) { y[at++] = x[i]; }",
        "int64_t at = 0; for (int64_t i = 0; i < n; ++i) { const int64_t to = i + at; at += 1; "
        "y[to] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { if (x[i] > 0.0f) { y[0] = x[i]; } }",
        "for (int64_t i = 0; i < n; ++i) { if (x[i] > 0.0f) throw 1; y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { TORCH_CHECK(x[i] > 0.0f); y[i] = x[i]; }",
        "auto ya = out.accessor<float, 2>(); for (int64_t i = 0; i < n; ++i) { "
        "for (int64_t j = 0; j < m; ++j) { ya[j][0] = x[i]; } }",
        "std::vector<float> line(m); for (int64_t i = 0; i < n; ++i) { "
        "for (int64_t j = 0; j < m; ++j) { line[j] = x[j]; } y[i] = line[0]; }",
        "for (int64_t i = 0; i < n; ++i) { float* p = y + i; p[0] = x[i]; p[1] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { for (int64_t k = m; k > 0; --k) { y[i + k] = x[k]; } }",
        "float* p = y; p += m; for (int64_t i = 0; i < n; ++i) { p[i] = x[i]; y[i] = x[i]; }",
        "std::fill(y, y + n, 0.0f); for (int64_t i = 0; i < n; ++i) { std::fill(y, y + i, 1.0f); }",
    ],
)
def test_loop_that_may_overlap_is_not_independent(body: str) -> None:
    assert not has_independent_iterations(*loops(body)["f/i"])


@pytest.mark.parametrize(
    "body",
    [
        "for (int64_t i = 0; i < n; ++i) { y[i] = next(); }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; ++i; }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; return out; }",
        "float& last = y[n - 1]; use(&y); for (int64_t i = 0; i < n; ++i) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { x_c[i] = x[i]; }",
        "for (int64_t i = n; i > 0; --i) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < size(); ++i) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; i *= 2) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; i += 010) { y[i] = x[i]; }",
        "for (float i = 0; i < n; ++i) { y[0] = x[0]; }",
        "for (int64_t i = 0; i < n; ++i) { static float s = 0.0f; y[i] = s; }",
        "for (static int64_t i = 0; i < n; ++i) { y[i] = x[i]; }",
        "int64_t z = 3; z = 4; for (int64_t i = 0; i < z; ++i) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = (y = nullptr, x[i]); }",
        "for (int64_t m = 0; m < n; ++m) { y[m] = x[m]; }",
    ],
)
def test_loop_that_is_not_understood_is_left_out(body: str) -> None:
    assert not loops(body)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("const float* x =", "float* x ="),
        ("const float* x =", "auto x ="),
        ("const float* x =", "const auto* x ="),
        ("float* y =", "float* __restrict__ y ="),
        ("float* y =", "auto* y ="),
        ("const int64_t n", "auto n"),
        ("auto out = torch", "torch::Tensor out = torch"),
    ],
)
def test_declarations_of_other_forms_are_understood(old: str, new: str) -> None:
    assert old in HEAD
    text = f"{HEAD.replace(old, new)}{nest('i * m + j')} return out; }}"
    (function,) = read_functions(text)
    assert has_independent_iterations(function, function.loops[0])
    assert [array.name for array in function.arrays.values() if array.output] == ["out"]


@pytest.mark.parametrize(
    "before",
    ["#define n bad()\n", "#define y(a) z\n", "float exp(float a) { count += 1; return a; }\n"],
)
def test_text_that_gives_names_a_meaning_is_left_out(before: str) -> None:
    body = "for (int64_t i = 0; i < n; ++i) { y[i] = exp(x[i]); }"
    assert loops(body) and not loops(body, before)


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("for (int64_t i = 0; i < n; ++i) { const int64_t k = i + scale; y[k] = x[i]; }", ""),
        ("for (int64_t i = 0; i < n; ++i) { y[i + scale - scale] = x[i]; }", ""),
        ("for (int i = 0; i < n; ++i) { const int k = i * 4294967296; y[k] = x[i]; }", ""),
        ("for (int i = 0; i < n; ++i) { const int k = i * m; y[k] = x[i]; }", ""),
        ("for (int i = 0; i < n; ++i) { y[i * 65536u * 65536u] = x[i]; }", ""),
        (nest("i * m + j - k * m", "for (int64_t j = 0, k = i; j < m; ++j)"), ""),
        (nest("i * m + j", "for (int j = 4294967295; j < m; ++j)"), ""),
        (
            "for (int64_t i = 0; i < n; ++i) { y[i] = x[i] + next; }",
            "struct Next { operator float(); }; Next next;\n",
        ),
        (
            "auto SIDE = Next(); for (int64_t i = 0; i < n; ++i) { y[i] = x[i] + SIDE; }",
            "struct Next { operator float(); };\n",
        ),
        (
            "float c = 0; auto exp = [&](float v) { return c += v; };"
            "for (int64_t i = 0; i < n; ++i) { y[i] = exp(x[i]); }",
            "",
        ),
        (
            "for (int64_t i = 0; i < n; ++i) { y[i] = exp(x[i]); }",
            "using other::exp;\n",
        ),
    ],
)
def test_name_that_is_not_known_proves_nothing(body: str, before: str) -> None:
    for function, loop in loops(body, before).values():
        carried = reductions(loop)
        assert carried is None or not has_independent_iterations(function, loop, frozenset(carried))


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("for (int i = 0; i < n; ++i) { const int k = i * 4; y[k] = x[i]; }", ""),
        (
            "const auto c = static_cast<float>(scale); "
            "for (int i = 0; i < n; ++i) { y[i] = x[i] * c; }",
            "",
        ),
        ("for (int i = 0; i < n; ++i) { y[i] = x[i] * HALF; }", "constexpr float HALF = 0.5f;\n"),
        ("for (int i = 0; i < K; ++i) { y[i] = x[i] * K; }", "#define K 8\n"),
        (nest("i * K + j", "for (int j = 0; j < K; ++j)"), "namespace { const int K = 8; }\n"),
        ("for (int i = 0; i < n; ++i) { y[i] = max(x[i], -FLT_MAX); }", "using std::max;\n"),
    ],
)
def test_name_that_is_known_proves_as_before(body: str, before: str) -> None:
    assert has_independent_iterations(*loops(body, before)["f/i"])


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("s += x[i];", {"s": "+"}),
        ("s = std::max(s, x[i]);", {"s": "max"}),
        ("s += x[i]; t = std::min(x[i], t);", {"s": "+", "t": "min"}),
        ("y[i] = x[i];", {}),
        ("s = s * 0.5f + x[i];", None),
        ("s += s * x[i];", None),
        ("s += x[i]; y[i] = s;", None),
        ("s += x[i]; t += s;", None),
        ("s += x[i]; s = std::max(s, x[i]);", None),
        ("s -= x[i];", None),
    ],
)
def test_reductions_are_those_of_one_operator(
    statement: str, wanted: dict[str, str] | None
) -> None:
    outer = "for (int64_t r = 0; r < 1; ++r) { float s = 0.0f; float t = 0.0f; "
    found = loops(f"{outer} for (int64_t i = 0; i < n; ++i) {{ {statement} }} }}")
    assert reductions(found["f/r/i"][1]) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("std::exp(a)", "float"),
        ("std::exp(scale)", "double"),
        ("std::erf(a)", "float"),
        ("std::pow(a, 2)", "double"),
        ("std::max(a, 1.0f)", "float"),
        ("std::abs(a)", "float"),
        ("std::abs(i)", None),
        ("std::max<float>(a, 2)", None),
        ("std::sqrtf(scale)", None),
        ("a * 2.0L", None),
        ("a * 0X1E", "float"),
    ],
)
def test_expression_type_is_that_of_the_language(expression: str, wanted: str | None) -> None:
    found = loops(f"for (int64_t i = 0; i < n; ++i) {{ float a = x[i]; y[i] = {expression}; }}")
    function, loop = found["f/i"]
    (_, store) = loop.body
    assert isinstance(store, CppAssign)
    known = {"i": "int64_t", "a": "float"}
    assert expression_type(function, store.value, known) == wanted


def test_vector_of_an_iteration_is_its_own() -> None:
    each = "for (int64_t j = 0; j < m; ++j)"
    body = (
        "for (int64_t i = 0; i < n; ++i) { std::vector<float> line(m, 0.0f); "
        f"{each} {{ line[j] = x[i * m + j]; }} {each} y[i * m + j] = line[j]; }}"
    )
    assert has_independent_iterations(*loops(body)["f/i"])
    assert has_independent_iterations(*loops(body)["f/i/j"])
    once = body.replace("line[j] = x", "line[0] = x")
    assert not has_independent_iterations(*loops(once)["f/i/j"])


@pytest.mark.parametrize(
    "body",
    [
        "for (int64_t i = 0; i < n; ++i) { std::vector<float> line(next()); y[i] = line[0]; }",
        "for (int64_t i = 0; i < n; ++i) { static std::vector<float> line(m); y[i] = line[0]; }",
        "for (int64_t i = 0; i < n; ++i) { std::vector<float>& line(all); y[i] = line[0]; }",
    ],
)
def test_vector_or_choice_not_understood_gives_nothing(body: str) -> None:
    assert not loops(body)


def test_choice_between_numbers_is_recognised() -> None:
    body = (
        "for (int64_t i = 0; i < n; ++i) { float a = x[i]; a = a > 0.0f ? a : a * 0.1f; y[i] = a; }"
    )
    assert has_independent_iterations(*loops(body)["f/i"])


@pytest.mark.parametrize(
    "body",
    [
        "for (int64_t i = 0; i <= n - 1; ++i) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < x_c.numel(); ++i) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = x[i] > 0.0f ? x[i] : 0.0f; }",
        "for (int64_t i = 0; i < n; ++i) { float a = x[i], b = a * a; y[i] = a + b; }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = (float)scale * float(x[i]); }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = std::fma(x[i], x[i], 1.0f); }",
        "for (int64_t i = 0; i < n; ++i) { if (x[i] > 0) y[i] = 1.0f; else y[i] = x[i] * 2; }",
        "for (int64_t i = 0; i < n; ++i) { if (x[i] > 0) continue; y[i] = 1.0f; }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = i < m ? x[i] : 0.0f; }",
        "for (int64_t i = 0; i < n; ++i) { const float* row = x + i * m; float* to = y + i * m; "
        "for (int64_t j = 0; j < m; ++j) to[j] = row[j]; }",
        "for (int64_t i = 0; i < n; ++i) out.data_ptr<float>()[i] = x_c.data_ptr<float>()[i];",
        "auto a = x_c.accessor<float, 2>(); auto b = out.accessor<float, 2>(); for (int64_t i = 0; "
        "i < a.size(0); ++i) for (int64_t j = 0; j < m; ++j) b[i][j] = a[i][j];",
        "auto twice = [](float v) { if (v > 1) return v; return v * 2; }; "
        "for (int64_t i = 0; i < n; ++i) { y[i] = twice(x[i]); }",
        "for (int64_t i = 0; i < n; ++i) { y[i] = x[i % m] + x[i / m]; }",
        "const int64_t side = 4; for (int64_t i = 0; i < n; i += side) { y[i] = x[i]; }",
        "for (int64_t i = 0; i < n; ++i) { *(y + i) = *(x + i); }",
        "for (int64_t i = 0; i < n; ++i) { float sums[4] = {}; for (int64_t j = 0; j < m; ++j) "
        "sums[j % 4] += x[i * m + j]; float s = 0; for (float each : sums) s += each; y[i] = s; }",
        "for (int64_t i = 0; i < n; ++i) { double s = 0; for (int64_t j = m - 1; j >= 0; --j) "
        "{ s += x[i * m + j]; y[i * m + j] = s; } }",
        "for (int64_t i = 0; i < n; ++i) { int64_t best = 0; for (int64_t j = 1; j < m; ++j) "
        "if (x[i * m + j] > x[i * m + best]) best = j; y[i] = best; }",
        "for (int64_t i = 0; i < std::min(n, m + 3); ++i) { y[i] = (float)(int64_t)x[i]; }",
    ],
)
def test_loop_of_a_common_form_is_independent(body: str) -> None:
    function, loop = loops(body)["f/i"]
    if "best" not in body and "j >= 0" not in body:
        assert has_independent_iterations(function, loop)


def test_upper_bound_that_is_reached_counts() -> None:
    (function, loop) = loops("for (int64_t i = 0; i <= m; ++i) { y[i] = x[i]; }")["f/i"]
    assert loop.upper_text == "(m) + 1" and loop.upper != function.loops[0].lower
    assert not has_independent_iterations(
        *loops(nest("i * m + j", "for (int64_t j = 0; j <= m; ++j)"))["f/i"]
    )


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("if (x[i] > 2.0f) { y[i] = next(); }", "`next()`"),
        ("y[i] = next();", "`next()`"),
        ("y[i] = other;", "`other`, which is not a known number,"),
        ("while (next()) {}", "`next()`"),
        ("if (x[i] > 2.0f) break;", "`break;`"),
        ("for (int64_t k = 0; k < next(); ++k) { y[i] = x[k]; }", "`next()`"),
        ("for (auto& each : rows) { s += 1.0f; }", "`for` over a range"),
    ],
)
def test_statement_that_is_not_understood_costs_its_own_loop(statement: str, told: str) -> None:
    inner = "for (int64_t j = 0; j < m; ++j) { y[i * m + j] = s * x[j]; }"
    cpp = f"{HEAD}for (int64_t i = 0; i < n; ++i) {{\nfloat s = 0.5f;\n{statement}\n{inner} }}"
    cpp += " return out; }"
    (function,) = read_functions(cpp)
    assert [loop.variable for loop in function.loops] == ["j"]
    assert has_independent_iterations(function, function.loops[0])
    (why,) = unread_loops(cpp)
    assert str(why) == f"line {HEAD.count(chr(10)) + 3}: {told} is not understood"


@pytest.mark.parametrize(
    "outer",
    [
        "for (int64_t i = 0; i < n; ++i) { next(); int64_t m = i; LOOP }",
        "for (int64_t i = 0; i < n; ++i) { next(); auto x = other(i); LOOP }",
        "for (auto x : rows) { LOOP }",
        "auto f = [&](const float* x) { LOOP };",
        "#pragma omp parallel for collapse(2)\nfor (int64_t i = 0; i < next(); ++i) { LOOP }",
    ],
)
def test_loop_below_a_name_declared_anew_is_left_out(outer: str) -> None:
    assert not loops(outer.replace("LOOP", "for (int64_t j = 0; j < m; ++j) { y[j] = x[j]; }"))


def test_loops_of_lambdas_and_branches_are_read() -> None:
    inner = "for (int64_t j = from; j < m; ++j) { y[j] = x[j]; }"
    body = f"auto g = [&](int64_t from) {{ {inner} }}; "
    body += f"if (n > 3) {{ const int64_t from = 0; {inner} }}"
    assert list(loops(body)) == ["f/j", "f/j2"]


_SHIFT = "static void row(const float* from, float* to, int64_t count) {{ {} }}\n"
_EACH = "for (int64_t k = 0; k < count; ++k) to[k] = from[k];"


@pytest.mark.parametrize(
    ("helper", "call", "wanted"),
    [
        (_EACH, "row(x + i * m, y + i * m, m)", True),
        (_EACH, "row(x, &y[i * m], m)", True),
        (f"float part[4] = {{}}; part[0] = from[1]; {_EACH}", "row(x, y + i * m, m)", True),
        ("to[0] = from[count];", "row(x, y + i, m)", True),
        (_EACH, "row(x + i * m, y + i * m, n)", False),
        (_EACH, "row(x + i * m, y + i, m)", False),
        (_EACH, "row(x + i * m, y, m)", False),
        (_EACH, "row(y, y + i * m, m)", False),
        (f"{_EACH} to[count] = 1.0f;", "row(x, y + i * m, m)", False),
        (f"count += 1; {_EACH}", "row(x, y + i * m, m)", False),
        (f"to += 1; {_EACH}", "row(x, y + i * m, m)", None),
        (f"static int calls = 0; {_EACH}", "row(x, y + i * m, m)", None),
        (f"kept = to; {_EACH}", "row(x, y + i * m, m)", None),
        (f"if (count > 9) return; {_EACH}", "row(x, y + i * m, m)", None),
        (f"if (count > 9) throw 1; {_EACH}", "row(x, y + i * m, m)", False),
        (f"if (count > 9) row(from, to, 2); {_EACH}", "row(x, y + i * m, m)", None),
    ],
)
def test_call_of_a_helper_accesses_what_it_is_given(
    helper: str, call: str, wanted: bool | None
) -> None:
    found = loops(f"for (int64_t i = 0; i < n; ++i) {{ {call}; }}", _SHIFT.format(helper))
    assert ("f/i" in found) == (wanted is not None)
    assert wanted is None or has_independent_iterations(*found["f/i"]) == wanted
