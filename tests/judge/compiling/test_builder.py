"""Extensions: thin first, real headers only where they help, every library once."""

import dataclasses
import mmap
import os
from pathlib import Path

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling.builder import Builder, sealed_copy
from kernelgym.judge.compiling.source import UNIT
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.languages import LANGUAGES, Advice, HeaderRoot
from kernelgym.rulesets import RULESETS, Limits
from kernelgym.types import Kernel
from support.programs import AFFINE, CPP, CPP_SOURCE, TIGHT, doing, replaced

PLAIN = "torch::Tensor f(torch::Tensor x) { return torch::relu(x); }"
TYPES = """
#include <torch/extension.h>
std::tuple<torch::Tensor, int64_t> f(const torch::Tensor& x, double scale, int shift, bool flip,
                                     std::string name, std::optional<torch::Tensor> bias,
                                     std::vector<int64_t> sizes, std::vector<torch::Tensor> many) {
  auto y = (flip ? -x : x) * scale + shift;
  if (bias) y = y + *bias;
  for (auto& t : many) y = y + t;
  return {y.contiguous(), static_cast<int64_t>(name.size() + sizes.size())};
}
"""


FACTORIES = """
#include <torch/extension.h>
std::vector<torch::Tensor> f(torch::Tensor x) {
  std::vector<float> floats{1, 2};
  std::vector<int> ints{1, 2, 3};
  return {torch::tensor(1), torch::tensor(1.5), torch::tensor(1.5f), torch::tensor(true),
          torch::tensor(2.0, x.options()), torch::tensor(2, torch::kFloat64),
          torch::tensor(3.0f, torch::dtype(torch::kFloat32)), torch::tensor(x.size(0)),
          torch::tensor({1, 2}), torch::tensor({1.0, 2.0, 3.0}),
          torch::tensor({{1, 2}, {3, 4}, {5, 6}}), torch::tensor(floats), torch::tensor(ints),
          torch::tensor({1, 2}, torch::kFloat32), torch::tensor(floats, torch::kFloat64),
          torch::tensor({}), torch::scalar_tensor(1.5), torch::scalar_tensor(2, x.options()),
          torch::full({}, 1.5, x.options()), torch::full({2}, 1), torch::full({2}, 1.5),
          torch::zeros({}), torch::arange(3), torch::arange(0, 1, 0.25), at::tensor(1.5f)};
}
"""
MADE = [
    *([], "int64", 1), *([], "float32", 1.5), *([], "float32", 1.5), *([], "bool", True),
    *([], "float32", 2.0), *([], "float64", 2.0), *([], "float32", 3.0), *([], "int64", 4),
    *([2], "int64", [1, 2]), *([3], "float32", [1.0, 2.0, 3.0]),
    *([3, 2], "int64", [[1, 2], [3, 4], [5, 6]]),
    *([2], "float32", [1.0, 2.0]), *([3], "int64", [1, 2, 3]), *([2], "float32", [1.0, 2.0]),
    *([2], "float64", [1.0, 2.0]), *([0], "float32", []),
    *([], "float32", 1.5), *([], "float32", 2.0), *([], "float32", 1.5), *([2], "int64", [1, 1]),
    *([2], "float32", [1.5, 1.5]), *([], "float32", 0.0), *([3], "int64", [0, 1, 2]),
    *([4], "float32", [0.0, 0.25, 0.5, 0.75]), *([1], "float32", [1.5]),
]  # fmt: skip


@pytest.fixture
def builder(tmp_path, cache_dir, monkeypatch):
    """A builder with the session's library folder; counts the compilers it starts."""
    folder = cache_dir / "builds"
    made = Builder(folder, tmp_path, "ns+landlock+seccomp", Limits(), readable_paths())
    made.commands = []
    start = made._start

    def counted(command, *more):
        made.commands.append(command)
        return start(command, *more)

    monkeypatch.setattr(made, "_start", counted)
    return made


def _request(source, functions=("f",), **more):
    named = None if functions is None else {name: name for name in functions}
    return {"name": "ext", "cpp_sources": [source], "functions": named, **more}


