"""Kinds of inputs: the problem's own (``given``), and others that a faked kernel fails on.

A kind replaces what *samplers* inside ``get_inputs`` draw (`torch.rand`, `torch.randn`, `uniform_`
and the like), never the results of later operations: what the problem makes triangular, one-hot
or a softmax stays so. Permutations are drawn as the problem draws them, and so are integers, except
in ``salted:ends``.

=============  ==================================================================================
``shifted``    other means, of both signs, another one in every row
``wide``       8 to 64 times the magnitude, both signs
``narrow``     an eighth to a quarter of the magnitude, both signs; a few slices along each of the
               first two axes are 16 to 16,384 times smaller still
``spiked``     an eighth of the magnitude, except a few random elements of 200 to 400 times it
``lattice``    few distinct values, multiples of half the magnitude, with ties and exact zeros: one
               row is all zeros, and one the negative of another
``clustered``  the largest values next to each other, and the smallest, along the last two axes
``salted``     the problem's own, except one to three elements 8 to 16 times as far out; at least
               one of these has a sign that the problem's own values lack
``balanced``   ones, among them a few of plus or minus 2 or 1/2: long products neither vanish nor
               overflow, and are exact in any order
=============  ==================================================================================

``lattice`` is for kernels that divide by what may be zero, or that take the first of equal values
for the only one: a sign as ``x / abs(x)``, a norm without its eps.

``clustered`` is for kernels that sort or select: one that takes the largest value of each block for
the largest ones is right if these lie apart. Other problems do not get it.

``balanced`` is for kernels that stop multiplying where products of the problem's own values have
become zero. Only problems that take products along an axis get it.

``salted`` is for kernels that sample their input and take a short cut if it looks like the
problem's own: a kernel that does not read every element cannot tell the two apart.

Most of ``narrow`` is no smaller, since smaller inputs would reject honest formulas that lose digits
near zero, such as an ELU by ``exp(x) - 1``. Few slices (rows, samples, channels) may be, since the
bound on errors follows the median: they are for kernels that add another eps than the problem's, or
one where it has none.

Each kind has a variant, such as ``wide:positive``, for problems whose inputs must not be negative.
Convolutions and scans get ``spiked:mild`` (spikes of 4 to 8 times the magnitude, all else half of
it): honest transforms (Winograd's) spread an element's error over its neighbours, and running sums
carry it on.

References that ask which values are finite get ``salted:nonfinite``, which has a NaN and both
infinities among its values, or ``salted:nan``, which has a NaN. Other problems do not: languages
differ in whether a maximum keeps a NaN, and honest kernels with them.

Where no kind suits a problem, each is tried on what one call of a sampler draws, such as
``wide@2`` on the second one's: an arc cosine of one input must not shield the others.

Problems that draw integers within bounds get ``salted:ends``: the problem's own inputs, except
that each tensor of at least four such integers has the lowest and the highest at secret places,
and a repeated one if repetitions are not rare anyway. A kernel that leaves out the last row of a
large table, which is hardly ever looked up, is wrong there.

What is drawn from an exponential or a log-normal distribution has no negative values, and gets
none: it would no longer be a waiting time or a size. Counts (`torch.poisson`, ``geometric_``) are
drawn as the problem draws them.

Not here: which kinds suit a problem (`kernelgym.judge.reference.examine`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelgym.rulesets import Ruleset

GIVEN = "given"
FOR_RANKS = frozenset(("clustered",))
"""Kinds for problems that sort or select elements by rank, and for no others."""
TIED = "lattice"
"""Name of the kind with many equal values."""
_POSITIVE = ":positive"
BALANCED = "balanced"
"""The kind for problems that take products along an axis, and for no others."""
SALTED = "salted"
"""Name of the kind that differs from the problem's own inputs in few elements."""
NONFINITE = ("salted:nonfinite", "salted:nan")
"""Variants with values that are not finite, strongest first."""
ENDS = "salted:ends"
"""Variant with the bounds of integers among these."""
_MILD = ":mild"
_ALONE = "@"
_NOT_FINITE = dict(zip(NONFINITE, ((math.nan, math.inf, -math.inf), (math.nan,)), strict=True))
_LEAST_GIVEN = 2
_MOST_GIVEN = 4
_ELEMENTS_PER_SPIKE = 2048
_MOST_SALTED = 3
_SALT = 8.0  # times the scale, at least
_RUN = 64
_FADED = 3  # slices along an axis
_FADED_BITS = (4, 14)  # 2^-14 is the least normal number of fp16
_POWERS = 16
_LEAST_WITH_ENDS = 4


