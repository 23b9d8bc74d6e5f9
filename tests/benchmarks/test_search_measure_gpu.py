"""Whole spaces of Triton settings: what is measured, and the rows that a table has of it."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import multiprocessing
from pathlib import Path

import pytest

from benchmarks.search import measure_gpu
from benchmarks.search.measure_gpu import SPACES, columns_of, read_kept, rows_of, space_named
from benchmarks.search.table import Table, read_table, write_table
from kernelgym_train.mcgs.variant import state_key


@pytest.mark.parametrize("name", SPACES)
def test_space_has_at_least_500_settings_and_its_choices_are_told_apart(name: str) -> None:
    space, _ = space_named(name)
    columns = columns_of(space)
    assert len(columns) == len(space.knobs) == len(SPACES[name].choices)
    settings = 1
    for knob, texts in zip(space.knobs, columns.values(), strict=True):
        assert len({texts[choice] for choice in knob.choices}) == len(knob.choices)
        settings *= len(knob.choices)
    assert settings >= 500


def test_start_has_the_number_that_its_text_says() -> None:
    columns = columns_of(space_named("softmax_triton")[0])
    assert columns["BLOCK"][""] == "128" and columns["BLOCK"]["BLOCK=4096"] == "4096"
    assert columns["num_warps"][""] == "4" and columns["single_pass_row"][""] == "-"


def test_settings_of_one_program_have_one_time_and_unmade_ones_no_row(tmp_path: Path) -> None:
    space, _ = space_named("matmul_triton")
    settings = list(itertools.product(*(knob.choices for knob in space.knobs)))[:4]
    found = [("k", [2.0, 1.0], ""), ("k", [2.0, 1.0], ""), ("w", [], "wrong: x"), ("", [], "no")]
    lines = [
        json.dumps({"config": config, "key": key, "times": times, "failure": failure})
        for config, (key, times, failure) in zip(settings, found, strict=True)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    rows = rows_of(space, read_kept(tmp_path / "t.jsonl"))
    assert list(rows.values()) == [2.0, 2.0, None]
    columns = {name: tuple(texts.values()) for name, texts in columns_of(space).items()}
    write_table(Table("t", columns, rows), tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv").times_ms == rows


@pytest.mark.slow
def test_setting_is_compiled_without_a_gpu(tmp_path: Path) -> None:
    """In a process of its own, whose Triton then compiles and launches nothing."""
    space, proposer = space_named("softmax_triton")
    config = tuple(knob.choices[-1] for knob in space.knobs)
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), measure_gpu.compile_for, (90,)
    ) as pool:
        made, key, source, failure = pool.submit(
            measure_gpu.build, "softmax_triton", config
        ).result()
    values = dict(zip((knob.name for knob in space.knobs), config, strict=True))
    assert made == config and key == state_key(proposer.tuned(space, values).variant)
    assert failure == "" and "triton.jit" in source
