"""Checks what a language needs on this machine: programs, packages, headers, a GPU and its driver.

Contract: each check raises `UnsupportedLanguage` with one line that says what was found, what is
needed and what to install, before anything is judged. No package is imported.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernelgym.devices import cuda_devices
from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling.cpp_compiler import find_compiler
from kernelgym.judge.compiling.cuda_toolkit import check_builds_for, find_nvcc
from kernelgym.judge.compiling.hip_compiler import find_hip_clang, hip_compiler
from kernelgym.judge.compiling.triton_tools import check_assembles_for
from kernelgym.languages import HeaderRoot, Language, Package

_FINDERS = {"c++": find_compiler, "nvcc": find_nvcc, "hip clang": find_hip_clang}


def check_requirements(
    language: Language, source: str = "", device: str = "", target: str = ""
) -> None:
    """Check that this machine has what a language's kernels need.

    Args:
        language: The kernel's language.
        source: The kernel's source; empty if it is not known yet.
        device: Device that the kernel runs on, such as ``cuda:0``; empty if none is asked for.
        target: GPU that the kernel is compiled for without one, such as ``cuda:90a``.

    Raises:
        UnsupportedLanguage: If something is missing, too old or too new.
    """
    for package in language.packages:
        _check_package(language, package)
    for tool in language.tools:
        if tool.needed_by in source:
            _FINDERS[tool.name]()
    for root in language.headers:
        _check_headers(language, root)
    if device.startswith("cuda") and any((*language.least_capability, *language.least_driver)):
        _check_gpu(language, device)
    if number := re.fullmatch(r"cuda:(\d+)[af]?", target):
        capability = divmod(int(number[1]), 10)
        _check_capability(language, capability, f"sm_{number[1]}")
        if language.assembled_on:
            check_assembles_for(int(number[1]))
        if any(tool.name == "nvcc" and tool.needed_by in source for tool in language.tools):
            check_builds_for(find_nvcc(), capability)
    elif target and any(tool.name == "hip clang" for tool in language.tools):
        hip_compiler(target.partition(":")[2])


def header_paths(language: Language) -> tuple[str, ...]:
    """Return the folders of headers that a language's builds may include, with links resolved.

    Checkouts that are not configured on this machine are left out.
    """
    found = []
    for root in language.headers:
        if place := os.environ.get(root.variable):
            found += [os.path.realpath(os.path.join(place, name)) for name in root.folders]
    return tuple(path for path in found if os.path.isdir(path))


def _check_package(language: Language, package: Package) -> None:
    wanted = f"language {language.name!r} needs the package {package.name}"
    if package.at_least:
        wanted += f" of version {_dotted(package.at_least)} or later"
    if package.below:
        wanted += f" below version {_dotted(package.below)}"
    remedy = f"pip install {package.install}"
    try:
        installed = version(package.name)
    except PackageNotFoundError:
        raise UnsupportedLanguage(f"{wanted}, which is not installed: {remedy}") from None
    numbers = tuple(map(int, re.findall(r"\d+", installed.partition("+")[0])))
    if numbers < package.at_least or (package.below and numbers >= package.below):
        raise UnsupportedLanguage(f"{wanted}; {installed} is installed: {remedy}")


def _check_headers(language: Language, root: HeaderRoot) -> None:
    wanted = (
        f"language {language.name!r} needs a checkout of {root.source}, named by {root.variable}"
    )
    place = os.environ.get(root.variable)
    if not place:
        raise UnsupportedLanguage(f"{wanted}, which is not set; clone it and set the variable")
    if not (Path(place) / root.holds).is_file():
        raise UnsupportedLanguage(f"{wanted}; {place!r} holds no {root.holds}")


def _check_gpu(language: Language, device: str) -> None:
    gpus = cuda_devices()
    number = int(device.partition(":")[2] or 0)
    if number >= len(gpus):
        return  # `find_device` says so
    gpu = gpus[number]
    _check_capability(language, gpu.capability, f"{device} ({gpu.name})")
    if any(gpu.driver) and gpu.driver < language.least_driver:
        raise UnsupportedLanguage(
            f"language {language.name!r} needs a driver that supports CUDA "
            f"{_dotted(language.least_driver)} or later; that of {device} supports "
            f"{_dotted(gpu.driver)}: install a newer driver"
        )


def _check_capability(language: Language, capability: tuple[int, int], gpu: str) -> None:
    wanted = f"language {language.name!r} needs a GPU of compute capability"
    has = f"{gpu} has {_dotted(capability)}"
    if capability < language.least_capability:
        raise UnsupportedLanguage(f"{wanted} {_dotted(language.least_capability)} or later; {has}")
    if any(language.below_capability) and capability >= language.below_capability:
        raise UnsupportedLanguage(f"{wanted} below {_dotted(language.below_capability)}; {has}")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