def variants(kind: str, operation: str = "") -> tuple[str, ...]:
    """Return a kind's variants for a class of operations, strongest first."""
    if kind == "spiked" and operation in ("convolution", "scan"):
        kind += _MILD
    return kind, kind + _POSITIVE


def alone(variant: str, call: int) -> str:
    """Return the variant that changes only the values of one sampler call, counted from 1."""
    return f"{variant}{_ALONE}{call}"


def is_alone(variant: str) -> bool:
    """Return True if a variant changes only the values of one sampler call."""
    return _ALONE in variant


def is_salted(variant: str) -> bool:
    """Return True if a variant differs from ``given`` in few elements."""
    return variant.partition(_ALONE)[0].partition(":")[0] == SALTED


def plan(
    secret: int, calls: int, ruleset: Ruleset, usable: Sequence[str], expensive_calls: bool = False
) -> tuple[str, ...]:
    """Return the kinds of inputs for one verdict's calls, in order.

    Args:
        secret: Secret that decides the order, and how many calls draw the problem's own inputs.
        calls: The number of calls if no other kind of inputs suits the problem.
        ruleset: Bounds the number of calls.
        usable: Kinds that suit the problem; each gets one call.
        expensive_calls: Whether calls take so long that two calls on the problem's own inputs must
            be enough if other kinds are usable.

    Returns:
        One kind per call. At least two calls get the problem's own kind; all of them do if no other
        kind is usable.
    """
    if not usable:
        return (GIVEN,) * calls
    drawer = random.Random(secret)
    most = _LEAST_GIVEN if expensive_calls else min(_MOST_GIVEN, ruleset.max_calls)
    least = drawer.randint(_LEAST_GIVEN, max(_LEAST_GIVEN, most))
    kinds = [*usable, *[GIVEN] * max(least, calls - len(usable))]
    drawer.shuffle(kinds)
    return tuple(kinds)


