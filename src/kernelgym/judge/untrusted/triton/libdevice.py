"""Runs CUDA's libdevice functions under Triton's interpreter, by NumPy.

Triton's interpreter knows none: a call of ``libdevice.erf`` gives None or raises. Here each is
computed in double precision and rounded to the type that the device's function returns, so results
differ from a GPU's by the error that CUDA documents for the function, at most.

It does not cover

- Bessel functions other than ``cyl_bessel_i0``, and the scaled ``erfcx``;
- directed rounding (``_rd``, ``_ru``, ``_rz``) of double-precision arithmetic.

Loaded by path in the untrusted process: standard library, numpy and triton only. Nothing here uses
torch, whose operators would count as work that the kernel leaves to torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

_Function = Callable[..., Any]


def install() -> None:
    """Make libdevice's functions callable in interpreted kernels of this process."""
    from triton.language import extra
    from triton.language.core import is_builtin
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as of_cuda
    from triton.runtime import interpreter

    builder, convert = interpreter.InterpreterBuilder, interpreter._get_np_dtype
    handle = interpreter.TensorHandle

    def extern(
        self: Any, lib: Any, path: Any, symbol: str, args: Any, kind: Any, is_pure: Any
    ) -> Any:
        element = kind.scalar
        found = compute(symbol, [argument.data for argument in args], convert(element))
        return handle(found, element)

    builder.create_extern_elementwise = extern
    for name, function in list(vars(of_cuda).items()):
        if is_builtin(function):
            ready = with_semantic(function, interpreter.interpreter_semantic)
            setattr(of_cuda, name, ready)
            if hasattr(libdevice, name):  # the one that picks a device's own while it compiles
                setattr(libdevice, name, ready)
    extra.libdevice = libdevice


def with_semantic(function: _Function, semantic: Any) -> _Function:
    """Return a function of Triton's language that can be called without a compiler."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{**kwargs, "_semantic": semantic})

    # `functools.wraps` copies the mark of a builtin, which Triton would wrap again at each launch.
    vars(call).pop("__triton_builtin__", None)
    return call


def compute(symbol: str, args: list[Any], result: Any) -> Any:
    """Return the result of a libdevice function, computed by NumPy.

    Args:
        symbol: Symbol of the function, such as ``__nv_erff``.
        args: Arrays of one shape.
        result: NumPy type of the result.

    Raises:
        NotImplementedError: If no function is known for it.
    """
    name = symbol.removeprefix("__nv_")
    names = (name, name.removesuffix("f"), name.removesuffix("d"), name.removesuffix("ll"))
    function = next((FUNCTIONS[each] for each in names if each in FUNCTIONS), None)
    with np.errstate(all="ignore"):  # a device raises no warnings either
        if function is not None:
            wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in args]
            return _as(np.asarray(function(*wide)), result)
        base, _, mode = name.rpartition("_")
        if mode in _TO_INTEGER and base in _ARITHMETIC | _CONVERSIONS.keys():
            return _rounded(base, mode, args, result)
    raise NotImplementedError(
        f"libdevice's {symbol} is not known to the interpreter on a CPU; write it with functions "
        "of triton.language, or judge the kernel on a GPU"
    )


def _rounded(base: str, mode: str, args: list[Any], result: Any) -> Any:
    if base in _CONVERSIONS and result.kind in "iu":
        limits = np.iinfo(result)
        found = np.nan_to_num(_TO_INTEGER[mode](args[0].astype(np.float64)), nan=0.0)
        low, high = found <= limits.min, found >= limits.max
        inside = np.where(low | high, 0, found).astype(result)
        return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(result)
    if base in _CONVERSIONS:
        exact = args[0]
    else:
        exact = _OPERATIONS[base[1:]](*(a.astype(np.float64) for a in args))
    nearest = exact.astype(result)
    if mode == "rn":
        return nearest
    if result == np.float64:
        raise NotImplementedError(
            f"libdevice's {base}_{mode} is not known to the interpreter on "
            "a CPU; write it with functions of triton.language, or judge "
            "the kernel on a GPU"
        )
    up = mode == "ru"
    back = nearest.astype(np.float64)
    if mode == "rz":
        wrong, toward = np.abs(back) > np.abs(exact), np.float32(0)
    else:
        wrong = back < exact if up else back > exact
        toward = np.float32(np.inf if up else -np.inf)
    return np.where(wrong, np.nextafter(nearest, toward), nearest).astype(result)


def _as(found: Any, kind: Any) -> Any:
    return found if found.dtype == kind else found.astype(kind)


def _each(function: _Function, otherwise: float = math.nan) -> _Function:
    """Return a function applied to each number of an array; `otherwise` where it is undefined."""

    def guarded(value: float) -> float:
        try:
            return float(function(value))
        except (ValueError, OverflowError, ArithmeticError):
            return otherwise

    return np.vectorize(guarded, otypes=[np.float64])


def _away(x: Any) -> Any:
    """Round numbers to the nearest whole ones, halves away from zero, unlike NumPy."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _normcdfinv(p: float) -> float:
    if p in (0.0, 1.0):
        return math.inf if p else -math.inf
    return NormalDist().inv_cdf(p)


