"""Include names: read in linear time, and never opened as paths."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compiling import include_names
from kernelgym.judge.compiling.include_names import Headers, included_names
from kernelgym.judge.compiling.thin_headers import thin_headers

PLAIN = "torch::Tensor f(torch::Tensor x) { return torch::relu(x); }"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.h").write_text("#include <b.h>\n")
    (tmp_path / "b.h").write_text("int b;\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#include <a.h>", {"a.h"}),
        (' \t# include\t"sub/a.h" // x', {"sub/a.h"}),
        ("int a;\n#include<a.h>\n#include <b.h>", {"a.h", "b.h"}),
        ("#\ninclude <a.h>", set()),
        ("#include\n<a.h>", set()),
        ("#define X\n#include X", set()),
        ("int a; #include <a.h>", set()),
    ],
)
def test_included_names_are_those_of_directives(text, names):
    assert included_names(text) == names


@given(st.text(alphabet='\n\t #<include>"a', max_size=60))
def test_include_match_begins_at_its_own_line(text):
    # A match that began on an earlier line would try every line of blanks again: quadratic time.
    for match in include_names._INCLUDE.finditer(text):
        assert "\n" not in match[0] and text[: match.start()][-1:] in ("", "\n")


def test_header_is_found_by_its_listed_name(folder):
    where, text = Headers((folder,)).find("sub/a.h")
    assert (where, text) == (folder, "#include <b.h>\n")


@pytest.mark.parametrize(
    "name",
    [
        *("/dev/zero", "/proc/self/mem", "../b.h", "sub/../b.h", "./b.h", "sub", "", "."),
        *("a\0b.h", "\ud800.h", "x" * 100_000, "/etc/passwd"),
    ],
)
def test_name_that_is_not_listed_is_unknown(folder, name):
    assert Headers((folder,)).find(name) is None


def test_absolute_name_of_a_listed_file_is_unknown(folder):
    assert Headers((folder,)).find(str(folder / "b.h")) is None


def test_pipe_and_large_file_are_not_read(folder):
    os.mkfifo(folder / "pipe.h")
    with open(folder / "large.h", "wb") as file:
        file.truncate((1 << 20) + 1)
    headers = Headers((folder,))
    assert headers.find("pipe.h") is None and headers.find("large.h") is None


def test_link_is_resolved_when_listed(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "real.h").write_text("int real;\n")
    (folder / "linked.h").symlink_to(other / "real.h")
    (folder / "device.h").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder)
    headers = Headers((folder,))
    assert headers.find("linked.h") == (folder, "int real;\n")
    assert headers.find("device.h") is None and headers.find("loop/b.h") is None


def test_link_put_in_after_the_listing_is_not_followed(folder):
    headers = Headers((folder,))
    assert headers.find("b.h")
    (folder / "b.h").unlink()
    (folder / "b.h").symlink_to("/dev/zero")
    assert headers.find("b.h") is None


def test_deep_chain_of_includes_reads_each_file_once(tmp_path, monkeypatch):
    for number in range(300):
        (tmp_path / f"{number}.h").write_text(f"#include <{number + 1}.h>\n#include <0.h>\n")
    read = []
    real = include_names._read
    monkeypatch.setattr(include_names, "_read", lambda path: read.append(path) or real(path))
    thin_headers((PLAIN + "\n#include <0.h>",), tmp_path)
    own = [path for path in read if path.startswith(str(tmp_path))]
    assert len(own) == len(set(own)) == 300


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../" * 30 + "dev/zero", "/proc/self/mem", "a\0b", "\ud800.h", "." * 9000]
)
def test_hostile_include_name_opens_nothing(name, monkeypatch):
    import torch

    include = Path(torch.__file__).parent / "include"
    thin_headers((PLAIN,), include)  # what every source reads is kept from now on
    read = []
    monkeypatch.setattr(include_names, "_read", read.append)
    found = thin_headers((f'{PLAIN}\n#include "{name}"\n',), include)
    assert read == [] and not any(re.search(r"\.\.|^/", file) for file in found.files)
