"""The store: durability, one outcome a job, idempotency, ownership, schema, pruning."""

from __future__ import annotations

import sqlite3

import pytest

from kernelgym import UsageError
from kernelgym.serve import store as module
from kernelgym.serve.store import JobStore, OtherBody

REQUESTS = [{"kernel": {"source": "\ud800"}}, {"kernel": {"source": "b"}}]
DONE = {"verdict": {"status": "wrong"}}


@pytest.fixture
def store(tmp_path):
    with_folder = JobStore(tmp_path / "state")
    yield with_folder
    with_folder.close()


def test_jobs_survive_a_restart_and_begun_ones_are_queued_in_their_old_place(tmp_path) -> None:
    store = JobStore(tmp_path / "state")
    _, (first, second), _ = store.add("a", "k", "d", REQUESTS, 1.0)
    _, (third,), _ = store.add("b", "k", "d", REQUESTS[:1], 1.0)
    assert store.start(first).request == REQUESTS[0] and store.requeued == 0
    store.finish(third, DONE, 2.0)
    store.close()
    store = JobStore(tmp_path / "state")
    assert store.requeued == 1
    assert store.waiting() == [("a", first), ("a", second)]
    assert store.job("b", third).outcome == DONE
    store.close()


def test_job_gets_its_first_outcome_only(store) -> None:
    batch, (job,), _ = store.add("a", "k", "d", REQUESTS[:1], 1.0)
    store.start(job)
    assert store.finish(job, DONE, 2.0) == batch
    assert store.finish(job, {"error": {}}, 3.0) == ""
    assert store.job("a", job).outcome == DONE
    assert [event.kind for event in store.events(batch, 0)].count("verdict") == 1


def test_idempotency_key_with_the_same_body_is_the_same_batch_and_with_another_refused(
    store,
) -> None:
    first = store.add("a", "k", "d", REQUESTS, 1.0)
    assert store.add("a", "k", "d", REQUESTS, 9.0) == (*first[:2], False)
    with pytest.raises(OtherBody):
        store.add("a", "k", "e", REQUESTS, 1.0)
    assert store.add("b", "k", "e", REQUESTS, 1.0)[2], "keys of another tenant are its own"


def test_events_ascend_and_continue_after_a_number(store) -> None:
    batch, ids, _ = store.add("a", "k", "d", REQUESTS, 1.0)
    for job in ids:
        store.start(job)
        store.finish(job, DONE, 2.0)
    events = store.events(batch, 0)
    assert [event.number for event in events] == list(range(1, 8))
    kinds = ["queued", "queued", "started", "verdict", "started", "verdict", "done"]
    assert [event.kind for event in events] == kinds
    assert events[3].data == {"job": ids[0], "index": 0, **DONE}
    assert store.events(batch, 4) == events[4:]


def test_cancel_takes_queued_jobs_only_and_ends_the_batch(store) -> None:
    batch, (first, second), _ = store.add("a", "k", "d", REQUESTS, 1.0)
    store.start(first)
    assert store.cancel("b", [first, second], 2.0) == 0
    assert store.cancel("a", [first, second], 2.0) == 1
    assert store.start(second) is None and not store.is_done(batch)
    store.finish(first, DONE, 2.0)
    assert store.is_done(batch)
    assert [job.state for job in store.batch("a", batch).jobs] == ["done", "cancelled"]


def test_other_tenants_jobs_and_batches_are_unknown(store) -> None:
    batch, (job, _), _ = store.add("a", "k", "d", REQUESTS, 1.0)
    assert store.job("b", job) is None and store.batch("b", batch) is None
    assert not store.owns("b", batch) and store.owns("a", batch)


def test_second_owner_of_a_folder_is_refused_until_the_first_has_closed(tmp_path) -> None:
    store = JobStore(tmp_path / "state")
    with pytest.raises(UsageError, match="belongs to a server that is running"):
        JobStore(tmp_path / "state")
    store.close()
    store.close()
    JobStore(tmp_path / "state").close()


def test_newer_schema_is_refused_and_leaves_the_folder_free(tmp_path) -> None:
    store = JobStore(tmp_path / "state")
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for _ in range(2):
        with pytest.raises(UsageError, match="schema 99"):
            JobStore(tmp_path / "state")


def test_older_schema_is_copied_and_migrated(tmp_path, monkeypatch) -> None:
    store = JobStore(tmp_path / "state")
    _, (job,), _ = store.add("a", "k", "d", REQUESTS[:1], 1.0)
    store.close()
    more = (*module._MIGRATIONS, "ALTER TABLE jobs ADD COLUMN note TEXT DEFAULT 'n';")
    monkeypatch.setattr(module, "_MIGRATIONS", more)
    monkeypatch.setattr(module, "SCHEMA", 2)
    store = JobStore(tmp_path / "state")
    assert store._read("SELECT note FROM jobs") == [("n",)]
    assert store.waiting() == [("a", job)]
    store.close()
    with sqlite3.connect(tmp_path / "state" / "state.sqlite3.schema1") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT id FROM jobs").fetchall() == [(job,)]
    db.close()


def test_file_that_is_no_database_is_refused(tmp_path) -> None:
    (tmp_path / "state.sqlite3").write_text("text " * 1000)
    with pytest.raises(UsageError, match="cannot be used as a state file"):
        JobStore(tmp_path)


def test_prune_deletes_old_batches_then_the_oldest_above_the_size(store) -> None:
    batches = []
    for number in range(4):
        batch, (job,), _ = store.add("a", str(number), "d", REQUESTS[:1], 1.0)
        batches.append(batch)
        if number < 3:
            store.finish(job, {"verdict": "x" * 10_000}, float(number))
    assert store.prune(before=1.0, most_bytes=1e9) == 1
    assert store.batch("a", batches[0]) is None and store.batch("a", batches[1]) is not None
    before = store.size_bytes()
    assert store.prune(before=0.0, most_bytes=1.0) == 2
    assert store.size_bytes() < before
    assert store.owns("a", batches[3]), "a batch that is not finished stays"
    assert store.waiting() == [("a", job)]


def test_nothing_that_a_request_asks_for_reads_a_whole_table(store) -> None:
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    batch, (first, second, *_), _ = store.add("a", "k", "d", REQUESTS, 1.0)
    store.knows("a", "k"), store.queued("a"), store.counts(), store.overdue(2.0)
    store.start(first), store.queue_again(first), store.start(first)
    store.finish(first, DONE, 2.0), store.cancel("a", [second], 2.0)
    store.is_done(batch), store.owns("a", batch), store.events(batch, 0)
    store.batch("a", batch), store.job("a", first)
    store._db.set_trace_callback(None)
    for text in statements:
        if text.startswith(("SELECT", "UPDATE")):
            plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {text}")]
            assert not [each for each in plan if "SCAN" in each and "INDEX" not in each], text


def test_folder_in_the_place_of_the_state_file_is_a_usage_error_and_frees_the_lock(
    tmp_path,
) -> None:
    (tmp_path / "state.sqlite3").mkdir()
    for _ in range(2):
        with pytest.raises(UsageError, match="cannot be used: Is a directory"):
            JobStore(tmp_path)
