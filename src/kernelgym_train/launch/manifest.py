"""Manifest of a training run: versions, machine, rules, seed and commit.

Contract: it is for the record, except that a run goes on under the rules it was made with only.
`manifest` never raises for what it cannot find out; that is empty. Nothing of the environment's
variables is written down.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.machine import installed_version
from kernelgym.retrieval.prompt_part import Retrieval
from kernelgym.rulesets import Ruleset
from kernelgym_train.config.config import Config
from kernelgym_train.models import gpus

_PACKAGES = (
    *("kernelgym", "torch", "triton", "transformers", "trl", "peft", "accelerate"),
    *("tokenizers", "numpy", "vllm", "bitsandbytes", "tinker"),
)


def manifest(
    config: Config, ruleset: Ruleset, retrieval: Retrieval | None = None
) -> dict[str, Any]:
    """Return a training run's manifest as JSON data.

    Args:
        config: Configuration of the run.
        ruleset: Ruleset of the run's verdicts.
        retrieval: Part of the prompts that shows entries of an index; None if no part does.
    """
    versions = {name: installed_version(name, missing="") for name in _PACKAGES}
    shown = {}
    if retrieval is not None:
        shown["retrieval"] = {"index": retrieval.index, "digest": retrieval.digest}
    return {
        "backend": config.run.backend,
        "seed": config.run.seed,
        "ruleset": ruleset.label,
        "memory_bytes": config.judge.memory_bytes,
        "rewards": {step: asdict(preset) for step, preset in config.schedule.entries},
        **shown,
        "python": platform.python_version(),
        "versions": {name: version for name, version in versions.items() if version},
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "gpus": [gpu.name for gpu in gpus()],
        },
        "git": _git(),
    }


def check_ruleset(folder: Path, rules: Ruleset) -> None:
    """Refuse to resume a run whose verdicts followed other rules.

    Args:
        folder: The run's folder.
        rules: The rules that its further kernels would be judged by.

    Raises:
        UsageError: If the run's manifest names another label.
    """
    label = _about(folder).get("ruleset")
    if label and label != rules.label:
        raise UsageError(
            f"the run in {str(folder)!r} was judged by ruleset {label!r}, and this version judges "
            f"by {rules.label!r}: their verdicts cannot be mixed in one run; start a new run, or "
            "resume this one with the version of kernelgym that it was made with"
        )


def check_retrieval(folder: Path, retrieval: Retrieval) -> None:
    """Refuse to resume a run whose prompts showed another index.

    Args:
        folder: The run's folder.
        retrieval: Retrieval of the run's further prompts, with the index's digest.

    Raises:
        UsageError: If the run's manifest names another digest.
    """
    shown = _about(folder).get("retrieval")
    digest = shown.get("digest") if isinstance(shown, dict) else None
    if digest and digest != retrieval.digest:
        raise UsageError(
            f"the run in {str(folder)!r} showed entries of an index with digest {digest}, and "
            f"{retrieval.index!r} has {retrieval.digest} now; restore that index, or start a new "
            "run"
        )


def _about(folder: Path) -> dict[str, Any]:
    """Return a run's manifest; empty if it cannot be read."""
    try:
        found = json.loads((folder / "manifest.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _git() -> dict[str, Any]:
    """Return the git commit of the running code, if it runs from a checkout."""
    here = Path(__file__).parents[1]  # kernelgym_train
    try:
        commit = _run("git", "-C", str(here), "rev-parse", "HEAD")
        changed = _run("git", "-C", str(here), "status", "--porcelain", "--", str(here))
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "changed": bool(changed)}


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
