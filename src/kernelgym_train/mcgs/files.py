"""`SearchFolder`: the files of one kernel's search.

::

    outdir/
      result.json               the result, see `kernelgym_train.mcgs.finishing`
      kernels/<name>/
        events.jsonl            all events of the search, from which it is resumed
        search_state.json       the state that they lead to, see `kernelgym_train.mcgs.state`
        result.json             the same as above
        trace.md                evaluations and comparisons, for a reader
        report.html             the same with drawings, in one file
        episode.jsonl           the steps to the best, see `kernelgym_train.mcgs.episode`
        pull_request.md         the best as a proposed change; missing if the start is the best
        flashinfer.json         the best in the form of flashinfer-bench, of a spec that fits it
        baseline/               the start: run.json, kernel_module.py, result.json, log.txt, its
                                library, and kernel.s, the library's machine code
        variants/<state key>/   control.json, kernel_module.py, candidate.diff, result.json, and
                                log.txt with the output of compiler and kernel, if any;
                                for the best also extension.so and kernel.s
        best                    a link to the variant that won, or to baseline

Contract: a file is written under another name and then renamed, so that a reader never finds half
of it. A search is resumed from its log alone; of the other files, only verdicts are read back, for
the episode.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.records.run_lock import LOCK_FILE
from kernelgym.records.trajectories import EpisodeRecord, write_records
from kernelgym.types import Kernel, Verdict
from kernelgym.whole_file import write_whole
from kernelgym_train.mcgs.slow_diffs import takes_seconds
from kernelgym_train.mcgs.variant import Variant


def diff_of(before: str, after: str, name: str = "kernel_module.py") -> str:
    """Return a unified diff of two texts of a file, which `git apply` takes.

    Where difflib would take long, it replaces all lines.
    """
    # As git does: `patch` takes a space for the end of a name unless a tab follows.
    end = "\t" if " " in name else ""
    names = f"a/{name}{end}", f"b/{name}{end}"
    old, new = _lines(before), _lines(after)
    if before != after and takes_seconds(old, new, autojunk=True):
        head = f"--- {names[0]}\n", f"+++ {names[1]}\n", f"@@ -1,{len(old)} +1,{len(new)} @@\n"
        lines = iter([*head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    else:
        lines = difflib.unified_diff(old, new, *names)
    unfinished = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else line + unfinished for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their line ends; as in git, only a newline ends a line."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


class SearchFolder:
    """The folder of one kernel's search.

    Args:
        outdir: Folder of all results.
        name: Name of the kernel.
        alone: Whether the kernel's result is also the result of `outdir`.
    """

    def __init__(self, outdir: Path, name: str, *, alone: bool = True) -> None:
        self.outdir, self._alone = outdir, alone
        self.path = outdir / "kernels" / name
        self._begun: list[Path] = []

    @property
    def events(self) -> Path:
        """Path of the log."""
        return self.path / "events.jsonl"

    @property
    def is_begun(self) -> bool:
        """Whether the search has a log with an event."""
        return self.events.exists() and self.events.stat().st_size > 0

    def others(self) -> list[str]:
        """Return the names of other kernels whose searches the results folder holds."""
        logs = sorted(self.outdir.glob("kernels/*/events.jsonl"))
        names = [log.parent.name for log in logs if log.stat().st_size]
        return [name for name in names if name != self.path.name]

    def check_unused(self, resume: bool) -> None:
        """Refuse a folder that holds a search already, unless that is resumed.

        Raises:
            UsageError: If the folder holds a search and `resume` is False.
        """
        if self.is_begun and not resume:
            raise UsageError(
                f"there is a search in {str(self.path)!r}; continue it by resume=true, or give "
                "another outdir"
            )

    def check_links(self) -> None:
        """Refuse a folder with symbolic links besides `best`, which would lead writing elsewhere.

        Raises:
            UsageError: If the folder, the one above it or anything in it is one.
        """
        paths = [self.path.parent, self.path]
        for folder, folders, files in os.walk(self.path):
            paths += [Path(folder, name) for name in (*folders, *files)]
        replaced = (self.path / "best", self.path / ".best")  # never written through
        for path in paths:
            if path.is_symlink() and path not in replaced:
                raise UsageError(
                    f"{str(path)!r} is a symbolic link, through which a search would write "
                    "elsewhere; remove it, or give another outdir"
                )

    @property
    def diff(self) -> Path:
        """Path of the diff from the start to the best kernel; no file if the start is the best."""
        return self.path / "best" / "candidate.diff"

    @property
    def best(self) -> Path:
        """Path of the best kernel's module."""
        return self.path / "best" / "kernel_module.py"

    def write_start(self, start: Kernel, verdict: Verdict | None = None) -> None:
        """Write the start kernel, and its verdict if given."""
        folder = self.path / "baseline"
        texts = {"kernel_module.py": start.source}
        if verdict is not None:
            texts["result.json"] = _json(verdict.to_dict())
            if log := _log_of(verdict):
                texts["log.txt"] = log
        for name, text in texts.items():
            write_whole(folder / name, text)
            self._begun.append(folder / name)

    def write_run(self, run: Mapping[str, Any]) -> None:
        """Write the file that names the problem, rules and devices of a search's judging."""
        write_whole(self.run, _json(run))
        self._begun.append(self.run)

    @property
    def run(self) -> Path:
        """Path of the file with the problem, rules and devices by which kernels are judged."""
        return self.path / "baseline" / "run.json"

    def forget(self) -> None:
        """Remove the log, the lock and the start that this search wrote, and no other file.

        The folder may be the user's own, with files of theirs.
        """
        for path in (self.events, self.path / LOCK_FILE, *self._begun):
            path.unlink(missing_ok=True)
        for emptied in (self.path / "baseline", self.path):
            with contextlib.suppress(OSError):  # not empty, or not there
                emptied.rmdir()

    def write_variant(self, key: str, variant: Variant, context: str, risk: str, diff: str) -> None:
        """Write a variant, and its difference from the start, before it is judged."""
        folder, kernel = self.path / "variants" / key, variant.kernel()
        control = {
            "state": key,
            "context": context,
            "language": variant.language,
            "flags": list(variant.flags),
            "launch": dict(variant.launch),
            "applied": [[step.move, step.target, step.choice] for step in variant.applied],
            "risk": risk,
            "digest": kernel.digest,
        }
        write_whole(folder / "control.json", _json(control))
        write_whole(folder / "kernel_module.py", kernel.source)
        write_whole(folder / "candidate.diff", diff)

    def write_verdict(self, key: str, verdict: Verdict) -> None:
        """Write a variant's verdict."""
        folder = self.path / "variants" / key
        write_whole(folder / "result.json", _json(verdict.to_dict()))
        if log := _log_of(verdict):
            write_whole(folder / "log.txt", log)

    def read_verdict(self, key: str) -> Verdict | None:
        """Return a variant's verdict; None if the file is missing or damaged."""
        try:
            told = (self.path / "variants" / key / "result.json").read_text(encoding="utf-8")
            return Verdict.from_dict(json.loads(told))
        except (OSError, ValueError):
            return None

    def write_built(self, key: str | None, files: Mapping[str, bytes]) -> None:
        """Write the built files of a variant, or of the start if `key` is None."""
        folder = self.path / ("baseline" if key is None else f"variants/{key}")
        for name, data in files.items():
            write_whole(folder / name, data)
            if key is None:
                self._begun.append(folder / name)

    def link_best(self, key: str | None) -> None:
        """Let the link `best` lead to a variant, or to the start if `key` is None."""
        target = "baseline" if key is None else f"variants/{key}"
        beside = self.path / ".best"
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        os.replace(beside, self.path / "best")

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the result."""
        write_whole(self.path / "result.json", _json(result))
        if self._alone:
            write_result_of_all(self.outdir, result)

    def write_episode(self, record: EpisodeRecord | None) -> None:
        """Write the episode that leads to the best; remove an earlier one if there is none."""
        path = self.path / "episode.jsonl"
        if record is None:
            path.unlink(missing_ok=True)
        else:
            write_records(path, [record])

    def write(self, name: str, content: str | Mapping[str, Any] | None) -> None:
        """Write a text, or data as JSON; remove the file if there is none."""
        if content is None:
            (self.path / name).unlink(missing_ok=True)
        else:
            write_whole(self.path / name, content if isinstance(content, str) else _json(content))


def write_result_of_all(outdir: Path, result: Mapping[str, Any]) -> None:
    """Write result.json of a run that optimised several kernels."""
    write_whole(outdir / "result.json", _json(result))


def _log_of(verdict: Verdict) -> str:
    """Return the output of a kernel and of its compilers, from a verdict."""
    built = verdict.build.log if verdict.build is not None else ""
    return "\n".join(filter(None, (verdict.log, built)))


def _json(data: object) -> str:
    return json.dumps(data, indent=2, allow_nan=False) + "\n"
