"""The database: what is written is there after a kill, old files are brought up to date, newer ones refused."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from stepd.daemon.errors import StoreError
from stepd.daemon.migrations import MIGRATIONS
from stepd.daemon.store import Store

WRITER = """
import sys
from pathlib import Path
from stepd.daemon.store import Store
store = Store(Path(sys.argv[1]))
for number in range(10**6):
    store.put_trial("job", f"key{number}", "graph", "devices", {"number": number, "strategy_id": "s", "outcome": "KEPT"})
    print(number, flush=True)
"""


def test_what_was_acknowledged_survives_kill_minus_9(tmp_path) -> None:
    file = tmp_path / "state" / "stepd.sqlite3"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
    acknowledged = -1
    for line in writer.stdout:
        acknowledged = int(line)
        if acknowledged == 200:
            os.kill(writer.pid, signal.SIGKILL)
            break
    writer.stdout.close()
    writer.wait()
    with closing(Store(file)) as store:
        numbers = [trial["number"] for trial in store.trials("job")]
    assert numbers[: acknowledged + 1] == list(range(acknowledged + 1))


def test_migrations_are_recorded_and_run_once(tmp_path) -> None:
    file = tmp_path / "db"
    Store(file).close()
    with closing(Store(file)) as store:
        store.put_strategy("s", "graph", b"blob")
        assert store.strategy("s") == b"blob"
    with closing(sqlite3.connect(file)) as database:
        assert [name for (name,) in database.execute("SELECT name FROM migration")] == [name for name, _ in MIGRATIONS]


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    broken = (*MIGRATIONS, ("9999-broken", ("CREATE TABLE half (x)", "CREATE NONSENSE")))
    monkeypatch.setattr("stepd.daemon.store.MIGRATIONS", broken)
    with pytest.raises(StoreError):
        Store(tmp_path / "db")
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "half" not in tables
    assert "job" in tables


def test_a_newer_database_is_refused(tmp_path) -> None:
    Store(tmp_path / "db").close()
    with closing(sqlite3.connect(tmp_path / "db")) as database, database:
        database.execute("INSERT INTO migration VALUES ('8000-future', 0)")
    with pytest.raises(StoreError, match="newer stepd"):
        Store(tmp_path / "db")


def test_a_file_that_is_no_database(tmp_path) -> None:
    (tmp_path / "db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="move the file away"):
        Store(tmp_path / "db")


def test_a_verdict_said_twice_is_one_trial(tmp_path) -> None:
    with closing(Store(tmp_path / "db")) as store:
        assert store.put_trial("job", "key", "g", "d", {"n": 1})
        assert not store.put_trial("job", "key", "g", "d", {"n": 1})
        assert store.trials("job") == [{"n": 1}]
        assert store.trials_of_graph("g", "d") == [{"n": 1}]
