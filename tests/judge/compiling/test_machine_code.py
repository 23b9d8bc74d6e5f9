"""Machine code: equal where programs are, and read without harm."""

import itertools
import struct
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.judge.compiling.cpp_compiler import find_compiler
from kernelgym.judge.compiling.machine_code import (
    NO_CODE,
    joined,
    machine_code,
    own_reports,
    ptxas_report,
    without_report,
)
from kernelgym.types import BuiltFunction
from kernelgym.verdict import MOST_FUNCTIONS

SCALE = """
static float helper(float value) { return __builtin_sqrtf(value) * 3.0f; }
void scale(float *data, long count) {
  for (long index = 0; index < count; index++) data[index] = helper(data[index]) + 0.5f;
}
long total(const long *data, long count) {
  long sum = 0;
  for (long index = 0; index < count; index++) sum += data[index];
  return sum;
}
"""


@pytest.fixture
def compiled(tmp_path):
    numbers = itertools.count()

    def build(text, *flags):
        number = next(numbers)
        unit, made = tmp_path / f"{number}/unit.cpp", tmp_path / f"{number}/unit.o"
        unit.parent.mkdir()
        unit.write_text(text)
        command = [find_compiler(), "-O2", "-fPIC", *flags, "-c", "unit.cpp", "-o", "unit.o"]
        subprocess.run(command, cwd=unit.parent, check=True)
        return made

    return build


def digests(path):
    return {function.name: function.digest for function in machine_code([path]).functions}


def test_comments_and_local_names_change_no_digest(compiled):
    other = SCALE.replace("index", "place_of_it").replace("sum", "acc").replace("value", "v")
    other = other.replace("void scale", "/* scales\n all */ void scale")
    first, second = machine_code([compiled(SCALE)]), machine_code([compiled(other, "-g")])
    assert first == second and len(first.digest) == 32
    assert {f.name for f in first.functions} == {"_Z5scalePfl", "_Z5totalPKll"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("index = 0; index < count; index++) data", "index = count - 1; index >= 0; index--) data"),
        ("3.0f", "5.0f"),  # a constant, beside the instructions
        ("__builtin_sqrtf", "__builtin_expf"),
        ("+ 0.5f", "- 0.5f"),
    ],
)
def test_another_loop_has_another_digest(compiled, before, after):
    assert before in SCALE
    first, second = compiled(SCALE), compiled(SCALE.replace(before, after))
    assert machine_code([first]).digest != machine_code([second]).digest
    assert digests(first)["_Z5scalePfl"] != digests(second)["_Z5scalePfl"]


def test_flags_that_change_code_change_digests(compiled):
    plain, fast = compiled(SCALE), compiled(SCALE, "-O3", "-ffast-math")
    assert machine_code([plain]).digest != machine_code([fast]).digest
    assert machine_code([plain]) == machine_code([compiled(SCALE, "-Wall", "-Wextra")])


def test_a_renamed_function_keeps_its_digest(compiled):
    one, other = compiled(SCALE), compiled(SCALE.replace("total", "of_all"))
    assert digests(one)["_Z5totalPKll"] == digests(other)["_Z6of_allPKll"]
    assert machine_code([one]).digest != machine_code([other]).digest  # Python calls it by name


def test_a_function_keeps_its_digest_among_others(compiled):
    more = "int before(int n) { return n * 7; }\n" + SCALE + "int after(int n) { return n / 3; }\n"
    one, other = digests(compiled(SCALE)), digests(compiled(more))
    assert one["_Z5totalPKll"] == other["_Z5totalPKll"]


def test_swapped_functions_differ(compiled):
    text = "int one(int n) { return n + 1; }\nint two(int n) { return n + 2; }\n"
    swapped = "int two(int n) { return n + 1; }\nint one(int n) { return n + 2; }\n"
    first, second = machine_code([compiled(text)]), machine_code([compiled(swapped)])
    assert first.digest != second.digest


def test_parts_of_a_function_count_as_it(compiled):
    text = """
    void each(float *data, long count, float by) {
      #pragma omp parallel for
      for (long i = 0; i < count; i++) data[i] = data[i] * by + 1.0f;
    }
    """
    first, second = (
        compiled(text, "-fopenmp"),
        compiled(text.replace("* by +", "* by -"), "-fopenmp"),
    )
    assert set(digests(first)) == {"_Z4eachPflf"}
    assert digests(first)["_Z4eachPflf"] != digests(second)["_Z4eachPflf"]


def test_code_made_by_the_linker_is_unknown(compiled):
    assert machine_code([compiled(SCALE, "-flto")]) == NO_CODE


