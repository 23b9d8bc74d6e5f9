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

    def replaced(self, values: Mapping[str, Polynomial]) -> Polynomial:
        """Return the polynomial in which names are replaced by values."""
        total = Polynomial.number(0)
        for names, coefficient in self.terms:
            product = Polynomial.number(coefficient)
            for name in names:
                product = product * values.get(name, Polynomial.name(name))
            total = total + product
        return total
