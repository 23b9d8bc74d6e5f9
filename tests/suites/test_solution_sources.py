"""Sources of a solution, joined into one text."""

from __future__ import annotations

import pytest

from kernelgym.errors import UsageError
from kernelgym.suites.solution_sources import joined


def test_headers_stand_where_they_are_included_once() -> None:
    sources = {
        "src/kernel.h": "#pragma once\nvoid f();",
        "src/kernel.cu": '#include "kernel.h"\n#include <cmath>\nvoid f() {}',
        "main.cpp": '#include "src/kernel.h"\nvoid run() { f(); }\n'
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { if (true) { m.def("run", &run); } }\n',
    }
    text = joined(sources, "main.cpp")
    assert text.count("void f();") == 1 and "PYBIND11" not in text and "#pragma once" not in text
    assert text.index("void f();") < text.index("void f() {}") < text.index("void run()")
    assert "#include <cmath>" in text and text.count("{") == text.count("}")


def test_python_sources_stand_before_what_imports_them() -> None:
    sources = {
        "main.py": "import torch\nfrom .lib.kernel import (\n    scale,\n)\n\n\ndef run(x):\n"
        "    return scale(x)\n",
        "lib/kernel.py": "from lib.sizes import SIZE\n\n\ndef scale(x):\n    return x * SIZE\n",
        "lib/sizes.py": "SIZE = 3\n",
    }
    names: dict[str, object] = {}
    text = joined(sources, "main.py").replace("import torch\n", "")
    exec(compile(text, "joined", "exec"), names)
    run = names["run"]
    assert callable(run) and run(2) == 6


@pytest.mark.parametrize(
    ("sources", "entry", "why"),
    [
        ({}, "main.cpp", "missing; 'main.cpp' is not among them"),
        ({"a.cu": '#include "b.cu"', "b.cu": ""}, "a.cu", "compiled by itself"),
        ({"a.cpp": "PYBIND11_MODULE(x, m) { {"}, "a.cpp", "has no end"),
        ({"a.py": "import b", "b.py": ""}, "a.py", "write 'from b import NAMES'"),
        ({"a.py": "from b import *", "b.py": ""}, "a.py", "name what it imports"),
        ({"a.py": "from b import x", "b.py": "from a import y"}, "a.py", "import each other"),
        ({"a.py": "def ("}, "a.py", "not valid Python"),
    ],
)
def test_sources_that_cannot_be_joined_are_refused(
    sources: dict[str, str], entry: str, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        joined(sources, entry)
