#!/usr/bin/env python3
"""Tools of a workspace: ./kernelgym-tools check|time|profile|submit [FILE], or status.

Each sends FILE (kernel.py if not given) to the workspace's judge and prints the feedback. The calls
of check, time and profile are counted; submit is final and possible once. Exit code 0 if the kernel
is correct, 1 if not, 2 if the call was refused or the judge does not answer.
"""

# A workspace holds a copy of this file, so it uses the standard library alone.
from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOOLS = ("check", "time", "profile", "submit")
_HERE = Path(__file__).resolve().parent
_LONGEST_S = 3600.0


class CallFailed(Exception):
    """A tool call that was refused, or that no judge answered."""


def main(arguments: list[str]) -> int:
    """Make one call; return the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    tool, *files = arguments
    try:
        if tool == "status" and not files:
            print(json.dumps(_ask("GET", ""), indent=2))
            return 0
        if tool not in TOOLS or len(files) > 1:
            given, known = " ".join(arguments), ", ".join((*TOOLS, "status"))
            raise CallFailed(f"{given!r} is no tool; give one of {known}, and one file at most")
        answer = _ask("POST", f"/{tool}", {"source": _source(files[0] if files else "kernel.py")})
    except CallFailed as failure:
        print(f"kernelgym-tools: {failure}", file=sys.stderr)
        return 2
    print(answer["text"])
    return 0 if answer["correct"] else 1


def _source(name: str) -> str:
    path = Path(name) if name != "kernel.py" else _HERE / name
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CallFailed(f"{path} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise CallFailed(f"cannot read {path}: {error.strerror}") from None


def _ask(method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Send a request to the workspace's server; return its answer."""
    try:
        place = json.loads((_HERE / "workspace.json").read_text("utf-8"))
        url, key = place["url"], place["key"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CallFailed(
            f"{_HERE / 'workspace.json'} is missing or damaged; start the workspace again by "
            "`kernelgym workspace`"
        ) from None
    request = urllib.request.Request(
        f"{url}/v1/workspace{path}",
        None if body is None else json.dumps(body).encode("ascii"),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        method=method,
    )
    # A proxy of the environment would be asked for a loopback address.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_LONGEST_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        try:
            message = json.load(error)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = f"HTTP status {error.code}"
        raise CallFailed(message) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CallFailed(
            f"the workspace's judge at {url} does not answer ({reason}); it ends with its "
            "`kernelgym workspace` command, so start that again"
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