class InputSampling(TorchFunctionMode):  # type: ignore[misc]
    """While entered, makes floating-point samplers (integer ones for `ENDS`) draw another kind.

    Args:
        variant: A variant that `variants` or `alone` returns.
    """

    def __init__(self, variant: str) -> None:
        super().__init__()
        variant, _, call = variant.partition(_ALONE)
        self._only, self._calls = int(call or 0), 0
        self._kind = variant.removesuffix(_POSITIVE)
        self._mild = self._kind.endswith(_MILD)
        self._kind = self._kind.removesuffix(_MILD)
        self._ends = variant == ENDS
        self._unlike = _NOT_FINITE.get(variant, ())
        if self._unlike:
            self._kind = SALTED
        self._positive = variant.endswith(_POSITIVE)
        self.replaced = 0
        """Number of tensors that were changed; 0 means that this kind changes nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call `func`; change the values of a sampler to this kind."""
        result = func(*args, **(kwargs or {}))
        if self._ends:
            self.replaced += _put_ends(result, *_bounds(func, args, kwargs or {}))
            return result
        centre, scale, never_negative = _centre_and_scale(func, args, kwargs or {})
        if (
            scale is None
            or not isinstance(result, torch.Tensor)
            or not result.is_floating_point()
            or not result.numel()
        ):
            return result
        self._calls += 1
        if self._only not in (0, self._calls):
            return result
        devices = [result.device] if result.is_cuda else []
        # What later calls draw stays the same, if this is the only one to turn.
        same = torch.random.fork_rng(devices, enabled=self._only > 0)
        with torch.no_grad(), same:
            self._turn(result, centre, scale, self._positive or never_negative)
        self.replaced += 1
        return result

    def _turn(self, values: torch.Tensor, centre: Any, scale: Any, positive: bool) -> None:
        """Turn values that a sampler drew around `centre` into values of this kind, in place.

        In place, since a copy of large values may not fit in memory.
        """
        if self._kind == SALTED:
            if positive:
                values.abs_()
            self._add_salt(values, centre, scale, positive)
            if self._unlike:
                numbers = torch.tensor(self._unlike[: values.numel()], device=values.device)
                places = _places(len(numbers), values)
                _put(values, places[torch.randperm(len(numbers), device=values.device)], numbers)
            return
        values.sub_(centre)  # now about as large as `scale`, of both signs
        if positive:
            values.abs_()
        match self._kind:
            case "shifted":
                values.add_(_symmetric(values).mul_(2) * scale)
                overall = _symmetric(values, rows=False)
                values.add_(overall.add_(overall.sign()) * scale)
                if positive:
                    values.abs_()
            case "wide":
                values.mul_(2.0 ** (3 + 3 * float(torch.rand((), device="cpu"))))
            case "narrow":
                values.mul_(0.125 * (1 + float(torch.rand((), device="cpu"))))
                _fade(values)
            case "spiked":
                values.mul_(0.5 if self._mild else 0.125)
                self._add_spikes(values, scale, 4.0 if self._mild else 200.0, positive)
            case "lattice":
                values.div_(scale).mul_(2).round_().clamp_(-4, 4).mul_(scale * 0.5)
                self._tie_rows(values, positive)
            case "balanced":
                self._put_powers(values, positive)
            case "clustered":
                for dim in range(-min(2, values.dim()), 0):
                    self._gather_extremes(values, dim, scale, positive)
            case _:
                raise ValueError(f"unknown kind of inputs: {self._kind!r}")

    def _tie_rows(self, values: torch.Tensor, positive: bool) -> None:
        """Make one row all zeros, and one the negative of its neighbour, for inputs with ties."""
        width = values.shape[-1] if values.dim() > 1 else 0
        rows = values.numel() // width if width else 0
        if rows < 2:
            return
        # A permutation of all rows may not fit into memory.
        chosen = random.Random(int(torch.randint(2**31, (), device="cpu"))).sample(
            range(rows), min(3, rows)
        )
        across = torch.arange(width, device=values.device)
        _put(values, chosen[0] * width + across, torch.zeros(width, device=values.device))
        if rows > 2 and not positive:
            copied = values.reshape(-1)[chosen[1] * width + across]
            _put(values, chosen[2] * width + across, -copied)

    def _put_powers(self, values: torch.Tensor, positive: bool) -> None:
        """Make all values one, but some 16 along the longest axis 2 or 1/2 of either sign."""
        values.fill_(1.0)
        longest = max(values.shape, default=1)
        count = min(max(_POWERS * values.numel() // longest, 2), values.numel())
        drawn = torch.randint(4, (count,), device=values.device).float()
        powers = (drawn % 2 * 3 + 1) / 2
        if not positive:
            powers = powers * torch.where(drawn < 2, -1.0, 1.0)
        _put(values, _places(count, values), powers)

    def _gather_extremes(self, values: torch.Tensor, dim: int, scale: Any, positive: bool) -> None:
        """Raise a run of neighbouring values and lower another, so that extremes are clustered."""
        length = values.shape[dim]
        run = min(_RUN, length // 4)
        if not run:
            return
        up = int(torch.randint(2, (), device="cpu"))
        for half, sign in ((up, 1.0), (1 - up, -1.0)):
            if sign < 0 and positive:
                continue
            start = half * (length // 2)
            start += int(torch.randint(length // 2 - run + 1, (), device="cpu"))
            part = values.narrow(dim, start, run)
            far = scale.expand(values.shape).narrow(dim, start, run) if _is_tensor(scale) else scale
            part.add_(sign * 4.0 * far)

    def _add_spikes(self, values: torch.Tensor, scale: Any, height: float, positive: bool) -> None:
        count = max(-(-values.numel() // _ELEMENTS_PER_SPIKE), min(2, values.numel()))
        device, places = values.device, _places(count, values)
        sizes = torch.rand(count, device=device, dtype=torch.float32).add_(1).mul_(height)
        if not positive and count > 1:  # as many up as down
            sizes.mul_(torch.randperm(count, device=device).remainder_(2).mul_(2).sub_(1))
        _put(values, places, sizes * _at(scale, values, places))

    def _add_salt(self, values: torch.Tensor, centre: Any, scale: Any, positive: bool) -> None:
        # Few, whatever the tensor's size: a kernel that samples its input must not meet them.
        count = min(1 + int(torch.randint(_MOST_SALTED, (), device="cpu")), values.numel())
        device = values.device
        places = _places(count, values)[torch.randperm(count, device=device)]
        middle = torch.as_tensor(_at(centre, values, places), dtype=torch.float32, device=device)
        middle = middle.expand(count)
        sizes = torch.rand(count, device=device, dtype=torch.float32).add_(1).mul_(_SALT)
        sizes = middle.abs() + sizes * _at(scale, values, places)
        if not positive:
            signs = torch.randint(2, (count,), device=device).mul_(2).sub_(1)
            lacking = -middle[0].sign().long()  # 0 if the problem's own values have both signs
            signs[0] = torch.where(lacking == 0, signs[0], lacking)
            sizes *= signs
        _put(values, places, sizes)


def _fade(values: torch.Tensor) -> None:
    """Divide a few slices along each of the first two axes by powers of two.

    They are at most a quarter of an axis, and none of a tensor with one axis.
    """
    numbers = random.Random(int(torch.randint(2**31, (), device="cpu")))
    for axis in range(2 if values.dim() > 1 else 0):
        length = values.shape[axis]
        for place in numbers.sample(range(length), min(_FADED, length // 4)):
            values.select(axis, place).mul_(2.0 ** -numbers.randint(*_FADED_BITS))


def _places(count: int, values: torch.Tensor) -> torch.Tensor:
    """Return `count` different random element numbers, one from each part of a tensor."""
    device, width = values.device, values.numel() // count
    places = torch.arange(count, device=device) * values.numel() // count
    places += torch.rand(count, device=device, dtype=torch.float64).mul_(width).long()
    return places


def _at(number: Any, values: torch.Tensor, places: torch.Tensor) -> Any:
    """Return a sampler's parameter at some places of its result.

    The parameter may be one number or a tensor of them.
    """
    if not isinstance(number, torch.Tensor):
        return number
    return number.to(values.device).expand(values.shape).reshape(-1)[places]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _put(values: torch.Tensor, places: torch.Tensor, numbers: torch.Tensor) -> None:
    flat = values.reshape(-1)  # a copy, if the values do not lie densely
    flat[places] = numbers.to(values.dtype)
    if flat.data_ptr() != values.data_ptr():
        values.copy_(flat.view(values.shape))


def _symmetric(like: torch.Tensor, rows: bool = True) -> torch.Tensor:
    """Return random numbers from [-1, 1): one for all, or one for each row."""
    shape = (*like.shape[:-1], 1) if rows and like.dim() > 1 else (1,) * like.dim()
    drawn = torch.rand(shape, device=like.device, dtype=torch.float32)
    return drawn.mul_(2).sub_(1).to(like.dtype)


def _put_ends(values: Any, low: int, high: int) -> bool:
    """Put the ends of a range of integers at random places of a tensor, and repeat one integer.

    A repetition is put only where draws have one anyway, most likely: elsewhere, a problem may
    count on none.

    Args:
        values: What was drawn.
        low: The lowest integer.
        high: The highest integer plus one.

    Returns:
        Whether anything was put: not if there are too few elements, or less than two integers.
    """
    if high - low < 2 or not isinstance(values, torch.Tensor):
        return False
    if (count := values.numel()) < _LEAST_WITH_ENDS:
        return False
    places = _places(4, values)[torch.randperm(4, device=values.device)]
    if count * (count - 1) >= 2 * (high - low):
        _put(values, places[3:], values.reshape(-1)[places[2:3]])
    _put(values, places[:2], torch.tensor([low, high - 1], device=values.device))
    return True


def _bounds(func: Any, args: tuple[Any, ...], kwargs: Any) -> tuple[int, int]:
    """Return the bounds, the upper one excluded, that a function draws integers within.

    Both are 0 for other functions.
    """
    names = ("from", "to") if func is torch.Tensor.random_ else ("low", "high")
    if func is torch.randint:
        given = [value for value in args[:2] if isinstance(value, int)]
    elif func in (torch.randint_like, torch.Tensor.random_):
        given = [value for value in args[1:3] if isinstance(value, int)]
    else:
        return 0, 0
    low, high = (kwargs.get(name) for name in names)
    if high is None and given:
        high = given.pop()
    if low is None and given:
        low = given.pop()
    return int(low or 0), int(high or 0)


def _centre_and_scale(func: Any, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, Any, bool]:
    """Return centre and reach of a sampler's values, and whether they are never negative.

    The reach is None for other functions.
    """

    def given(place: int, name: str, default: float) -> Any:
        return args[place] if len(args) > place else kwargs.get(name, default)

    if func in (torch.rand, torch.rand_like):
        return 0.5, 0.5, False
    if func in (torch.randn, torch.randn_like):
        return 0.0, 1.0, False
    if func is torch.Tensor.uniform_:
        low, high = given(1, "from", 0.0), given(2, "to", 1.0)
        return (low + high) / 2, (high - low) / 2, False
    if func is torch.Tensor.normal_:
        return given(1, "mean", 0.0), given(2, "std", 1.0), False
    if func is torch.normal:
        return given(0, "mean", 0.0), given(1, "std", 1.0), False
    if func is torch.Tensor.cauchy_:
        return given(1, "median", 0.0), given(2, "sigma", 1.0), False
    if func is torch.Tensor.exponential_:
        return 0.0, 2.0 / given(1, "lambd", 1.0), True  # six of seven values are smaller
    if func is torch.Tensor.log_normal_:
        return 0.0, math.exp(given(1, "mean", 1.0) + given(2, "std", 2.0)), True  # likewise
    return 0.0, None, False
