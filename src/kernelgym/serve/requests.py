"""What the service accepts: requests become jobs, or are refused with a sentence."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym.errors import UnknownName, UsageError
from kernelgym.evaluators.wire import MOST_BODY_BYTES, MOST_JOBS, JobsRequest
from kernelgym.languages import LANGUAGES
from kernelgym.reading import read
from kernelgym.serve.judges import Judges
from kernelgym.serve.keys import Tenant
from kernelgym.serve.refusal import Refusal
from kernelgym.suites.base import Suite, check_source
from kernelgym.types import Job, Kernel, Problem

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONGEST_DEADLINE_S = 30 * 86_400.0


class ProblemShelf:
    """Problems that jobs may name: those of the server's suites, and sources that keys may send.

    Args:
        suites: The server's own suites.
    """

    def __init__(self, suites: Sequence[Suite]) -> None:
        self._suites = {suite.name: suite for suite in suites}

    def find(self, request: Mapping[str, Any]) -> Problem:
        """Return the problem of a job.

        Args:
            request: The job's ``problem``, as `WireProblem`; one with a source is made of that.

        Raises:
            Refusal: If there is no such problem, or its source has another digest.
        """
        given, digest = request["id"], request["digest"]
        if request.get("source") is not None:
            names = ("id", "suite", "level", "name", "source", "family")
            problem = Problem(**{name: request[name] for name in names})
        else:
            suite = self._suites.get(given.partition("/")[0])
            try:
                if suite is None:
                    raise UnknownName("suite", given.partition("/")[0], self._suites)
                problem = suite.get(given)
            except UsageError as error:
                raise Refusal(
                    422,
                    "unknown_problem",
                    f"this server has no problem {given!r} ({error}). A key with the role "
                    "`problems` may send a problem's source.",
                ) from None
        if problem.digest != digest:
            raise Refusal(
                422,
                "other_digest",
                f"problem {given!r} has digest {problem.digest} on the server and {digest} in the "
                "request: their sources differ. Install the same version of kernelgym and of its "
                "suites on both sides.",
            )
        return problem

    def job(self, request: Mapping[str, Any]) -> Job:
        """Return the job of a stored request.

        Raises:
            Refusal: As `find`.
        """
        kernel = request["kernel"]
        return Job(self.find(request["problem"]), Kernel(kernel["source"], kernel["language"]))


def read_jobs(
    body: bytes, tenant: Tenant, judges: Judges, shelf: ProblemShelf
) -> list[dict[str, Any]]:
    """Return the checked jobs of a request's body as plain data.

    Args:
        body: JSON of a `JobsRequest`.
        tenant: The tenant that sent it.
        judges: The server's evaluators.
        shelf: The server's problems.

    Raises:
        Refusal: If the body is no such JSON, or one of the jobs cannot be taken; none is then.
    """
    if len(body) > MOST_BODY_BYTES:
        raise too_large()
    try:
        clean = data = json.loads(body.decode("utf-8"))
        if _ESCAPED_SURROGATE.search(body):
            # Texts of models may hold half a surrogate pair, which the typed reading refuses.
            clean = json.loads(_SURROGATE.sub("?", json.dumps(data, ensure_ascii=False)))
        request = read(JobsRequest, clean)
    except UsageError as error:
        raise Refusal(422, "invalid", f"the request is not valid: {error}") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "no_json", f"the body is not JSON: {error}") from None
    if len(request.jobs) > MOST_JOBS:
        raise Refusal(
            413,
            "too_many_jobs",
            f"a request takes {MOST_JOBS} jobs at most, got {len(request.jobs)}; send several",
        )
    if not request.jobs:
        raise Refusal(422, "invalid", "the request is not valid: jobs holds no job")
    jobs = []
    for place, (typed, given) in enumerate(zip(request.jobs, data["jobs"], strict=True)):
        job = dataclasses.asdict(typed)
        job["kernel"]["source"] = given["kernel"]["source"]
        try:
            _check(job, tenant, judges, shelf)
        except Refusal as refusal:
            where = f"job {place}: " if len(request.jobs) > 1 else ""
            raise Refusal(refusal.status, refusal.code, where + refusal.message) from None
        jobs.append(job)
    return jobs


def too_large() -> Refusal:
    """Return the refusal of a request body above the size limit."""
    message = f"a request's body has {MOST_BODY_BYTES} bytes at most; send fewer jobs in each"
    return Refusal(413, "too_large", message)


def _check(job: Mapping[str, Any], tenant: Tenant, judges: Judges, shelf: ProblemShelf) -> None:
    language = job["kernel"]["language"]
    can = judges.capabilities(job["ruleset"], job["timing"])
    if language not in can.languages:
        known = ", ".join(can.languages)
        what = "cannot run language" if language in LANGUAGES else "does not know language"
        raise Refusal(
            422, "language", f"this server's device {what} {language!r}; it runs: {known}"
        )
    if tenant.languages and language not in tenant.languages:
        known = ", ".join(tenant.languages)
        raise Refusal(403, "language", f"this key is not for language {language!r}, but: {known}")
    if job["device_kind"] not in ("", can.device_kind):
        raise Refusal(
            422,
            "device_kind",
            f"device {job['device_kind']!r} was asked for; this server has {can.device_kind!r}",
        )
    if not re.fullmatch("[0-9a-f]{0,128}", job["seed"]):
        raise Refusal(422, "invalid", "seed is up to 128 hexadecimal digits, or empty")
    limit = job["deadline_s"]
    if limit is not None and not 0.0 < limit <= _LONGEST_DEADLINE_S:
        raise Refusal(422, "invalid", f"deadline_s is above 0 and at most {_LONGEST_DEADLINE_S:g}")
    problem = job["problem"]
    if problem["source"] is not None:
        if "problems" not in tenant.roles:
            raise Refusal(
                403,
                "problems",
                "a problem's source is executed on the server outside the sandbox, so it is taken "
                "only from keys with the role `problems`; this key lacks it. Name one of the "
                "server's own problems by id and digest",
            )
        try:
            check_source(problem["source"], f"the source of problem {problem['id']!r}")
        except UsageError as error:
            raise Refusal(422, "problem", str(error)) from None
    shelf.find(problem)
