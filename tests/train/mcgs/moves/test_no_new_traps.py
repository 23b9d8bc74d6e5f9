"""Exact moves add no trap and no undefined behaviour, for loops that run zero times either."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.proposing import Proposal, RuleProposer
from kernelgym_train.mcgs.variant import Variant, read_variant
from support import cpp_nests

_MOST = 2**31 - 1
_TEXT = """
#include <torch/extension.h>
#include <cmath>
constexpr int STEP = 4;
template <typename T>
static T halved(T v) {{
  if (v < 0) return v;
  return v / 2;
}}
torch::Tensor made_up(torch::Tensor x_in, torch::Tensor w_in, {T} n, {T} m, {T} k, {T} base,
                      {T} last, {T} huge, float scale) {{
  auto x_c = x_in.contiguous();
  auto w_c = w_in.contiguous();
  auto out = torch::empty({{n, m}}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  const float* w = w_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  const auto above = [scale](float v) {{ return v > scale ? v : scale; }};
  for ({T} r = base; r < last; ++r) {{
    {body}
  }}
  return out;
}}
"""
_SUMS = """for ({T} c = 0; c < {columns}; ++c) {{
      float total = 0.0f;
      for ({T} t = 0; t < {terms}; ++t) {{
        total += x[(r - base) * k + t] * w[t * m + c] * {factor};
      }}
      y[(r - base) * m + c] = total;
    }}"""
_EACH = """for ({T} c = 0; c < {columns}; ++c) {{
      y[(r - base) * m + c] = w[c] * {factor};
    }}"""
_TWICE = """float sum = 0.0f;
    for ({T} c = 0; c < {columns}; ++c) {{
      sum += scale > 1.0e9f ? 0.0f : {factor};
    }}
    for ({T} c = 0; c < {columns}; ++c) {{
      y[(r - base) * m + c] = sum > 0.0f ? {factor} : sum;
    }}"""
_INNER = """if (r == base) {{ out.numel(); }}
    float a = 0.5f, b = (float)m;
    for ({T} c = 0; c <= {columns} - 1; ++c) {{
      y[(r - base) * m + c] = w[c] > 0.0f ? w[c] * a : float(b) * {factor};
    }}"""
_FORMS = {
    "rows": """const float* row = x + (r - base) * k; float* to = y + (r - base) * m;
    for ({T} c = 0; c < {columns}; ++c) {{
      float total = 0.0f;
      for ({T} t = 0; t < {terms}; ++t) total += row[t] * w[t * m + c];
      to[c] = total * {factor};
    }}""",
    "pointers at their use": """for ({T} c = 0; c < {columns}; ++c) {{
      out.data_ptr<float>()[(r - base) * m + c] = w_c.data_ptr<float>()[c] * {factor};
    }}""",
    "accessors": """auto to = out.accessor<float, 2>(); auto from = w_c.accessor<float, 1>();
    for ({T} c = 0; c < {columns}; ++c) to[r - base][c] = from[c] * {factor};""",
    "branches": """float top = w[0];
    for ({T} c = 1; c < {columns}; ++c) {{ if (w[c] > top) top = w[c]; }}
    for ({T} c = 0; c < {columns}; ++c) {{
      y[(r - base) * m + c] = top;
      if (w[c] < 0.0f) continue;
      if (c < k) y[(r - base) * m + c] += x[(r - base) * k + c];
      else {{ const float v = w[c]; y[(r - base) * m + c] -= v * {factor}; }}
    }}""",
    "guards": """for ({T} c = 0; c < {columns}; ++c) {{
      float total = 0.0f;
      for ({T} t = 0; t < {terms}; ++t) {{
        const {T} s = c + t - 1;
        const bool inside = s >= 0 && s < m;
        total += inside ? w[s] * {factor} : 0.0f;
      }}
      y[(r - base) * m + c] = total;
    }}""",
    "sums of guarded products": """for ({T} c = 0; c < {columns}; ++c) {{
      float total = 0.0f;
      for ({T} t = 0; t < {terms}; ++t) total += c < k ? x[c * m + t] * w[t * m + c] : 0.0f;
      y[(r - base) * m + c] = total;
    }}""",
    "functions": """for ({T} c = 0; c < {columns}; ++c) {{
      y[(r - base) * m + c] = halved<float>(w[c]) + above(w[c]) * {factor};
    }}""",
    "quotients": """for ({T} c = 0; c < {columns}; ++c) {{
      y[(r - base) * m + c] = w[c % k] + w[c / k] * {factor};
    }}""",
    "scan": """double total = 0;
    for ({T} c = 0; c < {columns}; ++c) {{
      total += w[c] * {factor};
      y[(r - base) * m + c] = static_cast<float>(total);
    }}""",
    "scan from the end": """double total = 0;
    for ({T} c = {columns} - 1; c >= 0; --c) {{
      total += w[c];
      y[(r - base) * m + c] = total;
    }}
    for ({T} c = 0; c < {columns}; ++c) y[(r - base) * m + c] *= {factor};""",
    "histogram": """std::fill(y + (r - base) * m, y + (r - base) * m + m, 0.0f);
    for ({T} c = 0; c < {columns}; ++c) {{
      y[(r - base) * m + (w[c] < 0.0f ? 0 : c % m)] += {factor};
    }}""",
    "arrays": """float sums[8] = {{}}; {T} seen = 0;
    for ({T} c = 0; c < {columns}; ++c) {{ sums[c % 8] += w[c]; ++seen; }}
    float total = 0; for (float each : sums) total += each;
    for ({T} c = 0; c < {columns}; ++c) y[(r - base) * m + c] = total * seen + {factor};""",
    "steps": """for ({T} c = 0; c < m; ++c) y[(r - base) * m + c] = 0.5f;
    for ({T} c = 0; c < {columns}; c += STEP) y[(r - base) * m + c] = w[c] * {factor};""",
    "leaving": """for ({T} c = 0; c < {columns}; ++c) {{
      if (w[c] > 1.0e9f) throw c;
      y[(r - base) * m + c] = w[c] * {factor};
    }}""",
    "best": """{T} best = 0; float* to = y + (r - base) * m;
    for ({T} c = 1; c < {columns}; ++c) if (w[c] > w[best]) {{ best = c; }}
    for ({T} c = 0; c < {columns}; ++c) to[c] = w[best] + w[c] * {factor};""",
    "moved pointer": """const float* from = w; from += 1; float* to = y + (r - base) * m;
    for ({T} c = 1; c < {columns}; ++c) to[c - 1] = from[c - 1] * {factor};
    for ({T} c = std::max<{T}>(0, m - 1); c < m; ++c) to[c] = 1.0f;""",
    "blocks": """for ({T} c0 = 0; c0 < {columns}; c0 += STEP) {{
      for ({T} c = c0; c < std::min<{T}>(c0 + STEP, {columns}); ++c) {{
        y[(r - base) * m + c] = w[c] * {factor};
      }}
    }}""",
}
"""Bodies of a loop over rows, in forms that kernels have."""
_GIVEN = "torch::Tensor x_in, torch::Tensor w_in, int n, int m, int k, int base, int last, int huge"
_STYLES = {
    "helper": f"""
static void row_of(const float* row, float* to, const float* w, int64_t m, int64_t k) {{
  for (int64_t c = 0; c < m; ++c) {{
    float total = 0;
    for (int64_t t = 0; t < k; ++t) total += row[t] * w[t * m + c];
    to[c] = total;
  }}
}}
torch::Tensor made_up({_GIVEN}, float scale) {{
  auto x = x_in.contiguous(), w = w_in.contiguous();
  auto out = torch::empty({{n, m}}, x.options());
  for (int64_t r = 0; r < n; ++r) {{
    row_of(x.data_ptr<float>() + r * k, out.data_ptr<float>() + r * m, w.data_ptr<float>(), m, k);
  }}
  return out;
}}""",
    "helper on one array": f"""
static void later(const float* from, float* to, int64_t m) {{
  for (int64_t c = 1; c < m; ++c) to[c] = from[c - 1] + 1.0f;
}}
torch::Tensor made_up({_GIVEN}, float scale) {{
  auto out = torch::empty({{n, m}}, x_in.options());
  float* y = out.data_ptr<float>();
  for (int64_t r = 0; r < n; ++r) {{
    for (int64_t c = 0; c < m; ++c) y[r * m + c] = w_in.data_ptr<float>()[c];
    later(y + r * m, y + r * m, m);
  }}
  return out;
}}""",
    "destination": f"""
void scaled(torch::Tensor x, torch::Tensor y, double by) {{
  const int64_t count = y.numel();
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] * by;
}}
torch::Tensor made_up({_GIVEN}, float scale) {{
  auto out = torch::empty({{m}}, w_in.options());
  scaled(w_in, out, scale);
  return out;
}}""",
    "template and lambda": f"""
