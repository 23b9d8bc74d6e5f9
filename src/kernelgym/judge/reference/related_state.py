"""Drawn parameters and buffers that are tied to others, or by a relation among their own values.

A teacher that starts as its student's copy, a length that starts as its direction's norm, a weight
that starts orthogonal or with normalised rows: such state differs under every seed, and a kernel
that relies on the relation is right under every seed, too. The judge replaces this state as it
replaces what is not drawn (`kernelgym.judge.reference.fixed_state`), which breaks the relation.

Found are, by samples of at most 64 rows and columns:

- multiples of an earlier tensor or of its transpose, and of a tensor's rows' or columns' norms,
  sums or largest magnitudes;
- rows, columns or a small whole with the same norm or the same sum under every seed;
- two rows or columns that are equal, rows or columns that are orthogonal to each other, and
  symmetric matrices;
- values among drawn ones of a row that are the same under every seed, such as the zeros around
  blocks on a diagonal, if they are 2 % of the tensor or more;
- equal values at the same places under every seed, such as constant diagonals;
- matrices of a rank below 64, or whose singular values fall much faster than those of the same
  values in another order: smooth ones, or with rows of very different sizes.

Not found: other functions of other tensors, other relations of parts of a tensor, and whole rows
that are the same under every seed, as that of an embedding's padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from kernelgym.judge.tensors import same_bytes

_LEAST_ELEMENTS = 4  # fewer numbers may be related by chance
_COMPARED_ROWS, _COMPARED_COLUMNS = 64, 256
_SMALL_ELEMENTS = 1 << 20
_EXACT = 1e-6
_FIXED_SHARE, _EQUAL_SHARE = 0.02, 0.5
_SINGULAR = 1e-5
_LEAST_SPECTRUM, _AS_EVEN = 16, 0.8
_Pair = tuple[torch.Tensor, torch.Tensor]  # as constructed from two sets of random numbers
_Sample = tuple[torch.Tensor, torch.Tensor, float]  # parts of them, and the last place of a value
_Statistics = Callable[[torch.Tensor], torch.Tensor]


def related_state(model: torch.nn.Module, other: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the floating-point parameters and buffers that are drawn, but not freely.

    Args:
        model: The model.
        other: The model constructed from other random numbers, on any device.
    """
    drawn = _drawn(model, other)
    found: dict[str, torch.Tensor] = {}
    earlier: list[_Pair] = []
    for name, (value, again) in drawn.items():
        pair = _as_rows(value), _as_rows(again)
        larger = [_as_rows(each) for each, _ in drawn.values() if each.numel() > value.numel()]
        others = [_as_rows(each) for _, each in drawn.values() if each.numel() > value.numel()]
        if (
            _is_bound(pair)
            or any(_is_copy(pair, each) for each in earlier)
            or any(_is_statistic(pair, each) for each in zip(larger, others, strict=True))
        ):
            found[name] = value
        earlier.append(pair)
    return found


def _drawn(model: torch.nn.Module, other: torch.nn.Module) -> dict[str, _Pair]:
    """Return the values that differ between two constructions, each tensor under its first name."""
    found: dict[str, _Pair] = {}
    seen: set[int] = set()
    others = other.state_dict()
    for name, value in model.state_dict(keep_vars=True).items():
        again = others.get(name)
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or again is None:
            continue
        if id(value) in seen or again.shape != value.shape or not value.numel():
            continue
        seen.add(id(value))
        pair = value.detach(), again.to(value.device).detach()
        if not same_bytes(*pair) and bool(pair[0].isfinite().all()):
            found[name] = pair
    return found