def _erfinv(x: float) -> float:
    if abs(x) == 1.0:
        return math.copysign(math.inf, x)
    # A step of Newton's method mends what (x + 1) / 2 loses near zero.
    near = _normcdfinv((x + 1) / 2) / math.sqrt(2)
    return near - (math.erf(near) - x) * math.sqrt(math.pi) / 2 * math.exp(near * near)


def _bits(count: _Function) -> _Function:
    """Apply a function to each integer of an array, given as a text of its bits."""

    def of(x: Any) -> Any:
        width = 8 * x.dtype.itemsize
        return np.array(
            [count(np.binary_repr(int(value), width)) for value in x.ravel()], dtype=np.int64
        ).reshape(x.shape)

    return of


def _high(a: Any, b: Any) -> Any:
    product = a.astype(object) * b.astype(object)
    return (product >> (8 * a.dtype.itemsize)).astype(a.dtype)


def _ratio(of: _Function) -> _Function:
    return lambda *args: 1.0 / of(*args)


def _length(*args: Any) -> Any:
    return np.sqrt(sum(a * a for a in args))


def _times_two_to(x: Any, exponent: Any) -> Any:
    return np.ldexp(x, exponent.astype(np.int64))


def _view_as(kind: Any) -> _Function:
    return lambda x: x.view(kind)


FUNCTIONS: dict[str, _Function] = {
    **{
        name: getattr(np, name)
        for name in (
            "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh ceil floor trunc "
            "rint cbrt hypot copysign nextafter fmod signbit"
        ).split()
    },
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
    "atan2": np.arctan2,
    "abs": np.abs,
    "llabs": np.abs,
    "fabs": np.abs,
    "nearbyint": np.rint,
    "llrint": np.rint,
    "round": _away,
    "llround": _away,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "exp10": lambda x: np.power(10.0, x),
    "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(np.float64)),
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "erfinv": _each(_erfinv),
    "erfcinv": _each(lambda x: _erfinv(1.0 - x)),
    "normcdf": _each(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    "normcdfinv": _each(_normcdfinv),
    "lgamma": _each(math.lgamma, math.inf),
    "tgamma": _each(math.gamma, math.inf),
    "cyl_bessel_i0": np.i0,
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(np.isnan(x + y), x + y, 0.0)),
    "fma": lambda x, y, z: x * y + z,
    "saturate": lambda x: np.nan_to_num(np.clip(x, 0.0, 1.0), nan=0.0),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "ldexp": _times_two_to,
    "scalbn": _times_two_to,
    "logb": lambda x: np.where(x == 0, -np.inf, np.frexp(x)[1] - 1.0),
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    **{f"norm{n}d": _length for n in (3, 4)},
    **{f"rnorm{n}d": _ratio(_length) for n in (3, 4)},
    "rhypot": _ratio(np.hypot),
    # NumPy has no approximations: these are exact, which is nearer than a device's.
    **{f"fast_{name}": getattr(np, name) for name in "sin cos tan exp log log2 log10".split()},
    "fast_exp10": lambda x: np.power(10.0, x),
    "fast_pow": np.power,
    "fast_fdivide": lambda x, y: x / y,
    "frsqrt_rn": lambda x: 1.0 / np.sqrt(x),
    "clz": _bits(lambda text: len(text) - len(text.lstrip("0"))),
    "popc": _bits(lambda text: text.count("1")),
    "ffs": _bits(lambda text: len(text) - text.rfind("1") if "1" in text else 0),
    **dict.fromkeys(("mulhi", "umulhi", "mul64hi", "umul64hi"), _high),
    "int_as_float": _view_as(np.float32),
    "uint_as_float": _view_as(np.float32),
    "longlong_as_double": _view_as(np.float64),
    "float_as_int": lambda x: x.astype(np.float32).view(np.int32),
    "float_as_uint": lambda x: x.astype(np.float32).view(np.uint32),
    "double_as_longlong": lambda x: x.astype(np.float64).view(np.int64),
}
"""NumPy equivalents in double precision, by name without ``__nv_`` and type suffix."""

_TO_INTEGER: dict[str, _Function] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rd": np.floor,
    "ru": np.ceil,
}
_OPERATIONS: dict[str, _Function] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "sqrt": np.sqrt,
    "rcp": lambda x: 1.0 / x,
    "ma": lambda x, y, z: x * y + z,  # fma
    "maf": lambda x, y, z: x * y + z,
}
_ARITHMETIC = frozenset(
    f"{kind}{name}" for kind in "fd" for name in ("add", "sub", "mul", "div", "sqrt", "rcp")
) | {"fma", "fmaf"}
_CONVERSIONS = dict.fromkeys(
    f"{a}2{b}"
    for a in ("float", "double", "int", "uint", "ll", "ull")
    for b in ("float", "double", "int", "uint", "ll", "ull")
    if a != b
)
