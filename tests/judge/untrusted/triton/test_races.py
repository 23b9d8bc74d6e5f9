"""Races between programs of one launch: an order that only the interpreter keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.untrusted.triton.races import DataRaceError, Races
from kernelgym.types import Status
from support.interpreted import ROW_SUM, row_sums

OWN = "v = tl.load(x + p * 33 + at, mask=at < 33, other=0.0)\ns = tl.sum(v, 0)\n"
RACES = {
    "last_program_reads_all": row_sums(
        OWN + "tl.store(work + p, s)\n"
        "if p == 39:\n    all = tl.load(work + at, mask=at < 40)\n"
        "    tl.store(out + at, all, mask=at < 40)"
    ),
    "next_program_reads": row_sums(
        OWN + "tl.store(work + p, s)\n"
        "if p > 0:\n    tl.store(out + p - 1, tl.load(work + p - 1))\n"
        "if p == 39:\n    tl.store(out + p, s)"
    ),
    "two_programs_add": row_sums(
        "half = p % 2\nrow = p // 2\ninside = (at % 2 == half) & (at < 33)\n"
        "v = tl.load(x + row * 33 + at, mask=inside, other=0.0)\n"
        "tl.store(out + row, tl.load(out + row) + tl.sum(v, 0))",
        programs="80",
    ),
    "last_store_wins": row_sums(
        OWN + "tl.store(out + at, 0.0, mask=(at == p + 1) & (p < 39))\ntl.store(out + p, s)"
    ),
}
RACES_IN_ANOTHER_ORDER = {
    "reads_before_it_is_written": row_sums(
        "tl.store(work + p, tl.load(work + p + 1, mask=p < 39, other=0.0) * 0.0)\n"
        + OWN
        + "tl.store(out + p, s)"
    ),
    "in_place_beside_its_neighbour": row_sums(
        OWN
        + "w = tl.load(work + p + 1, mask=p < 39, other=0.0)\n"
        + "tl.store(work + p, s)\ntl.store(out + p, s)"
    ),
}
DUMMY = row_sums(
    "half = p % 2\nrow = p // 2\ninside = (at % 2 == half) & (at < 33)\n"
    "tl.atomic_add(work + 63, 0.0)\n"
    "v = tl.load(x + row * 33 + at, mask=inside, other=0.0)\n"
    "tl.store(out + row, tl.load(out + row) + tl.sum(v, 0))",
    programs="80",
)
ORDERED = {
    "places_of_their_own": row_sums(OWN + "tl.store(out + p, s)"),
    "own_store_is_read_again": row_sums(
        OWN + "tl.store(work + p, s)\ntl.store(out + p, tl.load(work + p))"
    ),
    "atomic_add": row_sums(
        "half = p % 2\nrow = p // 2\ninside = (at % 2 == half) & (at < 33)\n"
        "v = tl.load(x + row * 33 + at, mask=inside, other=0.0)\n"
        "tl.atomic_add(out + row, tl.sum(v, 0))",
        programs="80",
    ),
    "last_program_counts": row_sums(
        OWN + "tl.store(work + p, s)\n"
        "done = tl.atomic_add(work + 63, 1.0)\n"
        "if done == 39.0:\n    all = tl.load(work + at, mask=at < 40)\n"
        "    tl.store(out + at, all, mask=at < 40)"
    ),
    "stores_again_after_the_count": row_sums(
        OWN + "tl.store(work + p, s)\n"
        "done = tl.atomic_add(work + 63, 1.0)\n"
        "tl.store(out + p, s)\n"
        "if done == 39.0:\n    tl.store(out + p, tl.load(work + p))\n"
        "    all = tl.load(work + at, mask=at < 40)\n"
        "    tl.store(out + p, tl.sum(tl.where(at == p, all, 0.0), 0))"
    ),
    "same_value_by_all": row_sums(OWN + "tl.store(work, 1.0)\ntl.store(out + p, s)"),
}


@pytest.mark.parametrize("name", RACES)
def test_order_of_programs_is_no_promise(as_gpu, name):
    verdict = as_gpu.evaluate(ROW_SUM, RACES[name])
    assert verdict.status is Status.RUNTIME_ERROR, verdict.message
    assert verdict.message.startswith("DataRaceError: program (") and "(line " in verdict.message


@pytest.mark.parametrize("name", RACES_IN_ANOTHER_ORDER)
def test_reading_before_another_program_writes_is_a_race(as_gpu, name):
    """The interpreter's order hides it; later launches run in other ones."""
    verdict = as_gpu.evaluate(ROW_SUM, RACES_IN_ANOTHER_ORDER[name])
    assert verdict.message.startswith("DataRaceError: program ("), verdict.message


def test_atomic_operation_before_the_store_alone_orders_nothing(as_gpu):
    assert as_gpu.evaluate(ROW_SUM, DUMMY).message.startswith("DataRaceError: program (")


def test_race_names_programs_and_argument(as_gpu):
    message = as_gpu.evaluate(ROW_SUM, RACES["next_program_reads"]).message
    assert "program (1, 0, 0) loads what program (0, 0, 0)" in message and "'work'" in message


@pytest.mark.parametrize("name", ORDERED)
def test_programs_that_do_not_meet_pass(as_gpu, name):
    verdict = as_gpu.evaluate(ROW_SUM, ORDERED[name])
    assert verdict.correct, verdict.message


def test_second_launch_reads_what_the_first_stored(as_gpu):
    kernel = row_sums(OWN + "tl.store(out + p, s)")
    both = kernel.source.replace(
        "        return out\n",
        "        again = torch.empty(40)\n        copied[(40,)](out, again)\n"
        "        return again\n",
    ).replace(
        "\n\nclass ModelNew",
        "\n\n@triton.jit\ndef copied(a, b):\n    p = tl.program_id(0)\n"
        "    tl.store(b + p, tl.load(a + p))\n\n\nclass ModelNew",
    )
    assert as_gpu.evaluate(ROW_SUM, type(kernel)(both, "triton")).correct


class _Program:
    """Stands for the interpreter's builder."""

    grid_dim = (4, 1, 1)

    def __init__(self, number):
        self.grid_idx = (number, 0, 0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from(["load", "store", "atomic"]), st.integers(0, 5)
        ),
        max_size=12,
    )
)
def test_race_is_found_as_by_a_table(accesses):
    """Programs run one after the other; the table is that of the definition, place by place."""
    memory = np.arange(6, dtype=np.float32)
    start = memory.__array_interface__["data"][0]
    races, owners, ordered, published = Races(), {}, set(), set()
    races.begin(None)
    for program, kind, place in sorted(accesses, key=lambda access: access[0]):
        if kind == "atomic":
            ordered.add(program)
            published |= {at for at, owner in owners.items() if owner == program}
        foreign = owners.get(place, program) != program
        safe = program in ordered and place in published
        expected = kind != "atomic" and foreign and not safe
        where = np.array([start + 4 * place], dtype=np.uint64)
        value = np.array([100.0 + program], dtype=np.float32)
        span = start, start + memory.nbytes, "m"
        try:
            races.access(
                kind, _Program(program), where, span, 4, value if kind == "store" else None
            )
            raced = False
        except DataRaceError:
            raced = True
        assert raced is expected
        if raced:
            return
        if kind != "load":
            memory[place] = value[0]
            owners[place] = program
            published = published - {place} if kind == "store" else published | {place}