def _as_rows(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a matrix: one row per index of its first axis; a vector as one row."""
    return value.reshape(value.shape[0], -1) if value.dim() > 1 else value.reshape(1, -1)


def _is_bound(pair: _Pair) -> bool:
    """Return True if a relation among a tensor's values holds under both seeds."""
    if pair[0].numel() < _LEAST_ELEMENTS:
        return False
    eps = torch.finfo(pair[0].dtype).eps
    if any(all(map(_repeats, whole)) for whole in (pair, (pair[0].t(), pair[1].t()))):
        return True
    if _is_patterned(pair):
        return True
    for one, other in _views(pair):
        # Half types round a norm itself; roundings of the many elements of a whole cancel.
        exact = max(_EXACT, 2 * eps if len(one) > 1 else eps / one.shape[1] ** 0.5)
        if all(_is_symmetric(rows) or _are_orthogonal(rows, exact) for rows in (one, other)):
            return True
        if _have_same_norms(one, other, exact) or _have_same_sums(one, other, exact):
            return True
    return False


def _is_patterned(pair: _Pair) -> bool:
    """Return True if rows hold values that are not drawn, or that follow from others by place."""
    return any(
        _is_partly_fixed(*some) or _has_equal_values(*some) or _is_flat(*some)
        for some in _samples(pair)
    )


def _samples(pair: _Pair) -> Iterator[_Sample]:
    """Yield neighbouring rows and columns of tensors, and some that lie apart, on the CPU.

    Rows that are the same in both constructions are left out.
    """
    rows, columns = (-(-size // _COMPARED_ROWS) for size in pair[0].shape)
    for step, other in {(1, 1), (rows, columns)}:
        one, two = (
            each[::step, ::other][:_COMPARED_ROWS, :_COMPARED_COLUMNS].cpu().double()
            for each in pair
        )
        drawn = ~(one == two).all(1)
        if bool(drawn.any()):
            eps = torch.finfo(pair[0].dtype).eps
            yield one[drawn], two[drawn], eps


def _is_partly_fixed(one: torch.Tensor, other: torch.Tensor, eps: float) -> bool:
    """Return True if a share of the values is the same in both constructions."""
    return float((one == other).double().mean()) > _FIXED_SHARE


def _has_equal_values(one: torch.Tensor, other: torch.Tensor, eps: float) -> bool:
    """Return True if most values stand at several places, the same ones in both constructions."""
    some, more = (each[:, :_COMPARED_ROWS].reshape(-1) for each in (one, other))
    both = some + 0.7548776662466927 * more  # equal for equal pairs, and for others by chance
    return len(torch.unique(both)) < (1 - _EQUAL_SHARE) * len(both)


def _is_flat(one: torch.Tensor, other: torch.Tensor, eps: float) -> bool:
    """Return True if a few rows or columns of both constructions determine most of the others."""
    least, most = sorted(one.shape)
    exact = max(_SINGULAR, 4 * eps)
    # Nearly dependent rows occur by chance among few columns, which half types cannot tell apart.
    if least < _LEAST_ELEMENTS or (exact > _SINGULAR and most < 4 * least):
        return False
    sizes = [_singular_values(each) for each in (one, other)]
    if all(bool(each[0] <= exact * each[-1]) for each in sizes):
        return True
    if least < _LEAST_SPECTRUM or max(map(_evenness, sizes)) > _AS_EVEN:
        return False
    # The order of freely drawn values tells nothing: with another one the matrix is as even.
    order = torch.randperm(one.numel(), generator=torch.Generator().manual_seed(0))
    usual = _evenness(_singular_values(one.reshape(-1)[order].reshape(one.shape)))
    return max(map(_evenness, sizes)) < _AS_EVEN * usual


def _singular_values(rows: torch.Tensor) -> torch.Tensor:
    """Return a matrix's singular values, in ascending order."""
    narrow = rows if rows.shape[0] <= rows.shape[1] else rows.t()
    squares = torch.linalg.eigvalsh(narrow @ narrow.t())  # quicker than singular values
    sizes: torch.Tensor = squares.clamp_(min=0).sqrt_()
    return sizes


def _evenness(sizes: torch.Tensor) -> float:
    """Return 1 for equal singular values, and less the fewer of them hold most of the matrix."""
    return float(sizes.sum().square() / (len(sizes) * sizes.square().sum()))


def _views(pair: _Pair) -> Iterator[_Pair]:
    """Yield tensors as a whole if they are small, and some of their rows and columns."""
    if pair[0].numel() <= _SMALL_ELEMENTS:
        yield pair[0].reshape(1, -1), pair[1].reshape(1, -1)
    if min(pair[0].shape) > 1:
        yield pair[0][:_COMPARED_ROWS], pair[1][:_COMPARED_ROWS]
        yield pair[0][:, :_COMPARED_ROWS].t(), pair[1][:, :_COMPARED_ROWS].t()


def _repeats(rows: torch.Tensor) -> bool:
    """Return True if a row of several elements, not all zero, stands twice or more."""
    if rows.shape[0] < 2 or rows.shape[1] < _LEAST_ELEMENTS:
        return False
    some = rows[:, :: -(-rows.shape[1] // _COMPARED_ROWS)].double()
    weights = torch.linspace(1.0, 2.0, some.shape[1], dtype=torch.float64, device=rows.device)
    sums = (some * weights.sin_()).sum(1)  # equal for equal rows, and for others by chance
    return bool((sums[sums != 0].sort().values.diff() == 0).any())


def _is_symmetric(rows: torch.Tensor) -> bool:
    """Return True if some rows' first elements are symmetric, or their negatives."""
    count, length = rows.shape
    corner = rows[:, :count]
    turned = corner.t() if length >= count > 1 else corner[:0]
    return bool(turned.numel()) and (torch.equal(corner, turned) or torch.equal(corner, -turned))


def _are_orthogonal(rows: torch.Tensor, exact: float) -> bool:
    if not 1 < rows.shape[0] <= rows.shape[1]:
        return False
    products = rows.double() @ rows.double().t()
    lengths = products.diagonal().clone()
    products.fill_diagonal_(0.0)
    return bool((products.abs() <= 10 * exact * lengths.max()).all()) and bool(lengths.min() > 0)


def _norms(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)


def _sums(rows: torch.Tensor) -> torch.Tensor:
    return rows.sum(1, dtype=torch.float64)


def _largest(rows: torch.Tensor) -> torch.Tensor:
    return rows.abs().amax(1).double()


_STATISTICS: tuple[_Statistics, ...] = (_norms, _sums, _largest)


def _have_same_norms(one: torch.Tensor, other: torch.Tensor, exact: float) -> bool:
    """Return True if all rows' norms agree with those of another construction."""
    first, second = _norms(one), _norms(other)
    return bool(((first - second).abs() <= exact * torch.maximum(first, second)).all())


def _have_same_sums(one: torch.Tensor, other: torch.Tensor, exact: float) -> bool:
    """Return True if all rows' sums agree with those of another construction."""
    size = torch.maximum(_sums(one.abs()), _sums(other.abs()))
    return bool(((_sums(one) - _sums(other)).abs() <= exact * size).all())


def _is_copy(pair: _Pair, earlier: _Pair) -> bool:
    """Return True if a tensor is the same multiple of an earlier one, or of its transpose."""
    if pair[0].numel() != earlier[0].numel():
        return False
    if _is_multiple(pair, earlier):
        return True
    turned = earlier[0].t(), earlier[1].t()
    return turned[0].shape == pair[0].shape and _is_multiple(pair, turned)


def _is_statistic(pair: _Pair, larger: _Pair) -> bool:
    """Return True if a tensor is the same multiple of what one number a row, or column, gives."""
    size = pair[0].numel()
    some = pair[0].reshape(-1)[:_COMPARED_ROWS], pair[1].reshape(-1)[:_COMPARED_ROWS]
    for one, other in (
        (larger[0], larger[1]),
        (larger[0].t(), larger[1].t()),
        (larger[0].reshape(1, -1), larger[1].reshape(1, -1)),
    ):
        if size == one.shape[0] and (size > 1 or one.numel() <= _SMALL_ELEMENTS):
            for statistics in _STATISTICS:
                first, second = (statistics(rows[:_COMPARED_ROWS]) for rows in (one, other))
                if _is_multiple(some, (first, second)):
                    return True
    return False


def _is_multiple(pair: _Pair, given: _Pair) -> bool:
    """Return True if each tensor is the same multiple of the given one."""
    factors = []
    for value, base in zip(pair, given, strict=True):
        flat, like = value.reshape(-1), base.reshape(-1)
        for size in (min(flat.numel(), _COMPARED_ROWS), flat.numel()):  # most differ early
            some, other = flat[:size].double(), like[:size].double()
            place = int(other.abs().argmax())
            if not float(other[place]):
                return False
            factor = float(some[place] / other[place])
            off = (some - factor * other).abs().max()
            exact = max(_EXACT, torch.finfo(value.dtype).eps)
            if not factor or bool(off > 4 * exact * some.abs().max()):
                return False
        factors.append(factor)
    return abs(factors[0] - factors[1]) <= 4 * _EXACT * abs(factors[0])
