"""The `kernelgym-train` command.

Contract: `main` returns the exit code. 0: done. 1: failed, or stopped by a guard, with one line on
standard error. 2: a usage error, with one line that says what was given, what is known and what to
do. 130: interrupted by Ctrl-C, 143: by SIGTERM, which does the same; a run that is resumed goes on
from its last checkpoint. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgym import UnknownName, UsageError, __version__
from kernelgym.interruption import exit_code
from kernelgym.reading import options as described
from kernelgym.records.run_logs import run_logs
from kernelgym.working_folder import take_working_folder
from kernelgym_train.backends.backend import BACKENDS, check_packages
from kernelgym_train.config.config import Config, check_resume, dump_config, load_config
from kernelgym_train.config.flat_names import read_from_step

_BACKENDS = (*BACKENDS, "mcgs")
_UNTRAINED = "untrained"
_SEARCH_PACKAGES = ("tree_sitter", "tree_sitter_cpp", "tree_sitter_cuda")
_DESCRIPTION = """\
Train a model to write kernels, on the reward of executing them.

Settings are read from a YAML file, then from key.path=value; --help-settings lists them all.
With --backend mcgs a search makes one kernel faster instead, with key=value settings of its own.
Exit codes: 0 done, 1 failed or stopped by a guard, 2 usage error, 130
interrupted by Ctrl-C, 143 by SIGTERM."""


@dataclass(frozen=True, slots=True)
class _Asked:
    config: Config
    resume: Path | None
    from_step: int | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; `argv` is ``sys.argv[1:]`` if None. Returns the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    verbose = False

    def run() -> int:
        nonlocal verbose
        for line in take_working_folder():
            _say(line)
        parser = _parser()
        options, unknown = parser.parse_known_args(_spelt(given))
        verbose = options.verbose
        if unknown:
            raise UnknownName("option", unknown[0].partition("=")[0], parser.option_strings)
        return _run(options)

    return exit_code(run, _say, lambda: verbose)


def _spelt(given: list[str]) -> list[str]:
    """Return the arguments, in which a search's options are written as settings."""
    if "--backend=mcgs" in given or ("--backend", "mcgs") in itertools.pairwise(given):
        check_packages("search", _SEARCH_PACKAGES)
        from kernelgym_train.mcgs.settings import spelt_as_settings

        return spelt_as_settings(given)
    return given


