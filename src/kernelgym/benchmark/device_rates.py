"""Measured rates of a device, and the roofline limits of problems on it.

`kernelgym device --json` writes the file of rates. The operations of a reference (matrix products,
convolutions and attention) come from the files of `kernelgym baseline --modes`, or from the table
of KernelBench's problems (`kernelgym.suites.kernelbench_facts`).

Contract: rates of another device than the run's are refused. A problem without known operations
has the limit that its bytes set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgym.benchmark.numbers.roofline import RooflineLimit
from kernelgym.benchmark.recorded_runs import RecordedRun
from kernelgym.benchmark.times_file import TimesFile
from kernelgym.errors import UsageError
from kernelgym.precision import judged_precisions
from kernelgym.records.foreign_json import read_foreign_json
from kernelgym.rulesets import Ruleset, recorded_ruleset
from kernelgym.suites.kernelbench_facts import fact
from kernelgym.types import Problem


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Measured rates of one device."""

    path: Path
    device: str
    """Name of the device: a GPU's model, or the processor's."""
    bytes_per_s: float
    """Bytes a second of a large copy, read and written."""
    operations_per_s: Mapping[str, float]
    """Operations a second of matrix products, by precision: fp32, tf32, fp16, bf16."""

    @classmethod
    def read(cls, path: str | Path) -> DeviceRates:
        """Read the file that `kernelgym device --json` printed.

        Raises:
            UsageError: If it cannot be read, or holds no rates.
        """
        remedy = "`kernelgym device cuda:0 --json > FILE` writes one"
        data, _ = read_foreign_json(Path(path), "rates", remedy)
        try:
            found = {
                name: 1e12 * float(rate) for name, rate in data["matmul_tflops"].items() if rate
            }
            name = str(data.get("gpu") or data["cpu"]).partition(",")[0].strip()
            copies = 1e9 * float(data["copy_gb_s"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{str(path)!r} holds no device's rates ({type(error).__name__}: {error}); "
                "`kernelgym device cuda:0 --json > FILE` writes them"
            ) from None
        return cls(Path(path), name, copies, found)


def limits_of(
    run: RecordedRun, rates: DeviceRates, baselines: Sequence[str | Path] = ()
) -> dict[str, RooflineLimit]:
    """Return the roofline limits of a run's problems, by id.

    Args:
        run: The run.
        rates: Rates of the device on which the run was judged.
        baselines: Files of baselines, for the operations of references.

    Raises:
        UsageError: If the rates are those of another device.
    """
    gpu = str(run.machine.get("gpu") or "").partition(",")[0].strip()
    ours = gpu or str(run.machine.get("cpu", ""))
    if ours and rates.device.lower() != ours.lower():
        raise UsageError(
            f"{rates.path} has the rates of {rates.device!r}, and {run.name} was judged on "
            f"{ours!r}; measure that device: `kernelgym device --json`"
        )
    counted = {
        time.digest: time.operations
        for path in map(Path, baselines)
        if path.suffix == ".jsonl"
        for time in TimesFile.read(path).times
        if time.operations
    }
    limits = {}
    for played in run.episodes:
        problem = played.record.trajectory.problem
        if problem.id in limits:
            continue
        operations = counted.get(played.record.problem_digest) or _known_operations(problem)
        rate = rates.operations_per_s.get(_precision(problem, played.record.ruleset), 0.0)
        limits[problem.id] = RooflineLimit(operations, rate, rates.bytes_per_s)
    return limits


def _known_operations(problem: Problem) -> float:
    found = fact(problem.id, problem.name)
    return 1e9 * found.gflop if found is not None and found.gflop else 0.0


def _precision(problem: Problem, label: str) -> str:
    """Return the precision whose rate limits a problem: the highest of the reference."""
    try:
        rules: Ruleset = recorded_ruleset(label)
    except UsageError:
        rules = Ruleset("unknown")
    named = judged_precisions(problem, rules)
    return next((each for each in ("fp64", "fp32", "bf16", "fp16") if each in named), "fp32")
