"""How the database came to be: named steps, each applied once in a transaction of its own. Append; never
edit one that was released.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "0001-first",
        (
            "CREATE TABLE job (id TEXT PRIMARY KEY, info TEXT NOT NULL, seen_unix REAL NOT NULL)",
            "CREATE TABLE session (job TEXT NOT NULL, id TEXT NOT NULL, info TEXT NOT NULL, PRIMARY KEY (job, id))",
            "CREATE TABLE graph (fingerprint TEXT PRIMARY KEY, report BLOB NOT NULL)",
            "CREATE TABLE models (fingerprint TEXT NOT NULL, devices TEXT NOT NULL, blob BLOB NOT NULL,"
            " PRIMARY KEY (fingerprint, devices))",
            "CREATE TABLE strategy (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, blob BLOB NOT NULL)",
            "CREATE TABLE trial (job TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, devices TEXT NOT NULL,"
            " info TEXT NOT NULL, UNIQUE (job, key))",
            "CREATE INDEX trial_of_graph ON trial (fingerprint, devices)",
        ),
    ),
    (
        "0002-on-trial",
        (
            "CREATE TABLE on_trial (job TEXT NOT NULL, session TEXT NOT NULL, strategy TEXT NOT NULL, fingerprint TEXT NOT NULL,"
            " devices TEXT NOT NULL, PRIMARY KEY (job, session))",
        ),
    ),
)