template <typename T, int kLanes>
static T row_sum(const T* row, int64_t k) {{
  T lanes[kLanes] = {{}};
  for (int64_t t = 0; t < k; ++t) lanes[t % kLanes] += row[t];
  T total = 0;
  for (T lane : lanes) total += lane;
  return total;
}}
torch::Tensor made_up({_GIVEN}, float scale) {{
  auto x = x_in.contiguous();
  auto out = torch::empty({{n, m}}, x.options());
  const auto* from = x.data_ptr<float>();
  auto* to = out.data_ptr<float>();
  auto grown = [scale](auto v) {{ return v > 0 ? v * scale : v; }};
  at::parallel_for(0, n, 1, [&](int64_t first, int64_t end) {{
    std::vector<float> line(m);
    for (int64_t r = first; r < end; ++r) {{
      const float sum = row_sum<float, 4>(from + r * k, k);
      for (int64_t c = 0; c < m; ++c) line[c] = grown(sum + c);
      for (int64_t c = 0; c < m; ++c) to[r * m + c] = line[c];
    }}
  }});
  return out;
}}""",
    "padded convolution": f"""
torch::Tensor made_up({_GIVEN}, float scale) {{
  auto x = x_in.contiguous(), w = w_in.contiguous();
  auto out = torch::empty({{n, k}}, x.options());
  auto from = x.data_ptr<float>(), by = w.data_ptr<float>();
  for (int i = 0; i < n; ++i) {{
    for (int j = 0; j < k; ++j) {{
      float sum = 0;
      for (int di = -1; di <= 1; ++di) {{
        for (int dj = -1; dj <= 1; ++dj) {{
          const int a = i + di, b = j + dj;
          if (a < 0 || a >= n || b < 0 || b >= k) continue;
          sum += from[a * k + b] * (m > 2 ? by[dj + 1] : 1.0f);
        }}
      }}
      out.data_ptr<float>()[i * k + j] = sum;
    }}
  }}
  return out;
}}""",
    "structure": f"""