def _load(built):
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    loader = ExtensionFileLoader(built.module, built.path)
    module = module_from_spec(spec_from_file_location(built.module, built.path, loader=loader))
    loader.exec_module(module)
    return module


def _compiles(builder):
    return [command for command in builder.commands if UNIT in command]


def test_known_content_is_not_built_again(builder):
    first = builder.build(_request(PLAIN))
    assert first.path and not first.cached
    before = len(builder.commands)
    again = builder.build(_request(PLAIN))
    assert again.cached and again.path == first.path
    assert len(builder.commands) == before
    assert first.code.digest and again.code == first.code
    assert [each.name for each in first.code.functions] == ["_Z1fN2at6TensorE"]


@pytest.mark.slow
def test_other_flags_are_other_content(builder):
    first = builder.build(_request(PLAIN))
    other_flags = builder.build(_request(PLAIN, cflags=["-O1", "-fopt-info"]))
    assert other_flags.path not in ("", first.path)
    assert other_flags.code.digest != first.code.digest


@pytest.mark.slow
def test_every_common_type_crosses_without_pybind11_in_the_kernel(builder):
    import torch

    module = _load(builder.build(_request(TYPES)))
    assert len(_compiles(builder)) == 1
    x = torch.randn(4)
    y, count = module.f(x, 2.0, 3, True, "name", None, [1, 2], [x, x])
    assert torch.allclose(y, -x * 2 + 3 + 2 * x) and count == 6
    y, _ = module.f(x, 2, 3, False, "", x, [], [])
    assert torch.allclose(y, x * 2 + 3 + x)
    good = [x, 2.0, 3, True, "name", None, [1, 2], [x]]
    for index, bad in [(0, 1), (1, "a"), (2, 1.5), (2, 2**40), (4, 3), (6, "ab"), (7, [1])]:
        with pytest.raises(TypeError):
            module.f(*good[:index], bad, *good[index + 1 :])
    with pytest.raises(TypeError, match="8 arguments"):
        module.f(x)


@pytest.mark.slow
@pytest.mark.parametrize("headers", ["thin", "torch's own"])
def test_factories_make_what_torch_makes(builder, headers):
    import torch

    more = "" if headers == "thin" else "// torch::nn"  # which the thin ones lack
    built = builder.build(_request(FACTORIES + more))
    assert len(_compiles(builder)) == 1, built.log
    made = _load(built).f(torch.ones(4))
    found = [part for y in made for part in (list(y.shape), str(y.dtype)[6:], y.tolist())]
    assert found == MADE


def test_a_genuine_mistake_is_compiled_once(builder):
    built = builder.build(_request("torch::Tensor f(torch::Tensor x) { return torch::rellu(x); }"))
    assert not built.path and "rellu" in built.log
    assert len(_compiles(builder)) == 1


@pytest.mark.slow
def test_an_unknown_variable_is_compiled_once(builder):
    assert builder.build(_request("int f() { return x; }")).path == ""
    assert len(_compiles(builder)) == 1


@pytest.mark.slow
def test_the_same_mistake_is_remembered(builder):
    source = _request("torch::Tensor f(torch::Tensor x) { return y; }")
    first = builder.build(source)
    again = builder.build(source)
    assert not again.path and again.cached and again.log == first.log
    assert len(_compiles(builder)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "functions", "compiles"),
    [
        # torch::nn lives in the C++ front end, which the thin headers leave out.
        (
            "torch::Tensor f(torch::Tensor x)"
            " { return torch::nn::functional::gelu(x, torch::nn::functional::GELUFuncOptions()); }",
            ("f",),
            1,
        ),
        # Nothing in this one says so before a compiler has looked.
        (
            "using namespace torch; using N = nn::ReLUOptions;"
            " Tensor f(Tensor x) { return N().inplace() ? x : -x; }",
            ("f",),
            2,
        ),
        # A type of which the table of kinds knows nothing needs pybind11.
        ("int f(std::map<std::string, int> x) { return x.size(); }", ("f",), 2),
        # A source that binds itself.
        (
            "#include <torch/extension.h>\n" + PLAIN + "\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"
            ' { m.def("f", &f); }',
            None,
            1,
        ),
    ],
)
def test_the_real_headers_are_used_where_they_help(builder, source, functions, compiles):
    built = builder.build(_request(source, functions))
    assert built.path, built.log
    assert callable(_load(built).f)
    assert len(_compiles(builder)) == compiles


