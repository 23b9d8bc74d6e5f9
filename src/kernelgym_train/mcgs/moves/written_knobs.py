"""`written_knob`: another of the values that the writer of a kernel lists beside a constant.

Such a line is ``constexpr int TILE = 32;  // knob: 16, 32, 64`` in C++, or ``BLOCK = 128  # knob:
64, 128, 256`` in Python. A value that is not listed is never proposed. Whether a value changes the
order of sums is not known, so the risk is ``reassociates``. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator

from kernelgym.languages import LANGUAGES
from kernelgym_train.mcgs.moves.definition import Realisation, SearchMove
from kernelgym_train.mcgs.variant import Variant

_KNOB = re.compile(
    r"^[ \t]*(?:(?:#define|static|inline|constexpr|const|unsigned|int|long|size_t|int32_t|int64_t|"
    r"auto)[ \t]+)*(\w+)(?:[ \t]*:[ \t]*[\w.]+)?(?:[ \t]*=[ \t]*|[ \t]+)(-?\d{1,18})[ \t]*"
    r"(?:;[ \t]*)?(?://|#)[ \t]*knob:[ \t]*(-?\d{1,18}(?:[ \t]*,[ \t]*-?\d{1,18})*)[ \t]*$",
    re.MULTILINE,
)
_MOST_CHOICES = 16
_MOST_KNOBS = 64  # of a kernel; each choice holds the whole text, so that 800 took 900 MB


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield each other value of each constant that has one line and a list of values."""
    found = list(_KNOB.finditer(variant.source))
    lines = Counter(each[1] for each in found)
    for each in found[:_MOST_KNOBS]:
        if lines[each[1]] > 1:
            continue  # two constants of one name: which is meant is not known
        start, end = each.span(2)
        values = dict.fromkeys(int(value) for value in each[3].split(","))
        for value in list(values)[:_MOST_CHOICES]:
            if value != int(each[2]):
                text = f"{variant.source[:start]}{value}{variant.source[end:]}"
                changed = dataclasses.replace(variant, source=text)
                yield Realisation(each[1], str(value), changed, "reassociates")


WRITTEN_KNOB = SearchMove(
    "written_knob",
    "reassociates",
    0,
    2.0,
    "Take another of the values that the kernel's text lists beside a constant.",
    _realise,
    tuple(LANGUAGES),
)
