"""Durable queue and results of the service: one SQLite file in a state folder.

Contract:

- a job that was taken is there after the process was killed, and so is a verdict that was given;
  after a loss of power the last of them may be missing, and the client's request, sent again under
  its idempotency key, makes them anew;
- a job has one final outcome: a verdict, an error of the caller's, or cancelled. Jobs that were
  being judged when the process ended are queued again, in their old place;
- one idempotency key of a tenant stands for one body as long as its batch is kept;
- a state folder has one owner at a time, which holds a lock;
- a file of an older schema is copied, then migrated; one of a newer schema is refused.

Callable from several threads; every call is short.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.file_lock import take

_MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE batches (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, idempotency TEXT NOT NULL,
        body_digest TEXT NOT NULL, created REAL NOT NULL, left INTEGER NOT NULL,
        finished REAL, events INTEGER NOT NULL DEFAULT 0,
        UNIQUE (tenant, idempotency)
    ) WITHOUT ROWID;
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, batch TEXT NOT NULL,
        place INTEGER NOT NULL, tenant TEXT NOT NULL, state TEXT NOT NULL, deadline REAL,
        request TEXT NOT NULL, outcome TEXT
    );
    CREATE UNIQUE INDEX jobs_of_batch ON jobs (batch, place);
    CREATE INDEX open_jobs ON jobs (tenant, state) WHERE state IN ('queued', 'started');
    CREATE INDEX deadlines ON jobs (deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
    CREATE TABLE events (
        batch TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, job TEXT NOT NULL,
        PRIMARY KEY (batch, number)
    ) WITHOUT ROWID;
    """,
)
"""SQL statements that lead from each version of the schema to the next, the first from an empty
file. The file's ``user_version`` is its version."""
SCHEMA = len(_MIGRATIONS)
"""Version of the schema that this code writes."""
_OPEN = "state IN ('queued', 'started')"  # condition of the index `open_jobs`
_AT_ONCE = 64  # batches that are deleted in one transaction, which others wait for