def test_the_number_of_functions_is_bounded(compiled):
    many = "".join(f"int f{number}(int n) {{ return n + {number}; }}\n" for number in range(90))
    text = "namespace at { __attribute__((noinline)) int a(int n) { return n / 7; } }\n" + many
    functions = machine_code([compiled(text)]).functions
    assert len(functions) == MOST_FUNCTIONS
    assert not [each for each in functions if "2at" in each.name]  # of a library


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("object")
    (folder / "unit.cpp").write_text(SCALE)
    command = [find_compiler(), "-O2", "-c", "unit.cpp", "-o", "unit.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


@settings(max_examples=200, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=8),
    length=st.integers(0, 5000),
)
def test_a_damaged_file_is_read_without_harm(whole, edits, length):
    data = bytearray((whole / "unit.o").read_bytes())
    for place, value in edits:
        data[place % len(data)] = value
    damaged = whole / "damaged.o"
    damaged.write_bytes(bytes(data[: max(length, 0)] if length < 3000 else data))
    found = machine_code([damaged])
    assert len(found.functions) <= MOST_FUNCTIONS
    assert all(len(function.name) <= 200 for function in found.functions)


def test_sections_that_overlap_are_refused(whole):
    data = bytearray((whole / "unit.o").read_bytes())
    (start,) = struct.unpack_from("<Q", data, 40)
    count = struct.unpack_from("<H", data, 60)[0]
    for number in range(1, count):  # each section is the whole file
        struct.pack_into("<QQ", data, start + 64 * number + 24, 0, len(data))
    (whole / "large.o").write_bytes(bytes(data))
    assert machine_code([whole / "large.o"]) == NO_CODE


def test_sections_beyond_the_file_are_refused(whole):
    data = bytearray((whole / "unit.o").read_bytes())
    struct.pack_into("<Q", data, 40, 2**64 - 64)
    (whole / "far.o").write_bytes(bytes(data))
    assert machine_code([whole / "far.o"]) == NO_CODE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("alignas(64) float kept[64];", "alignas(4096) float kept[64];"),
        ('asm(".comm kept,40,32");', 'asm(".comm kept,4000,32");'),
        ('asm(".comm kept,40,32");', 'asm(".comm other,40,32");'),
    ],
)
def test_places_of_data_count(compiled, one, other):
    made = [machine_code([compiled(SCALE + text)]) for text in (one, other)]
    assert made[0].digest and made[1].digest and made[0].digest != made[1].digest


def test_an_overlong_name_is_refused(compiled):
    name = "x" * 5000
    text = f'asm(".data\\n.globl {name}\\n{name}: .quad {name}\\n.text");'
    assert machine_code([compiled(SCALE + text)]) == NO_CODE


def test_references_shared_by_functions_are_bounded(compiled):
    """Each of 60 functions holds the same 50,000 references: 3 million lines to format."""
    starts = "".join(f".type f{n},@function\\nf{n}: .size f{n},8\\n" for n in range(60))
    references = ".rept 50000\\n.reloc here, R_X86_64_NONE, away\\n.endr\\n"
    text = f'asm(".text\\n{starts}here: .quad 0\\n{references}");'
    assert machine_code([compiled(SCALE + text)]) == NO_CODE


def test_a_link_is_not_followed(whole):
    (whole / "link.o").symlink_to(whole / "unit.o")
    assert machine_code([whole / "link.o"]) == NO_CODE
    assert machine_code([whole / "unit.o"]) != NO_CODE


def test_two_builds_are_known_together_or_not(whole):
    code = machine_code([whole / "unit.o"])
    both = machine_code([whole / "unit.o", whole / "unit.o"])
    assert both == joined(code, code) and both.digest != code.digest
    assert not joined(code, NO_CODE).digest


REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3addPfS_' for 'sm_90'
ptxas info    : Function properties for _Z3addPfS_
    0 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 4096 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function '_Z3mulPf' for 'sm_90'
ptxas info    : Function properties for _Z3mulPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]
unit.cu(3): warning #177-D: variable "n" was declared but never referenced
"""


def test_resources_are_read_from_the_report():
    assert ptxas_report(REPORT) == (
        BuiltFunction("_Z3addPfS_", "", 32, 12, 4096),
        BuiltFunction("_Z3mulPf", "", 8, 0, 0),
    )
    assert without_report(REPORT).startswith("unit.cu(3): warning")


def test_reports_on_other_files_are_left_out():
    own = "kernel.cpp:7:3: optimized: loop vectorized using 32 byte vectors\n"
    warning = "/usr/include/x.h:2:1: warning: unused\n"
    told = f"{own}/usr/include/c++/12/sstream:838:9: optimized: block vectorized\n{warning}"
    assert own_reports(told) == own + warning


@given(st.text(max_size=300) | st.lists(st.sampled_from(REPORT.splitlines())).map("\n".join))
def test_any_log_gives_a_report(text):
    for function in ptxas_report(text):
        assert function.name and len(function.name) <= 200
