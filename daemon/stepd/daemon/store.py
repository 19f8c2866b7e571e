"""The daemon's memory on disk: jobs, graphs, cost models, strategies and verdicts, in SQLite (WAL).

Every method commits before it returns, so what the daemon acknowledged survives a kill at any instant.
Knows rows and blobs, not what they mean.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepd.daemon.errors import StoreError
from stepd.daemon.migrations import MIGRATIONS


class Store:
    """One database file. Thread-safe."""

    def __init__(self, file: Path) -> None:
        """Open or make the database and bring it up to date. Raises StoreError."""
        self._lock = threading.Lock()
        self._file = file
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None, timeout=10)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._migrate()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot open the state in {file}: {error}; set another state_dir or move the file away") from error

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise StoreError(
                    f"cannot write the state to {self._file}: {error}; make room there, or set another state_dir"
                ) from error

    def _migrate(self) -> None:
        self._db.execute("CREATE TABLE IF NOT EXISTS migration (name TEXT PRIMARY KEY, applied_unix REAL NOT NULL)")
        done = {row["name"] for row in self._db.execute("SELECT name FROM migration")}
        unknown = done - {name for name, _ in MIGRATIONS}
        if unknown:
            raise StoreError(f"the state was written by a newer stepd (it knows {', '.join(sorted(unknown))}): update this one")
        for name, statements in MIGRATIONS:
            if name in done:
                continue
            with self._transaction() as db:
                for statement in statements:
                    db.execute(statement)
                db.execute("INSERT INTO migration VALUES (?, ?)", (name, time.time()))

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(
                    f"cannot read the state in {self._file}: {error}; stop stepd and move the file away, or set another state_dir"
                ) from error

    def put_job(self, job_id: str, info: Mapping[str, Any]) -> None:
        """Write a job's description (JSON values)."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO job (id, info, seen_unix) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET info = excluded.info, seen_unix = excluded.seen_unix",
                (job_id, json.dumps(info), time.time()),
            )

    def jobs(self, newer_than_unix: float = 0.0) -> dict[str, dict[str, Any]]:
        """Job descriptions by id, oldest first."""
        rows = self._rows("SELECT id, info FROM job WHERE seen_unix >= ? ORDER BY seen_unix", (newer_than_unix,))
        return {row["id"]: json.loads(row["info"]) for row in rows}

    def put_session(self, job_id: str, session_id: str, info: Mapping[str, Any]) -> None:
        """Write what a session's state is (JSON values)."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO session (job, id, info) VALUES (?, ?, ?) ON CONFLICT (job, id) DO UPDATE SET info = excluded.info",
                (job_id, session_id, json.dumps(info)),
            )

    def sessions(self, job_id: str) -> dict[str, dict[str, Any]]:
        """Session states by id."""
        return {row["id"]: json.loads(row["info"]) for row in self._rows("SELECT id, info FROM session WHERE job = ?", (job_id,))}

    def put_graph(self, fingerprint: str, report: bytes) -> None:
        """Write a graph report, compressed."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO graph VALUES (?, ?)", (fingerprint, zlib.compress(report, 1)))

    def graph(self, fingerprint: str) -> bytes | None:
        """The report of a graph."""
        rows = self._rows("SELECT report FROM graph WHERE fingerprint = ?", (fingerprint,))
        return zlib.decompress(rows[0]["report"]) if rows else None

    def fingerprints(self) -> list[str]:
        """Graphs that need not be sent again."""
        return [row["fingerprint"] for row in self._rows("SELECT fingerprint FROM graph ORDER BY rowid DESC LIMIT 1000")]

    def put_models(self, fingerprint: str, devices: str, blob: bytes) -> None:
        """Write the cost models of a graph on a set of devices."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?)", (fingerprint, devices, blob))

    def models(self, fingerprint: str, devices: str) -> bytes | None:
        """The cost models of a graph on a set of devices."""
        rows = self._rows("SELECT blob FROM models WHERE fingerprint = ? AND devices = ?", (fingerprint, devices))
        return bytes(rows[0]["blob"]) if rows else None

    def put_strategy(self, strategy_id: str, fingerprint: str, blob: bytes) -> None:
        """Write a strategy as it is sent."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO strategy VALUES (?, ?, ?)", (strategy_id, fingerprint, blob))

    def strategy(self, strategy_id: str) -> bytes | None:
        """A strategy as it was sent."""
        rows = self._rows("SELECT blob FROM strategy WHERE id = ?", (strategy_id,))
        return bytes(rows[0]["blob"]) if rows else None

    def put_trial(self, job_id: str, key: str, fingerprint: str, devices: str, info: Mapping[str, Any]) -> bool:
        """Write a verdict. False: it was there already (hooks send verdicts again after a reconnect)."""
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT OR IGNORE INTO trial (job, key, fingerprint, devices, info) VALUES (?, ?, ?, ?, ?)",
                (job_id, key, fingerprint, devices, json.dumps(info)),
            )
            return cursor.rowcount > 0

    def trials(self, job_id: str) -> list[dict[str, Any]]:
        """A job's verdicts in the order of arrival."""
        return [json.loads(row["info"]) for row in self._rows("SELECT info FROM trial WHERE job = ? ORDER BY rowid", (job_id,))]

    def trials_of_graph(self, fingerprint: str, devices: str) -> list[dict[str, Any]]:
        """Verdicts of any job on a graph and a set of devices."""
        query = "SELECT info FROM trial WHERE fingerprint = ? AND devices = ? ORDER BY rowid"
        return [json.loads(row["info"]) for row in self._rows(query, (fingerprint, devices))]

    def begin_trial(self, job_id: str, session_id: str, strategy_id: str, fingerprint: str, devices: str) -> None:
        """Write down what a session is about to try."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO on_trial VALUES (?, ?, ?, ?, ?)", (job_id, session_id, strategy_id, fingerprint, devices)
            )

    def end_trial(self, job_id: str, session_id: str) -> None:
        """A session tries nothing any more."""
        with self._transaction() as db:
            db.execute("DELETE FROM on_trial WHERE job = ? AND session = ?", (job_id, session_id))

    def on_trial(self, fingerprint: str, devices: str) -> list[tuple[str, str, str]]:
        """(job, session, strategy) of trials on a graph and a set of devices that have not ended."""
        query = "SELECT job, session, strategy FROM on_trial WHERE fingerprint = ? AND devices = ? ORDER BY rowid"
        return [(row["job"], row["session"], row["strategy"]) for row in self._rows(query, (fingerprint, devices))]
