"""nvcc's stages run side by side, and say and leave what nvcc itself would."""

import subprocess
import sys

import pytest

from kernelgym.judge.compiling import nvcc_stages
from kernelgym.judge.compiling.nvcc_stages import read_stages

DRY_RUN = """\
#$ _SPACE_=
#$ TOP={home}
#$ PATH={home}/tools:/usr/bin:/bin
#$ INCLUDES="-I{home}/include"
#$ cc -E "unit.cu" -o "{home}/unit.cpp4.ii"
#$ cudafe++ --gen_c_file_name "{home}/unit.cudafe1.cpp" --stub_file_name "unit.cudafe1.stub.c" \
--gen_module_id_file --module_id_file_name "{home}/unit.module_id" "{home}/unit.cpp4.ii"
#$ cc -D__CUDA_ARCH__=900 -E "unit.cu" -o "{home}/unit.cpp1.ii"
#$ "$TOP/tools/cicc" --module_id_file_name "{home}/unit.module_id" \
--gen_c_file_name "{home}/unit.cudafe1.c" "{home}/unit.cpp1.ii" -o "{home}/unit.ptx"
#$ ptxas "{home}/unit.ptx" -o "{home}/unit.cubin"
#$ fatbinary --embedded-fatbin="{home}/unit.fatbin.c"
#$ rm {home}/unit.fatbin
#$ cc -c -x c++ "{home}/unit.cudafe1.cpp" -o "kernel.o"
"""


@pytest.fixture
def toolkit(tmp_path):
    """A folder whose tools tell what they are; a test may give each a script of its own."""
    home = tmp_path / "toolkit"
    (home / "tools").mkdir(parents=True)
    (home / "dryrun").write_text(DRY_RUN.format(home=home))
    _tool(
        home, "nvcc", f'[ "$1" = --dryrun ] && {{ cat {home}/dryrun >&2; exit; }}; echo nvcc "$@"'
    )
    for name in ("cudafe++", "cicc", "ptxas", "fatbinary"):
        _tool(home, name, f"echo {name}")
    _tool(
        home, "cc", 'case "$*" in *ARCH*) echo cc device;; *-E*) echo cc host;; *) echo cc;; esac'
    )
    (tmp_path / "unit.cu").write_text("int x;")
    return home


def _tool(home, name, script):
    path = home / "tools" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _run(home):
    command = [sys.executable, "-I", "-S", nvcc_stages.__file__]
    command += [str(home / "tools/nvcc"), "-c", "unit.cu", "-o", "kernel.o"]
    answer = subprocess.run(command, cwd=home.parent, capture_output=True, text=True, timeout=60)
    assert not answer.stderr
    return answer.stdout.splitlines(), answer.returncode


INORDER = ["cc host", "cudafe++", "cc device", "cicc", "ptxas", "fatbinary", "cc"]


def test_every_stage_runs_and_is_heard_in_nvcc_s_order(toolkit):
    assert _run(toolkit) == (INORDER, 0)


def test_host_and_device_run_side_by_side(toolkit):
    # Either waits until the other has begun: one after the other they would wait for ever.
    for name, other in (("cudafe++", "cicc"), ("cicc", "cudafe++")):
        mark = f"{toolkit}/begun-"
        wait = f"while [ ! -e {mark}{other} ]; do sleep 0.01; done"
        _tool(toolkit, name, f"touch {mark}{name}; {wait}; echo {name}")
    assert _run(toolkit) == (INORDER, 0)


def test_both_know_the_unit_by_one_name(toolkit):
    for name in ("cudafe++", "cicc"):
        _tool(
            toolkit,
            name,
            f'case "$*" in *--gen_module*) exit 9;; esac; cat {toolkit}/unit.module_id',
        )
    (first, *others), status = _run(toolkit)
    assert status == 0
    names = [line for line in (first, *others) if "_unit_" in line]
    said = "".join(names)
    assert said.count("_unit_") == 2
    (toolkit.parent / "unit.cu").write_text("int y;")
    other = "".join(line for line in _run(toolkit)[0] if "_unit_" in line)
    assert other[:10] != said[:10]


def test_what_the_host_s_front_end_finds_is_said_once(toolkit):
    _tool(toolkit, "cudafe++", 'echo "kernel.cu(3): error: no"; exit 2')
    _tool(toolkit, "cicc", 'echo "kernel.cu(3): error: no"; exit 2')
    assert _run(toolkit) == (["cc host", "kernel.cu(3): error: no"], 2)


def test_a_device_compiler_that_runs_is_ended(toolkit):
    _tool(toolkit, "cudafe++", f"while [ ! -e {toolkit}/begun ]; do sleep 0.01; done; exit 2")
    _tool(toolkit, "cicc", f"touch {toolkit}/begun; exec sleep 600")
    assert _run(toolkit) == (["cc host"], 2)  # within the test's time


def test_the_device_s_errors_end_it_too(toolkit):
    _tool(toolkit, "ptxas", 'echo "ptxas error: too much"; exit 255')
    assert _run(toolkit) == ([*INORDER[:4], "ptxas error: too much"], 255)
    _tool(toolkit, "ptxas", "kill -9 $$")
    said, status = _run(toolkit)
    assert said[-1] == "nvcc error   : 'ptxas' died due to signal 9" and status == 137


def test_the_host_s_compiler_may_fail(toolkit):
    _tool(toolkit, "cc", 'case "$*" in *-E*) ;; *) echo "kernel.cu:3: error: no"; exit 1;; esac')
    assert _run(toolkit) == ([*INORDER[1:2], *INORDER[3:6], "kernel.cu:3: error: no"], 1)


NVCC_ITSELF = (["nvcc -c unit.cu -o kernel.o"], 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#$ cudafe++", "#$ other"),
        ("--gen_module_id_file ", ""),
        ("#$ ptxas", "ptxas"),
        ('-c -x c++ "{home}/unit.cudafe1.cpp"', "-c unit.cpp"),
        ('cicc" --module_id_file_name "{home}/unit.module_id"', 'cicc"'),
        ("#$ fatbinary", '#$ cudafe++ --x "{home}/unit.cudafe1.cpp"\n#$ fatbinary'),
        (DRY_RUN, "nvcc fatal   : Unsupported gpu architecture 'compute_30'"),
    ],
)
def test_another_shape_is_left_to_nvcc(toolkit, old, new):
    assert old in DRY_RUN
    text = DRY_RUN.replace(old, new).format(home=toolkit)
    assert read_stages(text) is None
    (toolkit / "dryrun").write_text(text)
    assert _run(toolkit) == NVCC_ITSELF


def test_an_nvcc_that_refuses_says_so_itself(toolkit):
    _tool(toolkit, "nvcc", 'echo "nvcc fatal"; exit 1')
    assert _run(toolkit) == (["nvcc fatal"], 1)
