"""The worked examples, run for real: a prompt that teaches a broken kernel is worse than none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernelgym.languages import LANGUAGES
from kernelgym.testing import SAMPLE_BROKEN, SAMPLE_KERNELS, SAMPLE_PROBLEM

_CHECK = """
import importlib.util, json, sys, torch

def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

same = []
for number in range(int(sys.argv[2])):
    reference = load(f"{sys.argv[1]}/reference_{number}.py", f"reference_{number}")
    kernel = load(f"{sys.argv[1]}/kernel_{number}.py", f"kernel_{number}")
    torch.manual_seed(number)
    inputs, arguments = reference.get_inputs(), reference.get_init_inputs()
    torch.manual_seed(7)
    expected = reference.Model(*arguments)(*inputs)
    torch.manual_seed(7)
    found = kernel.ModelNew(*arguments)(*inputs)
    close = found.shape == expected.shape and torch.allclose(found, expected, 1e-5, 1e-6)
    same.append(bool(close))
print(json.dumps(same))
"""


def compare(folder: str, pairs: list[tuple[str, str]], interpret: bool) -> str:
    for number, (reference, kernel) in enumerate(pairs):
        for name, source in (("reference", reference), ("kernel", kernel)):
            with open(f"{folder}/{name}_{number}.py", "w", encoding="utf-8") as file:
                file.write(source)
    environment = os.environ | {"TORCH_EXTENSIONS_DIR": f"{folder}/build"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", _CHECK, folder, str(len(pairs))],
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.stdout.strip() or done.stderr


def pairs_of(language: str) -> list[tuple[str, str]]:
    return [
        *((example.reference, example.kernel) for example in LANGUAGES[language].examples),
        (SAMPLE_PROBLEM.source, SAMPLE_KERNELS[language].source),
        (SAMPLE_PROBLEM.source, SAMPLE_BROKEN[language].source),
    ]


@pytest.mark.slow
def test_triton_examples_are_right_and_the_broken_sample_is_wrong(tmp_path) -> None:
    assert compare(str(tmp_path), pairs_of("triton"), True) == "[true, true, true, false]"


@pytest.mark.slow
def test_cpp_examples_are_right_and_the_broken_sample_is_wrong(tmp_path) -> None:
    pairs = [
        # load_inline builds into a folder of that name, and reuses what is there.
        (reference, kernel.replace('name="sample', f'name="sample_{number}'))
        for number, (reference, kernel) in enumerate(pairs_of("cpp"))
    ]
    assert compare(str(tmp_path), pairs, False) == "[true, true, true, false]"
