"""Build requests: which flags and texts are accepted, ignored or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compiling.cpp_compiler import find_compiler, searched_folders
from kernelgym.judge.compiling.request import BadRequest, assumes_finite, read_request

SEARCHED = frozenset({"/usr/include", "/usr/lib/gcc/include", "/opt/torch/lib"})


def _read(cuda=False, **fields):
    request = {"name": "ext", "cpp_sources": ["int f();"], "functions": {"f": "f"}, **fields}
    return read_request(request, cuda, SEARCHED)


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("flag", ["-lc10", "-ltorch", "-ltorch_cpu", "-ltorch_python"])
def test_torch_library_in_ldflags_is_ignored(flag, cuda):
    assert _read(cuda, ldflags=["-fopenmp", flag]).ldflags == ("-fopenmp",)


@pytest.mark.parametrize(
    "flag", ["-I/usr/include", "-I /usr/include/", "-I/usr/lib/../lib/gcc/include"]
)
def test_searched_include_folder_is_ignored(flag):
    assert _read(cflags=["-O3", flag, "-w"]).cflags == ("-O3", "-w")


def test_searched_library_folder_is_ignored():
    assert _read(ldflags=["-L/opt/torch/lib", "-ltorch"]).ldflags == ()


@pytest.mark.parametrize("folder", ["/root", "/usr", "/usr/include/../..", "src", ".", "/proc/1"])
@pytest.mark.parametrize("form", ["-I{}", "-I {}"])
def test_foreign_include_folder_is_named(folder, form):
    with pytest.raises(BadRequest, match=f"the folder {folder!r} of -I in cflags"):
        _read(cflags=[form.format(folder)])


def test_foreign_library_folder_is_named():
    with pytest.raises(BadRequest, match="the folder '/root' of -L in ldflags"):
        _read(ldflags=["-L/root"])


@pytest.mark.parametrize(
    "flag",
    [
        *("-B/tmp", "-B.", "-specs=/tmp/specs", "--specs=a", "-fplugin=/tmp/p.so", "@file"),
        *("-fplugin-arg-p-a=b", "-wrapper", "-Wl,-rpath,/tmp", "-Wl,--wrap=f", "-Wp,-MD,a"),
        *("-Wa,-I/tmp", "-include", "-imacros", "-iquote.", "-isystem/usr/include", "-x", "-E"),
        *("-o", "-S", "-M", "-MD", "-fsyntax-only", "-save-temps", "-fuse-ld=gold"),
        *("-fdump-tree-all", "-fcompare-debug", "-fcallgraph-info", "--sysroot=/", "-Xlinker"),
        *("-lopenblas", "-lkernel", "-rdynamic", "-T/tmp/script", "/tmp/object.o", "-l:lib.so"),
    ],
)
@pytest.mark.parametrize("key", ["cflags", "ldflags"])
def test_flag_that_does_more_is_refused(flag, key):
    with pytest.raises(BadRequest, match="is not allowed in"):
        _read(**{key: [flag]})


@pytest.mark.parametrize("text", ["int a;\0", "// \ud800", "\udfff"])
@pytest.mark.parametrize("key", ["cpp_sources", "cflags", "ldflags"])
def test_text_that_no_file_holds_is_refused(text, key):
    with pytest.raises(BadRequest, match=f"{key} holds the character"):
        _read(**{key: [text]})


@pytest.mark.parametrize("name", ["a" * 201, "é", "a\0", "\ud800", "", "1a", "a b"])
def test_absurd_name_is_refused(name):
    with pytest.raises(BadRequest, match="identifier"):
        _read(name=name)
    with pytest.raises(BadRequest, match="identifiers"):
        _read(functions={name: "f"})


@pytest.mark.parametrize("key", ["cflags", "ldflags"])
def test_flags_without_end_are_refused(key):
    with pytest.raises(BadRequest, match="longer than"):
        _read(**{key: ["-march=" + "x" * 200_000]})
    with pytest.raises(BadRequest, match="longer than"):
        _read(**{key: ["-fopenmp"] * 900 + ["-march=" + "x" * 3000] * 10})
    with pytest.raises(BadRequest, match="at most 1000"):
        _read(**{key: ["-O2"] * 1001})


@given(
    st.dictionaries(
        st.sampled_from(["name", "cpp_sources", "functions", "cflags", "ldflags", "cuda_sources"]),
        st.one_of(
            *(st.none(), st.integers(), st.text(max_size=9), st.dictionaries(st.text(), st.text())),
            st.lists(st.one_of(st.text(max_size=9), st.none()), max_size=3),
        ),
    )
)
def test_any_request_is_read_or_refused(fields):
    try:
        request = _read(**fields)
    except BadRequest as refused:
        str(refused).encode()
    else:
        for text in (request.name, *request.cpp_sources, *request.cflags, *request.ldflags):
            text.encode()


def test_searched_folders_hold_the_usual_ones():
    folders = searched_folders(find_compiler())
    assert {"/usr/include", "/usr/local/include"} <= folders
    assert not folders & {"/", "/usr", "/root", "/tmp", "/home"}


@pytest.mark.parametrize(
    ("key", "flag", "assumes"),
    [
        ("cflags", "-ffast-math", True),
        ("cflags", "-O3 -ffast-math -w", True),
        ("cflags", "-ffinite-math-only", True),
        ("cflags", "-Ofast", True),
        ("cuda_cflags", "--use_fast_math", False),
        ("cuda_cflags", "-use_fast_math", False),
        ("cuda_cflags", "-Xcompiler=-O3,-ffast-math", True),
        ("cflags", "-O3", False),
        ("cflags", "-fno-fast-math", False),
        ("cflags", "-DOfast=1", False),
        ("cflags", "-ffp-contract=fast", False),
        ("cflags", "-ffast-math -fno-finite-math-only", False),
        ("cflags", "-fno-finite-math-only -ffast-math", True),
        ("cflags", "-Ofast -O3", False),
        ("cflags", "-fno-fast-math -Ofast", False),
        ("ldflags", "-Ofast", False),
        ("cpp_sources", '#pragma GCC optimize("O3", "-ffast-math")', True),
        ("cpp_sources", '#pragma GCC optimize "fast-math"', True),
        ("cpp_sources", '_Pragma("GCC optimize(\\"O3,finite-math-only\\")")', True),
        ("cpp_sources", '__attribute__((__optimize__("Ofast"))) void f();', True),
        ("cuda_sources", '[[gnu::optimize("fast-math")]] void f();', True),
        ("cpp_sources", '#pragma GCC optimize("no-fast-math", 3)', False),
        ("cpp_sources", '// #pragma GCC optimize("fast-math")', False),
        ("cpp_sources", 'optimize(1, "fast-maths"); print("fast-math");', False),
    ],
)
def test_options_that_assume_finite_numbers_are_known(key, flag, assumes):
    assert assumes_finite({"name": "ext", key: ["-g", flag]}) is assumes


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_requests_of_any_form_can_be_asked_for_flags(value):
    assert assumes_finite(value) is False
    assert assumes_finite({"cflags": value}) in (True, False)


def test_folders_of_further_headers_are_kept_and_others_left_out(tmp_path) -> None:
    allowed = tmp_path / "tiles" / "include"
    allowed.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(allowed)
    request = {
        "name": "f",
        "cpp_sources": ["int f();"],
        "functions": {"f": "f"},
        "include_paths": [str(link), f"{allowed}/..", "/etc", f"{allowed}/"],
    }
    found = read_request(request, headers=(str(allowed.resolve()),))
    assert found.include_paths == (str(allowed.resolve()),) * 2
    assert read_request(request).include_paths == ()