def test_the_compiler_cannot_read_other_files(builder, tmp_path_factory):
    secret = tmp_path_factory.mktemp("secret") / "secret.h"
    secret.write_text("#define SECRET 1\n")
    built = builder.build(_request(f'#include "{secret}"\n' + PLAIN))
    assert not built.path and ("Permission denied" in built.log or "No such file" in built.log)
    library = builder.build(_request(PLAIN)).path
    built = builder.build(_request(f'asm(".incbin \\"{library}\\"");\n' + PLAIN))
    assert not built.path and str(library) in built.log


def test_a_build_that_takes_too_long_ends(tmp_path, cache_dir):
    made = Builder(
        cache_dir, tmp_path, "ns+landlock+seccomp", Limits(build_s=1.0), readable_paths()
    )
    endless = "template <int n> struct A { static constexpr int v = A<n-1>::v + A<n-2>::v; };\n"
    built = made.build(_request(endless + "#include <regex>\n#include <thread>\n" + PLAIN))
    assert not built.path and "longer than 1 s" in built.log


def test_cuda_sources_are_refused_with_a_reason(builder):
    built = builder.build({**_request(PLAIN), "cuda_sources": ["__global__ void k() {}"]})
    assert not built.path and "CUDA" in built.log


def test_no_compiler_is_said_before_anything_runs(monkeypatch, strict):
    from kernelgym.errors import UnsupportedLanguage

    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnsupportedLanguage, match="no-such-compiler"):
        strict.evaluate(AFFINE, CPP)
    monkeypatch.delenv("CXX")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UnsupportedLanguage, match="no C\\+\\+ compiler"):
        strict.evaluate(AFFINE, CPP)


# --- what a candidate gets of a library ---------------------------------------------------------
BINDS = """
#include <pybind11/pybind11.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("number", [] { return %d; }); }
"""
REGISTERS = """
#include <torch/library.h>
at::Tensor same(const at::Tensor& x) { return x; }
TORCH_LIBRARY(registered, m) { m.def("same", &same); }
"""
SEVERAL = (
    CPP_SOURCE.partition("\n\nclass ModelNew")[0]
    + f"""
def own(name, source, **more):
    return load_inline(name=name, cpp_sources=source, no_implicit_headers=True, **more)


same = load_inline(name="affine", cpp_sources=SOURCE, functions=["affine"], extra_cflags=["-O2"])
two = load_inline(name="affine", cpp_sources="int two() {{ return 2; }}", functions=["two"])
three, four = own("twin", {BINDS % 3!r}), own("twin", {BINDS % 4!r})
for _ in range(2):  # as before: the operators are registered once
    own("registered", {REGISTERS!r}, is_python_module=False)
assert same is extension and extension.__name__ == "affine"
assert (two.two(), three.number(), four.number()) == (2, 3, 4)
assert torch.equal(torch.ops.registered.same(torch.ones(2)), torch.ones(2))

"""
    + "\nclass ModelNew"
    + CPP_SOURCE.partition("\n\nclass ModelNew")[2]
)
PEEK = """
import os
for attempt in (os.listdir, os.scandir, lambda path: open({library!r}, "rb")):
    try:
        attempt({folder!r})
    except PermissionError:
        continue
    raise SystemError("the libraries can be seen")
"""


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["ns+landlock+seccomp", "landlock+seccomp"])
def test_several_extensions_load_and_no_other_can_be_seen(builder, cache_dir, tier):
    rules = dataclasses.replace(RULESETS["strict"], limits=TIGHT)
    library = builder.build(_request(PLAIN)).path
    folder = str(Path(library).parent)
    with LocalEvaluator(
        ruleset=rules, cache_dir=cache_dir, timing=False, isolation=tier
    ) as evaluator:
        verdict = evaluator.evaluate(AFFINE, Kernel(SEVERAL, "cpp"))
        assert verdict.correct and verdict.isolation == tier, verdict
        peeking = doing(PEEK.format(folder=folder, library=library), CPP)
        assert evaluator.evaluate(AFFINE, peeking).correct
        peeking = doing(PEEK.format(folder=str(cache_dir), library=library), CPP)
        assert evaluator.evaluate(AFFINE, peeking).correct


IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor

def build(number):
    source = "int number() { return NUMBER; }".replace("NUMBER", str(number))
    return load_inline(name=f"of_{number}", cpp_sources=source, functions=["number"])


with ThreadPoolExecutor(4) as pool:
    assert [made.number() for made in pool.map(build, range(4))] == [0, 1, 2, 3]
"""


MODEL = "\n\nclass ModelNew"


@pytest.mark.slow
def test_extensions_are_built_in_threads(strict):
    verdict = strict.evaluate(AFFINE, replaced(CPP, MODEL, IN_THREADS + MODEL))
    assert verdict.correct, verdict


BESIDE = """
from concurrent.futures import ThreadPoolExecutor

# Built here for the first time: the module is loaded before the compiler has finished.
pending = ThreadPoolExecutor(1).submit(
    load_inline, name="affine", cpp_sources=SOURCE + "// beside", functions=["affine"]
)
"""
JOINS = """        super().__init__()
        global extension
        extension = pending.result()
"""


@pytest.mark.slow
def test_an_extension_is_built_beside_what_follows_the_import(strict):
    own = CPP_SOURCE.partition("extension = ")[2].partition(MODEL)[0]
    kernel = replaced(CPP, "extension = " + own, BESIDE)
    kernel = replaced(kernel, "        super().__init__()\n", JOINS)
    for _ in range(2):  # the second time it is in the library folder
        verdict = strict.evaluate(AFFINE, kernel)
        assert verdict.correct, verdict


def test_a_sealed_copy_is_the_same_and_stays_so(tmp_path):
    original = tmp_path / "library.so"
    original.write_bytes(b"abc" * 9999)
    fd = sealed_copy(str(original))
    try:
        assert Path(f"/proc/self/fd/{fd}").read_bytes() == original.read_bytes()
        for attempt in (
            lambda: os.pwrite(fd, b"x", 0),
            lambda: os.ftruncate(fd, 0),
            lambda: os.ftruncate(fd, 1 << 20),
            lambda: mmap.mmap(fd, 4096),
        ):
            with pytest.raises(PermissionError):
                attempt()
    finally:
        os.close(fd)


@pytest.mark.slow
def test_an_old_standard_does_not_cost_the_real_headers(builder):
    assert builder.build(_request(PLAIN, cflags=["-O1", "-std=c++17"])).path
    assert len(_compiles(builder)) == 1


def test_language_s_own_headers_are_found_and_a_change_of_them_builds_anew(
    builder, tmp_path, monkeypatch
) -> None:
    headers, other = tmp_path / "tiles", tmp_path / "other"
    for folder, answer in ((headers, 1), (other, 2)):
        folder.mkdir()
        (folder / "tiles.h").write_text(f"#define ANSWER {answer}\n")
    request = {
        "name": "tiles",
        "cpp_sources": [
            "#include <tiles.h>\ntorch::Tensor f(torch::Tensor x) { return x + ANSWER; }"
        ],
        "functions": {"f": "f"},
        "include_paths": [str(headers), str(other)],
    }
    root = HeaderRoot("TILES_ROOT", "tiles/tiles.h", ("tiles",), "https://example.org/tiles")
    advice = (Advice(r"tiles\.h: No such file", "name the folder of tiles.h"),)
    monkeypatch.setenv("TILES_ROOT", str(tmp_path))
    language = dataclasses.replace(LANGUAGES["cpp"], headers=(root,), advice=advice)
    refused = builder.build(request)
    assert not refused.path and "tiles.h" in refused.log
    other_folder = builder.build({**request, "include_paths": [str(other)]}, language=language)
    assert other_folder.log.startswith("advice: name the folder of tiles.h\n")
    first = builder.build(request, language=language)
    assert first.path and not first.cached
    assert builder.build(request, language=language).cached
    (headers / "tiles.h").write_text("#define ANSWER 10\n")
    changed = builder.build(request, language=language)
    assert changed.path != first.path and not changed.cached
