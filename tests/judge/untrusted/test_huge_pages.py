"""Memory that was laid out in huge pages holds what it held, and so do children's copies of it."""

import mmap
import os
import random

from kernelgym.judge.untrusted.huge_pages import lay_out

SIZE = 8 << 20


def test_memory_keeps_its_values_and_children_write_to_copies():
    expected = random.Random(7).randbytes(SIZE)
    memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = expected
    lay_out()
    assert memory[:] == expected
    child = os.fork()
    if child == 0:
        memory[SIZE // 2] = expected[SIZE // 2] ^ 255
        os._exit(memory[: SIZE // 2] != expected[: SIZE // 2])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert memory[:] == expected
