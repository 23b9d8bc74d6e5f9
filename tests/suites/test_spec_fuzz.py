"""Whatever a spec's JSON holds, what comes out is a spec or a usage error in one line."""

from __future__ import annotations

import ast
import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.suites.spec_suite import SpecSuite
from support.specs import INLINE, PRODUCT, SPEC, TRITON_SPEC, WHOLE, changed

TUNED = changed(SPEC, contract__tolerances={"atol": 1e-3, "rtol": 1e-2}, weight=2.0)
FORMS = [SPEC, TRITON_SPEC, PRODUCT, TUNED, WHOLE, INLINE]
JUNK = st.one_of(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats(),
    st.sampled_from(
        [10**400, -(10**30), 2**63, "\ud800", "\0", "a\nb", "é", "x" * 2000, "/etc/passwd"]
    ),
    st.sampled_from(
        ["../up", "rows", "self", "torch", "rows // 0", "ﬁ", "randn", "shape #1", "safetensors"]
    ),
    st.text(max_size=9),
    st.recursive(
        st.none() | st.integers(-2, 9) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=4,
    ),
)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value."""
    if isinstance(data, dict | list):
        for key, each in data.items() if isinstance(data, dict) else enumerate(data):
            yield (*path, key)
            yield from places(each, (*path, key))


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """Return a form of which a few values were replaced, added or left out."""
    whole = copy.deepcopy(draw(st.sampled_from(FORMS)))
    for _ in range(draw(st.integers(1, 3))):
        ways = list(places(whole))
        if not ways:
            break
        *outer, last = draw(st.sampled_from(ways))
        place = whole
        for key in outer:
            place = place[key]
        match draw(st.sampled_from(("replace", "replace", "remove", "add", "copy"))):
            case "replace":
                place[last] = draw(JUNK)
            case "remove":
                del place[last]
            case "add" if isinstance(place, dict):
                place[draw(st.text(max_size=5))] = draw(JUNK)
            case "add":
                place.append(draw(JUNK))
            case _:
                *outer, other = draw(st.sampled_from(ways))
                found = whole
                for key in (*outer, other):
                    try:
                        found = found[key]
                    except (KeyError, IndexError, TypeError):
                        break
                place[last] = copy.deepcopy(found)
    return whole


def read(data: Any) -> SpecSuite | None:
    """Return a spec that was read with all its modules, or None if it was refused."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELGYM_CACHE", f"{folder}/cache")
        path = Path(folder) / "spec.json"
        path.write_text(json.dumps(data))
        try:
            suite = SpecSuite(path)
            texts = [each.source for each in suite.problems()]
            texts.append(suite.kernel.source)
        except UsageError as error:
            assert len(str(error).splitlines()) == 1, str(error)
            return None
    for text in texts:
        ast.parse(text)
    return suite


@settings(max_examples=60, deadline=None)
@given(mutated())
def test_a_mutated_form_is_read_or_refused(data: Any) -> None:
    read(data)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(mutated())
def test_many_mutated_forms_are_read_or_refused(data: Any) -> None:
    read(data)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_as_it_is(form: Any) -> None:
    assert read(form) is not None


@pytest.mark.parametrize(
    "data",
    [
        {"io": 3},
        {"io": {"args": [3]}, "entry": "f"},
        changed(INLINE, io__args__0__tensor_spec=3),
        changed(INLINE, io__launch=3),
        changed(INLINE, io__args__0__tensor_spec__data__data_b64="é"),
        changed(WHOLE, workloads=[3]),
        changed(WHOLE, workloads__0__workload=3),
        changed(WHOLE, solution__spec__language=None),
        changed(WHOLE, solution__spec__language=[]),
        changed(WHOLE, definition__inputs__x__shape=3),
        changed(WHOLE, definition__inputs__x__dtype=3),
        changed(WHOLE, definition__axes=3),
        changed(WHOLE, hidden=3),
        changed(SPEC, weight=10**400),
        changed(SPEC, contract__axes={"ﬁ": "var"}),
        changed(SPEC, contract__axes__count={"type": "expr", "expression": "ﬁ"}),
        changed(SPEC, name="é"),
        changed(SPEC, source="\ud800"),
        changed(SPEC, contract__tolerances={"atol": -1.0, "rtol": 0.0}),
        changed(SPEC, contract__shapes__0__name="a\0"),
        changed(SPEC, launch={"flags": ["-O2\n"]}),
        changed(SPEC, reference={"problem": "spec.json"}),
    ],
)
def test_what_gave_a_traceback_is_refused(data: Any) -> None:
    assert read(data) is None
