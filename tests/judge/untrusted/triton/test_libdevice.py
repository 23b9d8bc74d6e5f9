"""NumPy's versions of libdevice's functions give what torch gives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.untrusted.triton.libdevice import FUNCTIONS, compute

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int32)
finite = st.floats(-30, 30, width=32)

KNOWN = {
    "erff": torch.erf,
    "erfcf": torch.erfc,
    "erfinvf": torch.erfinv,
    "tanhf": torch.tanh,
    "sinhf": torch.sinh,
    "coshf": torch.cosh,
    "asinf": torch.asin,
    "acosf": torch.acos,
    "atanf": torch.atan,
    "asinhf": torch.asinh,
    "acoshf": torch.acosh,
    "atanhf": torch.atanh,
    "expf": torch.exp,
    "exp2f": torch.exp2,
    "expm1f": torch.expm1,
    "logf": torch.log,
    "log1pf": torch.log1p,
    "log2f": torch.log2,
    "log10f": torch.log10,
    "sqrtf": torch.sqrt,
    "rsqrtf": torch.rsqrt,
    "sinf": torch.sin,
    "cosf": torch.cos,
    "tanf": torch.tan,
    "floorf": torch.floor,
    "ceilf": torch.ceil,
    "truncf": torch.trunc,
    "rintf": torch.round,
    "nearbyintf": torch.round,
    "fabsf": torch.abs,
    "lgammaf": torch.lgamma,
    "normcdff": torch.special.ndtr,
    "normcdfinvf": torch.special.ndtri,
    "fast_expf": torch.exp,
    "fast_logf": torch.log,
    "fast_sinf": torch.sin,
    "exp10f": lambda x: 10**x,
}
PAIRS = {
    "powf": torch.pow,
    "fast_powf": torch.pow,
    "atan2f": torch.atan2,
    "fmodf": torch.fmod,
    "hypotf": torch.hypot,
    "copysignf": torch.copysign,
    "nextafterf": torch.nextafter,
    "fast_fdividef": torch.div,
    "fdiv_rn": torch.div,
    "fadd_rn": torch.add,
    "fmul_rn": torch.mul,
}


@pytest.mark.parametrize("name", KNOWN)
@given(values=st.lists(finite, min_size=1, max_size=8))
def test_function_of_one_number_agrees_with_torch(name, values):
    x = torch.tensor(values, dtype=torch.float32)
    found = compute(f"__nv_{name}", [x.numpy()], FLOAT)
    assert found.dtype == FLOAT and found.shape == (len(values),)
    expected = KNOWN[name](x.double()).float()
    torch.testing.assert_close(
        torch.from_numpy(found), expected, rtol=3e-6, atol=1e-6, equal_nan=True
    )


@pytest.mark.parametrize("name", PAIRS)
@given(pair=st.tuples(finite, finite))
def test_function_of_two_numbers_agrees_with_torch(name, pair):
    x, y = (torch.tensor([value], dtype=torch.float32) for value in pair)
    found = compute(f"__nv_{name}", [x.numpy(), y.numpy()], FLOAT)
    wide = (x, y) if name == "nextafterf" else (x.double(), y.double())
    expected = PAIRS[name](*wide).float()
    torch.testing.assert_close(
        torch.from_numpy(found), expected, rtol=1e-6, atol=1e-7, equal_nan=True
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("roundf", [-3.0, -1.0, 0.0, 1.0, 3.0]),
        ("float2int_rz", [-2, 0, 0, 0, 2]),
        ("float2int_rn", [-2, 0, 0, 0, 2]),
        ("float2int_rd", [-3, -1, 0, 0, 2]),
        ("float2int_ru", [-2, 0, 0, 1, 3]),
        ("llroundf", [-3, -1, 0, 1, 3]),
    ],
)
def test_halves_are_rounded_as_the_name_says(name, expected):
    kind = FLOAT if name == "roundf" else INT
    halves = np.array([-2.5, -0.5, 0.0, 0.5, 2.5], dtype=np.float32)
    assert compute(f"__nv_{name}", [halves], kind).tolist() == expected


def test_conversion_of_great_numbers_saturates():
    great = np.array([1e20, -1e20, np.nan], dtype=np.float32)
    found = compute("__nv_float2int_rz", [great], INT)
    assert found.tolist() == [2**31 - 1, -(2**31), 0]


@given(finite, finite)
def test_directed_rounding_encloses_the_exact_sum(a, b):
    args = [np.array([value], dtype=np.float32) for value in (a, b)]
    low, high = (compute(f"__nv_fadd_{way}", args, FLOAT)[0] for way in ("rd", "ru"))
    assert float(low) <= float(a) + float(b) <= float(high)
    assert high <= np.nextafter(low, np.float32(np.inf))


@given(st.integers(-(2**31), 2**31 - 1))
def test_bits_of_integers_are_counted_as_on_a_device(value):
    x, bits = np.array([value], dtype=np.int32), f"{value & 0xFFFFFFFF:032b}"
    assert compute("__nv_popc", [x], INT)[0] == bits.count("1")
    assert compute("__nv_clz", [x], INT)[0] == len(bits) - len(bits.lstrip("0"))
    assert compute("__nv_ffs", [x], INT)[0] == (bits[::-1].find("1") + 1)
    assert compute("__nv_mulhi", [x, x], INT)[0] == (value * value) >> 32


def test_tests_of_numbers_give_integers():
    x = np.array([np.nan, np.inf, 1.0, -0.0], dtype=np.float32)
    found = {name: compute(f"__nv_{name}", [x], INT).tolist() for name in ("isnanf", "isinff")}
    assert found == {"isnanf": [1, 0, 0, 0], "isinff": [0, 1, 0, 0]}
    assert compute("__nv_signbitf", [x], INT).tolist()[2:] == [0, 1]
    assert compute("__nv_finitef", [x], INT).tolist() == [0, 0, 1, 1]


def test_unknown_function_raises_and_says_what_to_do():
    with pytest.raises(NotImplementedError, match=r"__nv_y1f is not known.*on a GPU"):
        compute("__nv_y1f", [np.ones(1, dtype=np.float32)], FLOAT)


def test_every_function_is_one_of_libdevice():
    libdevice = pytest.importorskip("triton.language.extra.cuda.libdevice")
    import inspect

    text = inspect.getsource(libdevice)
    for name in FUNCTIONS:
        assert any(f'"__nv_{name}{end}"' in text for end in ("", "f", "d", "ll")), name