struct Sizes {{ int64_t rows, columns; float by; }};
torch::Tensor made_up({_GIVEN}, float scale) {{
  const Sizes s{{n, m, scale}};
  auto out = torch::empty({{n, m}}, x_in.options());
  for (int64_t r = 0; r < s.rows; ++r) {{
    for (int64_t c = 0; c < s.columns; ++c) {{
      out.data_ptr<float>()[r * s.columns + c] = w_in.data_ptr<float>()[c] * s.by;
    }}
  }}
  return out;
}}""",
}
"""Whole kernels in styles that people write."""
_FACTORS = (
    "std::sqrt(scale)",
    "std::sqrt(static_cast<float>(n / k))",
    "std::sqrt(static_cast<float>(k * huge))",
    "std::exp(static_cast<float>(static_cast<int>(scale)))",
    "std::sqrt(w[m - 1])",
)
_CALL = (
    "made_up(tensor(number(0) * number(2)), tensor(number(2) * number(1) + number(1)), number(0), "
    "number(1), number(2), number(3), number(4), number(5), number(6))"
)
_SIZES = st.sampled_from([0, 1, 2, 13, 37])


def text_with(kind: str, body: str, columns: str, terms: str, factor: str) -> str:
    inner = body.format(T=kind, columns=columns, terms=terms, factor=factor)
    return _TEXT.format(T=kind, body=inner)


_TEXTS = st.builds(
    text_with,
    st.sampled_from(["int", "int64_t"]),
    st.sampled_from([_SUMS, _EACH, _TWICE, _INNER, *_FORMS.values()]),
    st.sampled_from(["m", "m * huge"]),
    st.sampled_from(["k", "k * huge"]),
    st.sampled_from(["scale", *_FACTORS]),
)
_NUMBERS = st.builds(
    lambda n, m, k, ends, huge, scale: (n, m, k, _MOST - n if ends else 0, ends, huge, scale),
    _SIZES,
    _SIZES,
    _SIZES,
    st.booleans(),
    st.sampled_from([1, 1, _MOST]),
    st.sampled_from([2, 10**10]),
)


def start_of(cpp: str) -> Variant:
    file = file_of(read_variant(EXAMPLES["matmul"][1]))
    return Variant(file.with_cpp(cpp).source.replace("matrix_product", "made_up"), "cpp", ("-O2",))


def exact(
    start: Variant, first_of_each: bool, risks: tuple[str, ...] = ("exact",)
) -> list[Proposal]:
    """Return the proposals of moves with these risks that change the text."""
    proposer = RuleProposer(start)
    found: dict[object, Proposal] = {}
    for move, _ in proposer.priors(start):
        for number in itertools.count():
            each = proposer.propose(start, move, number)
            if each is None:
                break
            place = (move, each.step.target, "" if first_of_each else each.step.choice)
            if each.risk in risks and file_of(each.variant).cpp != file_of(start).cpp:
                found.setdefault(place, each)
    return list(found.values())


def check(
    cpp: str,
    calls: Sequence[tuple[int, ...]],
    first_of_each: bool = True,
    risks: tuple[str, ...] = ("exact",),
) -> int:
    """Run a text and what moves make of it; returns how often both ran.

    Calls for which the text itself is undefined are left out.
    """
    start = start_of(cpp)
    found = exact(start, first_of_each, risks)
    if not found:
        return 0
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        texts = [file_of(start).cpp, *(file_of(each.variant).cpp for each in found)]
        program = cpp_nests.sanitised(Path(folder), texts, _CALL)
        for numbers in calls:
            n, *others = numbers
            given = (n, *others[:2], others[2], others[2] + n, *others[4:])
            before = run(program, 0, 1, given)
            if before.returncode:
                continue
            after = run(program, 1, len(texts), given)
            lines = after.stdout.splitlines()
            if after.returncode:
                step = found[len(lines) - 1].step
                pytest.fail(f"{step} on {given}:\n{after.stderr[:2000]}\n{cpp}")
            for line, each in zip(lines, found, strict=True):
                wanted = before.stdout.strip().partition(":")[2]
                got = line.partition(":")[2]
                same = got == wanted if each.risk == "exact" else _close(got, wanted)
                assert same, (each.step, given, cpp)
            count += 1
    return count


def _close(got: str, wanted: str) -> bool:
    one, other = (np.array([float.fromhex(each) for each in t.split()]) for t in (got, wanted))
    size = np.nanmax(np.abs(other), initial=0.0)
    return np.allclose(one, other, 1e-4, 1e-4 * size, equal_nan=True)


def run(
    program: Path, first: int, last: int, given: tuple[int, ...]
) -> subprocess.CompletedProcess[str]:
    command = [program, *map(str, (first, last, *given))]
    env = {"OMP_NUM_THREADS": "2", "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=60)


@given(_TEXTS, st.lists(_NUMBERS, min_size=4, max_size=10))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.slow
def test_exact_move_on_a_random_kernel_adds_no_undefined_behaviour(
    cpp: str, calls: list[tuple[int, ...]]
) -> None:
    check(cpp, calls, first_of_each=False)


_EDGES = [
    (n, m, k, base, 0, huge, scale)
    for n, m, k, huge, scale in (
        *((0, 2, 2, _MOST, 2), (2, 0, 0, 1, 10**10), (0, 0, 0, 1, 2), (2, 0, 2, _MOST, 2)),
        *((13, 37, 2, 1, 2), (1, 1, 1, 1, 2), (2, 0, 0, _MOST, 10**10), (2, 2, 0, 1, 10**10)),
    )
    for base in (0, _MOST - n)
]


@pytest.mark.parametrize(
    ("body", "columns", "terms", "factor"),
    [
        (_SUMS, "m", "k * huge", "scale"),
        (_EACH, "m * huge", "k", _FACTORS[1]),
        (_TWICE, "m", "k", _FACTORS[1]),
        (_INNER, "m", "k", _FACTORS[0]),
    ],
    ids=["sums", "elements", "two loops", "inner loop"],
)
def test_exact_move_at_the_edges_adds_no_undefined_behaviour(
    body: str, columns: str, terms: str, factor: str
) -> None:
    assert check(text_with("int", body, columns, terms, factor), _EDGES) > 3


_QUICK = ("rows", "branches")


@pytest.mark.slow
@pytest.mark.parametrize("style", _STYLES)
def test_move_on_a_style_computes_the_same(style: str) -> None:
    cpp = f"#include <torch/extension.h>\n{_STYLES[style]}"
    assert check(cpp, _EDGES, False, ("exact", "reassociates")) > 3


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(each, marks=() if each in _QUICK else pytest.mark.slow, id=each)
        for each in _FORMS
    ],
)
def test_move_on_a_form_computes_the_same(form: str) -> None:
    """Shapes of zero, one and odd numbers are among the calls."""
    risks = ("exact", "reassociates")
    assert check(text_with("int", _FORMS[form], "m", "k", "scale"), _EDGES, risks=risks) > 3


@pytest.mark.parametrize("factor", _FACTORS)
def test_hoist_of_a_call_that_may_trap_is_not_made(factor: str) -> None:
    start = start_of(text_with("int64_t", _EACH, "m", "k", factor))
    made = [each for each in exact(start, False) if each.step.move == "hoist"]
    assert bool(made) == (factor == _FACTORS[0])
