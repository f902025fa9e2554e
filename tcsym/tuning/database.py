# SPDX-License-Identifier: Apache-2.0
"""The user's options store: SQLite in WAL mode, one row a tuned program, one a trial, one a choice.

It never raises to its user and never changes a result. A row with a wrong checksum does not exist;
a damaged file is moved aside and what can be read of it is kept; a newer file is left alone; a
locked, full or read-only one means going on without, with one warning in a process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote

from tcsym.runtime.cache import kept_directory
from tcsym.tuning.rows import COLUMNS, Chosen, Fastest, Trial, Tuned, checksum, values
from tcsym.tuning.rows import Row as AnyRow
from tcsym.tuning.warn import warn_once

FILE = "options.db"
SIZES_FILE = "sizes.db"  # what programs add as they run: it is no news for what is tuned
VERSION = CONFIRMED_SINCE = 4
_SUFFIXES = ("", "-wal", "-shm", "-journal")  # of SQLite's files
_READ_SECONDS, _WRITE_SECONDS = 0.25, 20.0
_TABLES: dict[type, str] = {
    Tuned: "tuned",
    Trial: "trials",
    Chosen: "chosen",
    Fastest: "fastest",
}
# statements that turn a database of version k into one of version k + 1
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE tuned (program TEXT, machine TEXT, structure TEXT, tree TEXT, measured TEXT,"
        " gain REAL, created TEXT, name TEXT, text TEXT, checksum TEXT,"
        " PRIMARY KEY (program, machine))",
        "CREATE TABLE trials (id INTEGER PRIMARY KEY, program TEXT, machine TEXT, compiler TEXT,"
        " options TEXT, sizes TEXT, state TEXT, reason TEXT, ratio REAL, seconds REAL, noise REAL,"
        " created TEXT, checksum TEXT)",
        "CREATE INDEX trials_of ON trials (program, machine, compiler)",
        "CREATE INDEX tuned_like ON tuned (structure, machine)",
    ),
    (
        "CREATE TABLE chosen (program TEXT, machine TEXT, question TEXT, measured TEXT, way TEXT,"
        " created TEXT, name TEXT, checksum TEXT, PRIMARY KEY (program, machine, question))",
    ),
    (
        "CREATE TABLE fastest (program TEXT, machine TEXT, question TEXT, sizes TEXT, options TEXT,"
        " before REAL, seconds REAL, created TEXT, name TEXT, checksum TEXT,"
        " PRIMARY KEY (program, machine, question, sizes))",
    ),
    # what was kept before had not been confirmed, and its times were not those of calls
    ("DELETE FROM tuned", "DELETE FROM trials", "DELETE FROM fastest"),
)
Row = TypeVar("Row", Tuned, Trial, Chosen, Fastest)
Result = TypeVar("Result")


class Database:
    """The store in one directory; every operation opens the file anew, so forks share nothing."""

    def __init__(self, directory: str, file: str = FILE) -> None:
        self.directory = directory
        self.path = os.path.join(directory, file)

    @staticmethod
    def at(base: str | None, file: str = FILE) -> Database | None:
        """The store below `base` (default: the user's cache directory), None if there is none."""
        try:
            return Database.opened(base, file)
        except OSError as error:
            warn_once(f"no options store: {error}")
            return None

    @staticmethod
    def opened(base: str | None, file: str = FILE) -> Database:
        """As `at`, but OSError says why there is none."""
        directory = kept_directory(base, "options")
        directory.require_own(*(f"{file}{suffix}" for suffix in _SUFFIXES))
        return Database(directory.path, file)

    def exists(self) -> bool:
        """False also for the empty file that a writer leaves that is killed while making it."""
        try:
            return os.stat(self.path).st_size > 0
        except OSError:
            return False

    # ---- reading

    def select(
        self, kind: type[Row], where: str = "1", parameters: Sequence[str] = ()
    ) -> list[Row]:
        """Rows that verify, in the order of writing; none if the file cannot be read."""
        if not self.exists():
            return []
        try:
            return self._read(lambda c: _selected(c, kind, where, parameters))
        except sqlite3.Error as error:
            warn_once(f"cannot read the options store {self.path}: {error}")
            return []

    def _read(self, action: Callable[[sqlite3.Connection], Result]) -> Result:
        """Without its index a WAL file cannot be read where nothing can be written: ignore it."""
        uri = f"file:{quote(self.path)}?mode=ro"
        try:
            return self._read_at(uri, action)
        except sqlite3.OperationalError:
            if os.access(self.directory, os.W_OK):
                raise
            return self._read_at(f"{uri}&immutable=1", action)

    def _read_at(self, uri: str, action: Callable[[sqlite3.Connection], Result]) -> Result:
        connection = sqlite3.connect(uri, uri=True, timeout=_READ_SECONDS)
        with contextlib.closing(connection):
            if _version(connection) > VERSION:
                raise sqlite3.NotSupportedError(_version_text(_version(connection)))
            return action(connection)

    # ---- writing

    def put(self, rows: Iterable[AnyRow]) -> bool:
        """Keep `rows`, all or none; a tuned program replaces what was known of it. False: not."""
        given = tuple(rows)

        return self._write(lambda connection: _insert(connection, given))

    def delete(self, kind: type[Row], where: str, parameters: Sequence[str] = ()) -> int:
        """Remove rows; how many."""
        counted: list[int] = []

        def remove(connection: sqlite3.Connection) -> None:
            cursor = connection.execute(f"DELETE FROM {_TABLES[kind]} WHERE {where}", parameters)
            counted.append(cursor.rowcount)

        return counted[-1] if self._write(remove) and counted else 0

    def _write(self, action: Callable[[sqlite3.Connection], None]) -> bool:
        try:
            try:
                self._write_once(action)
            except (sqlite3.OperationalError, sqlite3.NotSupportedError):
                raise
            except sqlite3.DatabaseError:
                self._rescue(action)
        except (sqlite3.Error, OSError) as error:
            warn_once(f"cannot write the options store {self.path}: {error}")
            return False
        return True

    def _write_once(self, action: Callable[[sqlite3.Connection], None]) -> None:
        connection = sqlite3.connect(self.path, timeout=_WRITE_SECONDS, isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("PRAGMA synchronous = NORMAL")
            _switch_to_wal(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                _migrate(connection)
                action(connection)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _rescue(self, action: Callable[[sqlite3.Connection], None]) -> None:
        """Move a damaged file aside, write what can be read of it into a new one, then `action`."""
        with open(f"{self.path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(sqlite3.DatabaseError):
                return self._write_once(action)  # another process was here first
            self._replace_damaged()
            return self._write_once(action)

    def _replace_damaged(self) -> None:
        damaged = f"{self.path}.damaged-{os.getpid()}-{os.urandom(3).hex()}"
        warn_once(f"the options store is damaged, kept as {damaged}")
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.path + suffix, damaged + suffix)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}-shm")
        kept = [row for kind in _TABLES for row in _salvaged(damaged, kind)]
        self._write_once(lambda connection: _insert(connection, kept))


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """The mode is kept in the file; a first writer may meet another that is switching, too."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _version_text(version: int) -> str:
    return f"it is of version {version}, newer than this tcsym, which reads {VERSION}"


def _migrate(connection: sqlite3.Connection) -> None:
    version = _version(connection)
    if version > VERSION:
        raise sqlite3.NotSupportedError(_version_text(version))
    for statements in _MIGRATIONS[version:VERSION]:
        for statement in statements:
            connection.execute(statement)
    if version != VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _insert(connection: sqlite3.Connection, rows: Sequence[AnyRow]) -> None:
    for row in rows:
        kind = type(row)
        names = ", ".join((*COLUMNS[kind], "checksum"))
        marks = ", ".join("?" * (len(COLUMNS[kind]) + 1))
        connection.execute(
            f"INSERT OR REPLACE INTO {_TABLES[kind]} ({names}) VALUES ({marks})",
            (*values(row), checksum(row)),
        )


def _selected(
    connection: sqlite3.Connection, kind: type[Row], where: str, parameters: Sequence[str]
) -> list[Row]:
    """A file of an older version has fewer tables; it is renewed when something is kept."""
    exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if kind is not Chosen and _version(connection) < CONFIRMED_SINCE:
        return []
    if not connection.execute(exists, (_TABLES[kind],)).fetchone():
        return []
    return list(_rows(connection, kind, where, parameters))


def _rows(
    connection: sqlite3.Connection, kind: type[Row], where: str, parameters: Sequence[str]
) -> Iterator[Row]:
    names = ", ".join((*COLUMNS[kind], "checksum"))
    query = f"SELECT {names} FROM {_TABLES[kind]} WHERE {where} ORDER BY rowid"
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for *columns, given in connection.execute(query, parameters):
        row = kind(*columns)
        with contextlib.suppress(TypeError):  # a damaged column may even have another type
            if checksum(row) == given:
                yield row


def _salvaged(path: str, kind: type[Row]) -> list[Row]:
    """The rows of a damaged file up to where reading fails."""
    found: list[Row] = []
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)
        with contextlib.closing(connection):
            found += _rows(connection, kind, "1", ())
    return found
