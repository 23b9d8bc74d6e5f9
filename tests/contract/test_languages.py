"""A language is one file: elsewhere no code decides by a language's name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from kernelgym.languages import LANGUAGES
from support.source_tree import ROOT, SOURCES, TRAIN, TRAIN_SOURCES, module_name, parsed

HOMES = (
    ROOT / "languages",
    ROOT / "judge" / "untrusted",  # beside the candidate, where nothing of ours is imported
    ROOT / "suites" / "synthetic",  # writes kernels: a writer a language
    TRAIN / "demo",
    TRAIN / "mcgs" / "triton",  # reads and edits Triton's modules
)
"""Where code may know a language by its name."""

DEVICES = {"cpu"} | {kind for entry in LANGUAGES.values() for kind in entry.devices}
"""Device kinds, of which some are languages' names, too."""
PACKAGES = {"triton"}
READS_A_DEVICE = {"type", "device", "kind"}
"""Last names of what holds a device or its kind: `tensor.device.type`, `device`."""
LOOKS_UP = {"get", "pop", "setdefault", "startswith", "endswith"}
"""Methods whose argument is a key of a table, or compared."""


def offences(tree: ast.Module) -> Iterator[str]:
    """Yield what in a source decides by a language's name.

    That is a comparison, a case of a match, and a key, in a table's text or where it is looked up.
    Exempt are device kinds compared with what holds a device, device kinds that are keys together
    with the CPU, the package Triton in `sys.modules`, and types (`Literal`).
    """
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def texts(node: ast.AST | None) -> set[str]:
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.Name(id=name) if name in constants:
                value = constants[name]
                return texts(value) if not isinstance(value, ast.Name) else set()
            case ast.Tuple() | ast.List() | ast.Set():
                return {text for item in node.elts for text in texts(item)}
            case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[only]):
                return texts(only)
        return set()

    def decides(found: set[str], others: list[ast.AST]) -> bool:
        named = found & LANGUAGES.keys()
        if found <= DEVICES and any(map(holds_a_device, others)):
            return False
        if named <= PACKAGES and any(map(holds_modules, others)):
            return False
        return bool(named)

    for node in ast.walk(tree):
        bad = False
        match node:
            case ast.Compare(left=left, comparators=comparators):
                sides = [left, *comparators]
                found = {text for side in sides for text in texts(side)}
                bad = decides(found, [side for side in sides if not texts(side)])
            case ast.Match(subject=subject, cases=cases):
                values = [
                    value.value
                    for case in cases
                    for value in ast.walk(case.pattern)
                    if isinstance(value, ast.MatchValue)
                ]
                bad = decides({text for value in values for text in texts(value)}, [subject])
            case ast.Dict(keys=keys):
                found = {text for key in keys for text in texts(key)}
                bad = bool(found & LANGUAGES.keys()) and not ("cpu" in found and found <= DEVICES)
            case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
                bad = bool({keyword.arg for keyword in keywords} & LANGUAGES.keys())
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[first, *_]):
                bad = name in LOOKS_UP and decides(texts(first), [owner])
            case ast.Subscript(value=owner, slice=key):
                is_type = isinstance(owner, ast.Name) and owner.id == "Literal"
                bad = not is_type and decides(texts(key), [owner])
            case ast.ImportFrom(module=str(module)):
                bad = module.startswith("kernelgym.languages.") and is_language(module)
                bad |= module == "kernelgym.languages" and any(
                    alias.name.lower() in LANGUAGES for alias in node.names
                )
            case ast.Import(names=names):
                bad = any(is_language(alias.name) for alias in names)
        if bad:
            yield f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}"


def is_language(module: str) -> bool:
    return module.removeprefix("kernelgym.languages.") in LANGUAGES and "." in module


def holds_a_device(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in READS_A_DEVICE
        case ast.Call(func=ast.Name(id="str"), args=[only]):
            return holds_a_device(only)
        case ast.Subscript(
            value=ast.Call(
                func=ast.Attribute(attr="partition" | "split"), args=[ast.Constant(value=":")]
            ),
            slice=ast.Constant(value=0),
        ):
            return True  # `device.partition(":")[0]`
    return False


def holds_modules(node: ast.AST) -> bool:
    return ast.unparse(node) == "sys.modules"


def test_code_elsewhere_decides_by_no_language() -> None:
    found = [
        f"{module_name(path)}, {offence}"
        for path in (*SOURCES, *TRAIN_SOURCES)
        if not any(path.is_relative_to(home) for home in HOMES)
        for offence in offences(parsed(path))
    ]
    assert not found, "ask a Language (kernelgym.languages) instead:\n" + "\n".join(found)


def test_the_table_holds_every_file_of_the_room() -> None:
    files = {path.stem for path in (ROOT / "languages").glob("*.py")}
    assert files == {"__init__", "definition", "examples", *LANGUAGES}


@pytest.mark.parametrize(
    "source",
    [
        'if language == "triton": ...',
        'if "hip" != kernel.language: ...',
        'if language in ("cuda", "hip"): ...',
        'if language in {"cpp"}: ...',
        'if entry.name == "cuda": ...',
        'GPU = ("cuda", "hip")\nif language in GPU: ...',
        'GPU = frozenset({"cuda"})\nif language in GPU: ...',
        'TRITON = "triton"\nif language == TRITON: ...',
        'match language:\n    case "cpp": ...',
        'match language, device:\n    case ("cuda" | "hip", _): ...',
        'NOUNS = {"triton": "Triton kernel"}',
        'CHUNKS = {"cuda": 1}',
        'TABLE = {"cpu": 1, "cuda": 2, "cpp": 3}',
        "NOUNS = dict(triton=1)",
        'noun = NOUNS["triton"]',
        'noun = NOUNS.get("cpp")',
        'if language.startswith("cu") or language.startswith("cuda"): ...',
        'if device == "triton": ...',
        "from kernelgym.languages.triton import TRITON",
        "from kernelgym.languages import triton",
        "import kernelgym.languages.hip",
    ],
)
def test_a_decision_by_language_is_found(source: str) -> None:
    assert list(offences(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        'if tensor.device.type == "cuda": ...',
        'if device in ("cpu", "cuda"): ...',
        'if str(device).startswith("cuda"): ...',
        'if device.partition(":")[0] == "cuda": ...',
        'match device.type:\n    case "cuda": ...',
        'CHUNKS = {"cpu": 1, "cuda": 2}',
        'if "triton" in sys.modules: sys.modules["triton"]',
        'version("triton"), importlib.util.find_spec("triton")',
        'def make(language: str = "triton") -> Literal["triton", "cpp"]: ...',
        "import triton\nimport triton.language as tl",
        "if language == chosen and entry.is_timed(device): ...",
    ],
)
def test_devices_packages_and_defaults_are_exempt(source: str) -> None:
    assert not list(offences(ast.parse(source)))
