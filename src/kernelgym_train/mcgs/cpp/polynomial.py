"""`Polynomial`: whole-number polynomials over names, for subscripts and loop bounds.

Contract: equal polynomials compare equal however they were written. Pure.

Division and overflow are not modelled: a subscript that overflows is undefined before and after a
move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

_Monomial = tuple[str, ...]
# Thirty lines `int b = a * a;` of a kernel make a product of 2^30 names, which takes all memory.
_MOST_TERMS, _MOST_FACTORS, _MOST_BITS = 1000, 64, 256


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of products of names, with whole coefficients."""

    terms: frozenset[tuple[_Monomial, int]]
    """Set of (names in sorted order, coefficient of their product); no coefficient is 0."""

    @classmethod
    def of(cls, terms: Iterable[tuple[Iterable[str], int]]) -> Self:
        """Return the polynomial with the given coefficient for each product of names."""
        added: Counter[_Monomial] = Counter()
        for names, coefficient in terms:
            added[tuple(sorted(names))] += coefficient
        return cls(frozenset((names, value) for names, value in added.items() if value))

    @classmethod
    def number(cls, value: int) -> Self:
        """Return the polynomial of a constant."""
        return cls.of([((), value)])

    @classmethod
    def name(cls, name: str) -> Self:
        """Return the polynomial of one name."""
        return cls.of([((name,), 1)])

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial.of([*self.terms, *other.terms])

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * Polynomial.number(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        return Polynomial.of(
            ((*names, *others), value * factor)
            for names, value in self.terms
            for others, factor in other.terms
        )

    def times(self, other: Polynomial) -> Polynomial | None:
        """Return the product; None if it is too large to compute with."""
        if len(self.terms) * len(other.terms) > _MOST_TERMS:
            return None
        made = self * other
        is_large = any(
            len(names) > _MOST_FACTORS or value.bit_length() > _MOST_BITS
            for names, value in made.terms
        )
        return None if is_large else made

    @property
    def names(self) -> frozenset[str]:
        """Names that occur in the polynomial."""
        return frozenset(name for names, _ in self.terms for name in names)

    @property
    def constant(self) -> int | None:
        """Value of the polynomial if it has no names; None otherwise."""
        if not self.terms:
            return 0
        values = dict(self.terms)
        return values[()] if set(values) == {()} else None

    def coefficient(self, name: str) -> Polynomial | None:
        """Return the factor of a name in the polynomial; None if the name has a higher power."""
        if any(names.count(name) > 1 for names, _ in self.terms):
            return None
        return Polynomial.of(
            ([other for other in names if other != name], value)
            for names, value in self.terms
            if name in names
        )

    def without(self, chosen: Iterable[str]) -> Polynomial:
        """Return the polynomial's terms that contain none of the names."""
        given = frozenset(chosen)
        return Polynomial.of(term for term in self.terms if not given & set(term[0]))

    def replaced(self, values: Mapping[str, Polynomial | None]) -> Polynomial | None:
        """Return the polynomial in which names are replaced by values.

        None if a name's value is None, or the polynomial is too large to compute with.
        """
        total = Polynomial.number(0)
        for names, coefficient in self.terms:
            product: Polynomial | None = Polynomial.number(coefficient)
            for name in names:
                value = values.get(name, Polynomial.name(name))
                if product is None or value is None:
                    return None
                product = product.times(value)
            if product is None:
                return None
            total = total + product
        return total