class _Parser(argparse.ArgumentParser):
    @property
    def option_strings(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see `kernelgym-train --help`")


def _parser() -> _Parser:
    parser = _Parser(
        "kernelgym-train",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "settings",
        nargs="*",
        metavar="key.path=value",
        help="settings, which replace those of the file",
    )
    add(
        "--backend",
        type=_backend,
        metavar=f"{{{','.join(_BACKENDS)}}}",
        help="backend that samples answers and takes optimiser steps",
    )
    add("--config", type=Path, help="YAML file of settings, or name of a ready one")
    add("--resume", type=Path, metavar="RUN", help="folder of a run to resume")
    add(
        "--from-step",
        type=int,
        metavar="N",
        help="with --resume: number of steps after which the checkpoint to resume was saved",
    )
    add(
        "--evaluate",
        metavar="RUN|tinker://...|untrained",
        help="evaluate a run's model or newest checkpoint, weights on a service, or the untrained "
        "model; the last two by the settings of --config and the command line",
    )
    add(
        "--step",
        type=int,
        metavar="N",
        help="with --evaluate RUN: number of steps of the checkpoint",
    )
    add(
        "--checkpoint",
        type=Path,
        metavar="PATH",
        help="with --evaluate RUN: folder of the checkpoint",
    )
    add(
        "--merge",
        type=Path,
        metavar="RUN",
        help="run whose adapter is merged into its model and saved",
    )
    add("--dry-run", action="store_true", help="print the settings and check what a run needs")
    add(
        "--assume-gpu",
        type=float,
        metavar="GIB",
        help="with --dry-run: memory in GiB of a GPU to plan for",
    )
    add("--help-settings", action="store_true", help="list every setting")
    add("--version", action="version", version=f"kernelgym {__version__}", help="show the version")
    add("-v", "--verbose", action="store_true", help="show the traceback of a failure")
    return parser


def _backend(name: str) -> str:
    if name not in _BACKENDS:
        raise argparse.ArgumentTypeError(str(UnknownName("backend", name, _BACKENDS)))
    return name


def _run(options: argparse.Namespace) -> int:
    if options.backend == "mcgs":
        return _search(options)
    if options.help_settings:
        for key in described(Config):
            print(f"{key.path} = {key.default!r}\n    {key.help} ({key.type})")
        return 0
    if options.assume_gpu is not None and not options.dry_run:
        raise UsageError(
            "--assume-gpu needs --dry-run: a run needs the GPU itself; "
            "add --dry-run, or leave --assume-gpu out"
        )
    given = [name for name in ("resume", "evaluate", "merge") if getattr(options, name)]
    if len(given) > 1:
        raise UsageError(f"--{' and --'.join(given)} exclude each other; give one of them")
    chosen = [name for name in ("step", "checkpoint") if getattr(options, name) is not None]
    if len(chosen) > 1:
        raise UsageError("--step and --checkpoint both choose a checkpoint; give one of them")
    if chosen and not (options.evaluate and _is_run(options.evaluate)):
        raise UsageError(f"--{chosen[0]} chooses a checkpoint of a run; name it by --evaluate RUN")
    if options.merge:
        from kernelgym_train.models import merge_adapter

        merge_adapter(options.merge / "model", options.merge / "merged")
        print(options.merge / "merged")
        return 0
    asked = _asked(options)
    if options.dry_run:
        from kernelgym_train.launch.dry_run import dry_run

        print(dump_config(asked.config))
        for line in dry_run(asked.config, assume_gpu_gib=options.assume_gpu):
            print(line, flush=True)
        return 0
    if options.evaluate:
        from kernelgym_train.launch.launch import evaluate_model, evaluate_run

        if _is_run(options.evaluate):
            found, steps = evaluate_run(
                asked.config, Path(options.evaluate), options.step, options.checkpoint
            )
            _say(f"evaluated the weights after {steps} steps of {options.evaluate}")
        else:
            address = "" if options.evaluate == _UNTRAINED else options.evaluate
            found, folder = evaluate_model(asked.config, address)
            _say(f"the evaluation is kept in {str(folder)!r}")
        for name, value in found.items():
            print(f"{name:<40} {value:.4f}")
        return 0
    from kernelgym_train.launch.launch import train_run

    own = Path(asked.config.run.folder) / asked.config.run.name
    with run_logs(own if asked.resume is None else asked.resume):
        outcome = train_run(asked.config, asked.resume, asked.from_step)
    print(outcome.folder)
    if outcome.was_finished:
        _say(
            f"the run in {str(outcome.folder)!r} is finished: it did {outcome.steps} steps, and "
            f"its model is in {outcome.folder / 'model'}; to train it further, give a larger "
            "optimiser.steps"
        )
        return 0
    if outcome.stopped:
        _say(f"stopped after {outcome.steps} steps: {outcome.stopped}")
        return 1
    return 0


def _search(options: argparse.Namespace) -> int:
    """Run a search of kernels (``--backend mcgs``), whose settings are not those of training."""
    others = ("config", "from_step", "evaluate", "step", "checkpoint", "merge", "assume_gpu")
    if given := [name for name in others if getattr(options, name) is not None]:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is for training; a search takes key=value alone, "
            "see --backend mcgs --help-settings"
        )
    from kernelgym_train.mcgs import command

    if options.help_settings:
        command.help_settings()
        return 0
    return command.run_search(options.settings, dry_run=options.dry_run)


def _asked(options: argparse.Namespace) -> _Asked:
    """Return the configuration: that of a resumed run or of a file, changed by what is given."""
    settings = list(options.settings)
    if options.backend:
        settings.append(f"run.backend={options.backend}")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    from_step = options.from_step
    if options.resume:
        settings, from_step = read_from_step(settings, from_step)
    elif from_step is not None:
        raise UsageError(
            f"--from-step {from_step} chooses a checkpoint of a run to resume; "
            "name its folder by --resume RUN"
        )
    folder = options.resume
    if options.evaluate and _is_run(options.evaluate):
        folder = Path(options.evaluate)
    if folder is None:
        return _Asked(load_config(options.config, settings, processes=processes), None)
    if options.config is not None:
        raise UsageError("a resumed run uses its own config.yaml; leave --config out")
    own = folder / "config.yaml"
    if not own.is_file():
        raise UsageError(
            f"there is no run in {str(folder)!r} (no config.yaml); give the folder that a run was "
            "started in, such as runs/<name>"
        )
    # Its own defaults filled in: a setting that came later was what its default is.
    kept = load_config(own, processes=processes)
    if options.backend not in (None, kept.run.backend):
        raise UsageError(
            f"the run in {str(folder)!r} was made with backend {kept.run.backend!r}, and no other "
            "can resume it; leave --backend out"
        )
    config = load_config(own, settings, processes=processes)
    if options.resume:
        check_resume(kept.model_dump(), config)
        from kernelgym_train.launch.manifest import check_retrieval, check_ruleset

        check_ruleset(folder, config.rules)
        if config.retrieval.on:
            from kernelgym_train.launch.assembly import training_retrieval

            check_retrieval(folder, training_retrieval(config, config.judge.device))
    return _Asked(config, options.resume, from_step)


def _is_run(evaluated: str) -> bool:
    """Return True if `--evaluate` names a run's folder."""
    return evaluated != _UNTRAINED and not evaluated.startswith("tinker://")


def _say(text: str) -> None:
    line = " ".join(text.split()).encode("utf-8", "backslashreplace").decode("utf-8")
    print(f"kernelgym-train: {line}", file=sys.stderr)
