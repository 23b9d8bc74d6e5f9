"""What prompts tell about the machine, with a table of GPUs.

The table has the figures of the vendor's data sheets. Peak rates are those of fp32 outside tensor
cores, without sparsity; bandwidth is the memory's peak. `kernelgym device` measures what a machine
reaches, which is less.

Sources: NVIDIA's data sheets of A100 (SXM, 80 GB), H100 (SXM), H200 (SXM), HGX B200, L40S, L4, T4
and A10, and its pages of GeForce RTX 4090 and RTX 5090; multiprocessors from its architecture white
papers (Turing, Ampere, Ada, Hopper, Blackwell); shared memory of a block from the table "Technical
Specifications per Compute Capability" of the CUDA C++ Programming Guide. A10G is sold by AWS alone:
its figures are those of A10's chip with the units and rate that AWS gives. Figures of
AMD's Instinct GPUs are those of its data sheets, as KernelBench's table of GPUs gives them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelgym.errors import UnknownName, UsageError
from kernelgym.reading import read


@dataclass(frozen=True, slots=True)
class Hardware:
    """Facts about a machine that a prompt tells; empty fields are left out."""

    name: str
    """Name of the device, such as ``NVIDIA H200``."""
    architecture: str = ""
    """Architecture, such as ``sm_90``, ``gfx942`` or ``x86-64 with AVX2``."""
    units: int = 0
    """Number of streaming multiprocessors, of AMD's compute units, or of cores."""
    memory_bytes: int = 0
    bandwidth_gb_s: float = 0.0
    """Memory bandwidth in 10^9 bytes per second."""
    fp32_tflops: float = 0.0
    """Peak fp32 rate in 10^12 operations per second."""
    shared_memory_bytes: int = 0
    """Shared memory of one block, or cache of one core."""

    def __str__(self) -> str:
        facts = (
            ("Architecture", self.architecture),
            ("Lanes of a wave", _wave(self.architecture)),
            ("Multiprocessors or cores", self.units and str(self.units)),
            ("Memory", self.memory_bytes and f"{self.memory_bytes / 2**30:.0f} GiB"),
            ("Memory bandwidth", self.bandwidth_gb_s and f"{self.bandwidth_gb_s:g} GB/s"),
            ("Peak fp32 rate", self.fp32_tflops and f"{self.fp32_tflops:g} TFLOP/s"),
            (
                "Shared memory per block",
                self.shared_memory_bytes and f"{self.shared_memory_bytes / 1024:g} KiB",
            ),
        )
        lines = [f"- {label}: {value}" for label, value in facts if value]
        return "\n".join([f"- Name: {self.name}", *lines])


def _wave(architecture: str) -> str:
    """Return a sentence for prompts on the waves of AMD's GPUs; empty for other devices."""
    if (found := re.match(r"gfx(\d+)[0-9a-f]{2}\b", architecture)) is None:
        return ""
    if int(found[1]) >= 10:
        return "32, as in a warp of NVIDIA"
    return (
        "64, not 32 as in a warp of NVIDIA: `num_warps` in Triton counts waves of 64 lanes, at "
        "most 16 of them in a block"
    )


def _gpu(
    name: str, architecture: str, units: int, gib: int, gb_s: float, tflops: float, kib: int
) -> Hardware:
    return Hardware(name, architecture, units, gib << 30, gb_s, tflops, kib << 10)


GPUS = {
    "A100": _gpu("NVIDIA A100 (SXM, 80 GB)", "sm_80", 108, 80, 2039, 19.5, 163),
    "H100": _gpu("NVIDIA H100 (SXM)", "sm_90", 132, 80, 3350, 67, 227),
    "H200": _gpu("NVIDIA H200 (SXM)", "sm_90", 132, 141, 4800, 67, 227),
    "B200": _gpu("NVIDIA B200", "sm_100", 148, 180, 7700, 75, 227),
    "L40S": _gpu("NVIDIA L40S", "sm_89", 142, 48, 864, 91.6, 99),
    "L4": _gpu("NVIDIA L4", "sm_89", 58, 24, 300, 30.3, 99),
    "T4": _gpu("NVIDIA T4", "sm_75", 40, 16, 320, 8.1, 64),
    "A10G": _gpu("NVIDIA A10G", "sm_86", 80, 24, 600, 35, 99),
    "RTX 4090": _gpu("NVIDIA GeForce RTX 4090", "sm_89", 128, 24, 1008, 82.6, 99),
    "RTX 5090": _gpu("NVIDIA GeForce RTX 5090", "sm_120", 170, 32, 1792, 104.8, 99),
    "MI300X": _gpu("AMD Instinct MI300X", "gfx942", 304, 192, 5300, 163.4, 64),
    "MI325X": _gpu("AMD Instinct MI325X", "gfx942", 304, 256, 6000, 163.4, 64),
    "MI350X": _gpu("AMD Instinct MI350X", "gfx950", 256, 288, 8000, 144.2, 160),
    "MI355X": _gpu("AMD Instinct MI355X", "gfx950", 256, 288, 8000, 157.3, 160),
}
"""Facts of GPUs, by the name that prompts and commands take."""


def known_gpu(name: str) -> Hardware | None:
    """Return the facts of a GPU, by a short name or by the name that its driver tells; or None."""
    wanted = " ".join(name.upper().replace("_", " ").split())
    for maker in ("NVIDIA ", "AMD ", "INSTINCT ", "GEFORCE ", "TESLA "):
        wanted = wanted.removeprefix(maker)
    wanted = wanted.removesuffix(" 80GB HBM3").removesuffix("-SXM4-80GB")  # H100, A100
    return next((facts for known, facts in GPUS.items() if known == wanted), None)


def hardware_of(given: object) -> Hardware | None:
    """Return hardware facts, given as `Hardware`, as a mapping, or as a GPU's name.

    Raises:
        UsageError: If it is none of these, or a field or the name is unknown.
    """
    if given is None or isinstance(given, Hardware):
        return given
    if isinstance(given, Mapping) and "name" in given:
        return read(Hardware, given, "hardware")
    if isinstance(given, str):
        if (facts := known_gpu(given)) is None:
            raise UnknownName(
                "GPU", given, GPUS, "Of another device, give Hardware(name=...) with its facts."
            )
        return facts
    raise UsageError(
        f"hardware is a kernelgym.prompts.hardware.Hardware, got {given!r}; give the name of a "
        "GPU, such as 'H100', or Hardware(name=...), or a mapping with 'name', of what the prompt "
        "should tell, or leave the option out"
    )
