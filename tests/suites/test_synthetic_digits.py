"""Operators whose text must keep the digits that torch keeps, small numbers beside large ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernelgym.suites.synthetic.operators import OPERATORS

TL = SimpleNamespace(
    exp=np.exp, log=np.log, abs=np.abs, maximum=np.maximum, minimum=np.minimum, where=np.where
)
SIZES = np.logspace(-6, 1.5, 4000)


@pytest.mark.parametrize("name", ["tanh", "elu", "softplus", "mish"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_an_operator_is_right_to_most_of_its_digits(name: str, sign: float) -> None:
    operator = OPERATORS[name]
    x = (sign * SIZES).astype(np.float32)
    with np.errstate(over="ignore"):
        found = eval(operator.triton.format(x="x"), {"tl": TL, "x": x})
    # In fp64 the plain formulas are exact enough.
    wanted = {
        "tanh": np.tanh,
        "elu": lambda v: np.where(v > 0, v, np.expm1(v)),
        "softplus": lambda v: np.logaddexp(0.0, v),
        "mish": lambda v: v * np.tanh(np.logaddexp(0.0, v)),
    }[name](x.astype(np.float64))
    assert found.dtype == np.float32
    assert np.max(np.abs(found - wanted) / np.abs(wanted)) < 1e-5