class OtherBody(Exception):
    """A tenant used an idempotency key again, with another body."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with its state and outcome, as the store keeps it."""

    id: str
    batch: str
    place: int
    """Index of the job in its batch, from 0."""
    state: str
    """``queued``, ``started``, ``done`` or ``cancelled``."""
    request: dict[str, Any]
    """Job as the client sent it, in JSON."""
    outcome: dict[str, Any] | None
    """Outcome of a finished job: ``{"verdict": ...}`` or ``{"error": {"code", "message"}}``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the job in the form in which the service answers."""
        head = {"id": self.id, "batch": self.batch, "index": self.place, "state": self.state}
        return head | (self.outcome or {})


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The jobs of one request."""

    id: str
    left: int
    """Number of jobs without an outcome."""
    jobs: tuple[StoredJob, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the batch in the form in which the service answers."""
        jobs = [job.to_dict() for job in self.jobs]
        return {"id": self.id, "done": self.left == 0, "jobs": jobs}


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event of a batch."""

    number: int
    """Number of the event within the batch, from 1, ascending."""
    kind: str
    """Kind of the event: ``queued``, ``started``, ``verdict``, ``cancelled`` or ``done``."""
    data: dict[str, Any]


class JobStore:
    """The state folder of a service.

    Args:
        folder: The folder; created if missing, readable by its owner alone.

    Raises:
        UsageError: If another server has the folder, or its file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "state.sqlite3"
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._owned = take(folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"the state folder {str(folder)!r} belongs to a server that is running; end it, "
                "or give this one another --state"
            ) from None
        except OSError as error:
            raise UsageError(
                f"the state folder {str(folder)!r} cannot be used: {error.strerror}"
            ) from None
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = self._opened()
        except OSError as error:
            os.close(self._owned)
            raise UsageError(
                f"the state file {str(self.path)!r} cannot be used: {error.strerror}; give another "
                "--state"
            ) from None
        except BaseException:
            os.close(self._owned)
            raise
        self.requeued = self._queue_started()
        """Number of jobs that an earlier server of this folder had begun and not finished."""

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA:
                raise UsageError(
                    f"{self.path} has schema {version}, and this version of kernelgym knows "
                    f"{SCHEMA}; start a newer kernelgym, or give another --state"
                )
            if version == 0:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            if 0 < version < SCHEMA:
                copy = self.path.with_name(f"{self.path.name}.schema{version}")
                with contextlib.closing(sqlite3.connect(copy)) as kept:
                    db.backup(kept)
            for number in range(version, SCHEMA):
                db.executescript(
                    f"BEGIN; {_MIGRATIONS[number]} PRAGMA user_version = {number + 1}; COMMIT;"
                )
        except sqlite3.Error as error:
            db.close()
            raise UsageError(
                f"{self.path} cannot be used as a state file: {error}; give another --state"
            ) from None
        except BaseException:
            db.close()
            raise
        return db

    def close(self) -> None:
        """Close the file and give the folder up. Closing twice is harmless."""
        with self._lock:
            if self._owned >= 0:
                self._db.close()
                os.close(self._owned)
                self._owned = -1

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the database for one transaction, which an error rolls back."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def add(
        self,
        tenant: str,
        idempotency: str,
        body_digest: str,
        requests: Sequence[Mapping[str, Any]],
        now: float,
    ) -> tuple[str, tuple[str, ...], bool]:
        """Queue a batch; return its id, the ids of its jobs, and whether it is new.

        Args:
            tenant: Name of the tenant.
            idempotency: Idempotency key of the request.
            body_digest: Digest of the request's body.
            requests: The jobs; ``deadline_s`` of each counts from `now`.
            now: The time, by `time.time`.

        Raises:
            OtherBody: If the key stands for another body.
        """
        with self._writing() as db:
            known = db.execute(
                "SELECT id, body_digest FROM batches WHERE tenant = ? AND idempotency = ?",
                (tenant, idempotency),
            ).fetchone()
            if known is not None:
                if known[1] != body_digest:
                    raise OtherBody
                there = db.execute("SELECT id FROM jobs WHERE batch = ? ORDER BY place", known[:1])
                return known[0], tuple(row[0] for row in there), False
            batch = f"b_{secrets.token_hex(12)}"
            ids = tuple(f"j_{secrets.token_hex(12)}" for _ in requests)
            db.execute(
                "INSERT INTO batches (id, tenant, idempotency, body_digest, created, left, events) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (batch, tenant, idempotency, body_digest, now, len(ids), len(ids)),
            )
            rows = []
            for place, (job, request) in enumerate(zip(ids, requests, strict=True)):
                limit = request.get("deadline_s")
                deadline = None if limit is None else now + limit
                rows.append((job, batch, place, tenant, deadline, json.dumps(request)))
            db.executemany(
                "INSERT INTO jobs (id, batch, place, tenant, state, deadline, request) "
                "VALUES (?, ?, ?, ?, 'queued', ?, ?)",
                rows,
            )
            told = [(batch, number, job) for number, job in enumerate(ids, 1)]
            db.executemany("INSERT INTO events VALUES (?, ?, 'queued', ?)", told)
        return batch, ids, True

    def batch(self, tenant: str, batch: str) -> StoredBatch | None:
        """Return a tenant's batch; None if the tenant has none of that id."""
        found = self._read("SELECT left FROM batches WHERE id = ? AND tenant = ?", batch, tenant)
        if not found:
            return None
        rows = self._read(f"SELECT {_FIELDS} FROM jobs WHERE batch = ? ORDER BY place", batch)
        return StoredBatch(batch, found[0][0], tuple(map(_job, rows)))

    def job(self, tenant: str, job: str) -> StoredJob | None:
        """Return a tenant's job; None if the tenant has none of that id."""
        rows = self._read(f"SELECT {_FIELDS} FROM jobs WHERE id = ? AND tenant = ?", job, tenant)
        return _job(rows[0]) if rows else None

    def knows(self, tenant: str, idempotency: str) -> bool:
        """Return True if a tenant's idempotency key stands for a batch that is kept."""
        query = "SELECT 1 FROM batches WHERE tenant = ? AND idempotency = ?"
        return bool(self._read(query, tenant, idempotency))

    def owns(self, tenant: str, batch: str) -> bool:
        """Return True if a tenant has a batch of that id."""
        return bool(self._read("SELECT 1 FROM batches WHERE id = ? AND tenant = ?", batch, tenant))

    def is_done(self, batch: str) -> bool:
        """Return True if every job of a batch has its outcome."""
        rows = self._read("SELECT left FROM batches WHERE id = ?", batch)
        return not rows or rows[0][0] == 0

    def events(self, batch: str, after: int) -> list[StoredEvent]:
        """Return the events of a batch that follow a number, at most 256 of them."""
        rows = self._read(
            "SELECT e.number, e.kind, e.job, j.place, j.outcome FROM events e LEFT JOIN jobs j ON "
            "j.id = e.job WHERE e.batch = ? AND e.number > ? ORDER BY e.number LIMIT 256",
            *(batch, after),
        )
        told = []
        for number, kind, job, place, outcome in rows:
            data: dict[str, Any] = {"job": job, "index": place} if job else {}
            if kind == "verdict" and outcome:
                data |= json.loads(outcome)
            told.append(StoredEvent(number, kind, data))
        return told

    def waiting(self) -> list[tuple[str, str]]:
        """Return (tenant, id) of every queued job, in the order in which they came."""
        rows = self._read("SELECT tenant, id FROM jobs WHERE state = 'queued' ORDER BY number")
        return [(tenant, job) for tenant, job in rows]

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of open jobs by (tenant, state)."""
        rows = self._read(
            f"SELECT tenant, state, COUNT(*) FROM jobs WHERE {_OPEN} GROUP BY tenant, state"
        )
        return {(tenant, state): count for tenant, state, count in rows}

    def queued(self, tenant: str) -> int:
        """Return the number of a tenant's queued jobs."""
        # SQLite takes the index only if the query repeats its condition.
        query = f"SELECT COUNT(*) FROM jobs WHERE tenant = ? AND state = 'queued' AND {_OPEN}"
        return int(self._read(query, tenant)[0][0])

    def overdue(self, now: float) -> list[str]:
        """Return the ids of queued jobs whose deadline has passed."""
        rows = self._read(
            "SELECT id FROM jobs WHERE state = 'queued' AND deadline IS NOT NULL AND deadline < ?",
            now,
        )
        return [row[0] for row in rows]

    def start(self, job: str) -> StoredJob | None:
        """Mark a queued job started and return it; None if it is not queued any more."""
        with self._writing() as db:
            changed = db.execute(
                "UPDATE jobs SET state = 'started' WHERE id = ? AND state = 'queued'", (job,)
            )
            if not changed.rowcount:
                return None
            found = _job(db.execute(f"SELECT {_FIELDS} FROM jobs WHERE id = ?", (job,)).fetchone())
            self._tell(db, found.batch, "started", job)
        return found

    def queue_again(self, job: str) -> None:
        """Mark a started job queued."""
        with self._writing() as db:
            db.execute(
                "UPDATE jobs SET state = 'queued' WHERE id = ? AND state = 'started'", (job,)
            )

    def finish(self, job: str, outcome: Mapping[str, Any], now: float) -> str:
        """Give a job its outcome, unless it has one; return the id of its batch.

        Args:
            job: Id of the job, queued or started.
            outcome: The outcome, as `StoredJob.outcome`.
            now: The time, by `time.time`.
        """
        return self._end(job, "done", "verdict", json.dumps(outcome), now)

    def cancel(self, tenant: str, jobs: Sequence[str], now: float) -> int:
        """Cancel a tenant's queued jobs; return the number of those that were still queued."""
        count = 0
        for job in jobs:
            found = self.job(tenant, job)
            if found is not None and found.state == "queued":
                count += bool(self._end(job, "cancelled", "cancelled", None, now, "queued"))
        return count

    def _end(
        self, job: str, state: str, kind: str, outcome: str | None, now: float, only: str = ""
    ) -> str:
        """Bring a job to a final state; return its batch's id, empty if the job had one already."""
        states = (only, only) if only else ("queued", "started")
        with self._writing() as db:
            changed = db.execute(
                "UPDATE jobs SET state = ?, outcome = ? WHERE id = ? AND state IN (?, ?) "
                "RETURNING batch",
                (state, outcome, job, *states),
            ).fetchone()
            if changed is None:
                return ""
            (batch,) = changed
            self._tell(db, batch, kind, job)
            (left,) = db.execute(
                "UPDATE batches SET left = left - 1 WHERE id = ? RETURNING left", (batch,)
            ).fetchone()
            if left == 0:
                db.execute("UPDATE batches SET finished = ? WHERE id = ?", (now, batch))
                self._tell(db, batch, "done", "")
        return str(batch)

    def _queue_started(self) -> int:
        with self._writing() as db:
            return db.execute("UPDATE jobs SET state = 'queued' WHERE state = 'started'").rowcount

    @staticmethod
    def _tell(db: sqlite3.Connection, batch: str, kind: str, job: str) -> None:
        (number,) = db.execute(
            "UPDATE batches SET events = events + 1 WHERE id = ? RETURNING events", (batch,)
        ).fetchone()
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (batch, number, kind, job))

    def size_bytes(self) -> int:
        """Return the number of bytes in use, pages that are free again left out."""
        (pages,), (free,), (size,) = (
            self._read(f"PRAGMA {name}")[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def prune(self, before: float, most_bytes: float) -> int:
        """Delete finished batches that are old, and the oldest while the file is too large.

        Args:
            before: Batches that were finished before this time are deleted, by `time.time`.
            most_bytes: Size in use above which more are deleted.

        Returns:
            The number of deleted batches.
        """
        count = 0
        while True:
            limit = "AND finished < ?" if self.size_bytes() <= most_bytes else "OR finished < ?"
            rows = self._read(
                f"SELECT id FROM batches WHERE finished IS NOT NULL {limit} "
                f"ORDER BY finished LIMIT {_AT_ONCE}",
                before,
            )
            if not rows:
                break
            with self._writing() as db:
                for table, column in (("events", "batch"), ("jobs", "batch"), ("batches", "id")):
                    db.executemany(f"DELETE FROM {table} WHERE {column} = ?", rows)
            count += len(rows)
        if count:
            with self._lock:
                self._db.execute("PRAGMA incremental_vacuum").fetchall()
        return count


_FIELDS = "id, batch, place, state, request, outcome"


def _job(row: tuple[Any, ...]) -> StoredJob:
    name, batch, place, state, request, outcome = row
    told = json.loads(outcome) if outcome else None
    return StoredJob(name, batch, place, state, json.loads(request), told)
