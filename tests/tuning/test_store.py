# SPDX-License-Identifier: Apache-2.0
"""The options store: whatever happens to its files, the answer is options, with one warning."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from tcsym.index.expr import TRUE
from tcsym.options import Options
from tcsym.sizes.region import Region
from tcsym.target.target import Target
from tcsym.tuning import candidates_for, lookup, shipped, warn
from tcsym.tuning import database as database_module
from tcsym.tuning.database import VERSION, Database
from tcsym.tuning.machine import machine_key
from tcsym.tuning.rows import Chosen, Fastest, Trial, Tuned, tuned_from
from tcsym.tuning.shipped import tuned_rows, tuned_text
from tests.targets import target_of

TARGET = replace(target_of("avx2"), name="cpu", cpu="some")
OTHER = replace(TARGET, cpu="other")
NARROW = replace(target_of("novector"), name="cpu", cpu="some")
PROGRAM = "ab" * 32
FAST = Options(chains=4)
TREE = {
    "if": "n0*n1 >= 4096",
    "then": {"options": {"chains": 4}},
    "else": {"options": {"parallelize": False}},
}


def tuned(program: str = PROGRAM, machine: str = machine_key(TARGET), tree: object = TREE) -> Tuned:
    measured = json.dumps([[32, 32, 32], [128, 128, 128]])
    return Tuned(
        program, machine, "2p1r", json.dumps(tree), measured, 1.25, "2026-01-01", "mm", "def mm"
    )


def trial(k: int, program: str = PROGRAM) -> Trial:
    return Trial(
        program, machine_key(TARGET), "v1", FAST.to_json(), f"[{k}]", "measured", "", 0.9, 1e-5,
        0.01, "2026-01-01",
    )  # fmt: skip


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warn, "_warned", [])
    monkeypatch.setattr(shipped, "DIRECTORY", str(tmp_path / "none"))
    yield tmp_path
    for path in tmp_path.rglob("*"):
        path.chmod(0o700)


@pytest.fixture
def database(base: Path) -> Database:
    found = Database.at(str(base))
    assert found is not None
    return found


def options_found(target: Target = TARGET) -> list[tuple[Options, str]]:
    return [(r.options, r.origin) for r in lookup(PROGRAM, target, ("M", "N", "K"))]


ANALYTIC = [(Options(), "analytic")]
FROM_USER = [(FAST, "user"), (Options(parallelize=False), "user")]


def test_what_is_put_is_found_for_this_machine_only(database: Database) -> None:
    assert options_found() == ANALYTIC
    assert database.put([tuned(), trial(1), trial(2)])
    assert options_found() == FROM_USER
    assert options_found(OTHER) == ANALYTIC
    assert database.select(Tuned) == [tuned()]
    assert database.select(Trial) == [trial(1), trial(2)]
    contexts = [str(r.context) for r in lookup(PROGRAM, TARGET, ("M", "N", "K"))]
    assert all("'M', 'N'" in c for c in contexts)


def test_a_tuned_program_replaces_and_is_seen_at_once(database: Database) -> None:
    database.put([tuned()])
    assert len(options_found()) == 2
    database.put([tuned(tree={"options": {"min_work_per_thread": 2}})])
    assert options_found() == [(Options(min_work_per_thread=2), "user")]
    assert database.delete(Tuned, "program = ?", [PROGRAM]) == 1
    assert options_found() == ANALYTIC


def test_the_store_can_be_switched_off(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.put([tuned()])
    monkeypatch.setenv("TCSYM_OPTIONS", "0")
    assert options_found() == ANALYTIC


def test_looking_up_again_opens_no_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.put([tuned()])
    options_found()
    options_found()  # the first reader may have tidied the log, which looks like a change
    monkeypatch.delattr(sqlite3, "connect")
    assert options_found() == FROM_USER


def test_a_full_transaction_or_nothing(database: Database) -> None:
    bad = Trial(*([object()] * 11))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        database.put([trial(1), bad])
    assert database.select(Trial) == []


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes(database: Database, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    database.put([tuned(), *map(trial, range(50))])
    rng = random.Random(seed)
    content = bytearray(Path(database.path).read_bytes())
    for _ in range(1 + seed):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    Path(database.path).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert options_found() in (FROM_USER, ANALYTIC)
        known = list(map(trial, range(50)))
        assert all(row in known for row in database.select(Trial))
        database.put([trial(99)])
        options_found()
    assert len(caplog.records) <= 1


@pytest.mark.parametrize("kept", [0, 1, 15, 16, 100, 1000, 4096, 5000, 8192])
def test_truncation(database: Database, kept: int, caplog: pytest.LogCaptureFixture) -> None:
    database.put([tuned(), *map(trial, range(200))])
    os.truncate(database.path, kept)
    with caplog.at_level(logging.WARNING):
        assert options_found() in (FROM_USER, ANALYTIC)
        assert database.put([tuned(), trial(7)])
        assert options_found() == FROM_USER
    assert trial(7) in database.select(Trial)
    assert len(caplog.records) <= 1


def test_rows_survive_the_rescue_of_a_damaged_file(database: Database) -> None:
    rows = [trial(k, f"{k:064}") for k in range(400)]
    database.put(rows)
    with contextlib.closing(sqlite3.connect(database.path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'trials_of'"
        page = connection.execute(query).fetchone()[0]
    content = bytearray(Path(database.path).read_bytes())
    content[4096 * (page - 1) : 4096 * page] = bytes(4096)  # the index: writing fails
    Path(database.path).write_bytes(content)
    assert database.put([trial(1000)])
    assert database.select(Trial) == [*rows, trial(1000)]
    aside = Path(database.directory).glob("*.damaged-*")
    assert len([p for p in aside if not p.name.endswith(("-wal", "-shm"))]) == 1


def test_any_file_at_all_is_moved_aside(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    Path(database.path).write_bytes(b"not a database, but long enough to be read as one" * 100)
    with caplog.at_level(logging.WARNING):
        assert options_found() == ANALYTIC
        assert database.put([tuned()])
    assert options_found() == FROM_USER
    assert len(caplog.records) == 1
    aside = Path(database.directory).glob("*.damaged-*")
    assert len([p for p in aside if not p.name.endswith(("-wal", "-shm"))]) == 1


def test_a_newer_version_is_left_alone(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.put([tuned()])
    with sqlite3.connect(database.path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = Path(database.path).read_bytes()
    with caplog.at_level(logging.WARNING):
        assert options_found() == ANALYTIC
        assert not database.put([trial(1)])
    assert Path(database.path).read_bytes() == before
    assert len(caplog.records) == 1
    assert "newer" in caplog.text


def test_an_older_version_is_migrated_and_loses_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.put([tuned(), trial(1)])
    change = ("ALTER TABLE trials ADD COLUMN threads INTEGER DEFAULT 1",)
    monkeypatch.setattr(database_module, "_MIGRATIONS", (*database_module._MIGRATIONS, change))
    monkeypatch.setattr(database_module, "VERSION", VERSION + 1)
    assert options_found() == FROM_USER  # reading needs no renewal
    assert database.put([trial(2)])
    assert database.select(Trial) == [trial(1), trial(2)]
    assert options_found() == FROM_USER


def test_options_of_another_schema_are_not_used(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    for unknown in ({"schema": 999}, {"warp_tiles": 3}, {"chains": 10**9}):
        database.put([tuned(tree={"options": unknown})])
        with caplog.at_level(logging.WARNING):
            assert options_found() == ANALYTIC
    assert len(caplog.records) == 1


def test_a_locked_store_is_read_and_not_waited_for(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database.put([tuned()])
    monkeypatch.setattr(database_module, "_WRITE_SECONDS", 0.05)
    holder = sqlite3.connect(database.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with caplog.at_level(logging.WARNING):
        assert options_found() == FROM_USER
        assert not database.put([trial(1)])
    holder.execute("ROLLBACK")
    holder.close()
    assert len(caplog.records) == 1
    assert database.put([trial(1)])


def test_a_full_disk_keeps_what_was_there(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database.put([tuned()])
    real = sqlite3.connect

    def full(path: str, **settings: object) -> sqlite3.Connection:
        connection = real(path, **settings)  # type: ignore[call-overload]
        if "uri" not in settings:
            connection.execute("PRAGMA max_page_count = 10")
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", full)
    with caplog.at_level(logging.WARNING):
        assert not database.put(list(map(trial, range(1000))))
        assert options_found() == FROM_USER
    assert "full" in caplog.text
    assert database.select(Trial) == []


def _as_nobody(directory: str, found: multiprocessing.Queue[object]) -> None:
    os.setuid(65534)
    found.put((options_found(), Database(f"{directory}/options").put([trial(3)])))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: only root can")
def test_a_read_only_store_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        monkeypatch.setenv("TCSYM_CACHE_DIR", directory)
        database = Database.at(directory)
        assert database is not None
        database.put([tuned()])
        for path in (database.path, database.directory):
            os.chown(path, 65534, 65534)
            os.chmod(path, 0o500)
        context = multiprocessing.get_context("fork")
        found: multiprocessing.Queue[object] = context.Queue()
        process = context.Process(target=_as_nobody, args=(directory, found))
        process.start()
        assert found.get(timeout=20) == (FROM_USER, False)
        process.join()


def test_a_store_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(warn, "_warned", [])
    with caplog.at_level(logging.WARNING):
        assert Database.at(str(tmp_path / "file")) is None
        assert options_found() == ANALYTIC
    assert len(caplog.records) == 1


def _write_some(path: str, k: int) -> None:
    database = Database(path)
    for j in range(5):
        assert database.put([trial(100 * k + j), tuned(f"{k:064}")])


def test_sixteen_writers_lose_nothing(database: Database) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_some, args=(database.directory, k)) for k in range(16)]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    assert [w.exitcode for w in writers] == [0] * 16
    assert len(database.select(Trial)) == 80
    assert len(database.select(Tuned)) == 16


def _write_for_ever(path: str) -> None:
    k = 0
    while True:
        Database(path).put([trial(k)])
        k += 1


def test_a_killed_writer_leaves_whole_rows(database: Database) -> None:
    database.put([tuned()])
    context = multiprocessing.get_context("fork")
    for _ in range(4):
        writer = context.Process(target=_write_for_ever, args=(database.directory,))
        writer.start()
        time.sleep(0.05)
        writer.kill()
        writer.join()
        assert options_found() == FROM_USER
    assert database.put([trial(5)])
    assert trial(5) in database.select(Trial)


# ---- the shipped store


def test_shipped_options_serve_machines_with_such_vectors(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "DIRECTORY", str(base))
    rows = [
        tuned(),
        tuned(machine=machine_key(NARROW), tree={"options": {"min_work_per_thread": 1}}),
    ]
    (base / shipped.file_name("mm", PROGRAM)).write_text(tuned_text(rows))
    shipped._paths.cache_clear()
    in_shipped = [(options, "shipped") for options, _ in FROM_USER]
    monkeypatch.setattr(shipped.shipped, "__defaults__", (str(base),))
    from tcsym.tuning.stores import _regions

    _regions.cache_clear()
    assert options_found() == in_shipped
    assert options_found(OTHER) == in_shipped
    assert options_found(NARROW) == [(Options(min_work_per_thread=1), "shipped")]
    Database(str(base / "options"))
    user = Database.at(str(base))
    assert user is not None
    user.put([tuned(tree={"options": {}})])
    assert options_found() == [(Options(), "user")]
    _regions.cache_clear()
    shipped._paths.cache_clear()


def test_shipped_text_gives_equal_rows_back() -> None:
    rows = [
        tuned(),
        tuned(machine=machine_key(NARROW), tree={"options": {"min_work_per_thread": 1}}),
    ]
    text = tuned_text(rows)
    assert sorted(tuned_rows(text), key=str) == sorted(rows, key=str)
    assert tuned_text(reversed(rows)) == text
    assert '"if": "n0*n1 >= 4096"' in text


def test_candidates_are_shipped_with_the_tree() -> None:
    others = [{"chains": 6}, {"min_work_per_thread": 2}]
    row = tuned(tree={**TREE, "candidates": others})
    (back,) = tuned_rows(tuned_text([row]))
    assert json.loads(back.tree)["candidates"] == others


def test_candidates_are_found_and_never_fail(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    assert candidates_for(PROGRAM, TARGET, 3) == ()
    database.put([tuned(tree={**TREE, "candidates": [{"min_work_per_thread": 2}]})])
    found = candidates_for(PROGRAM, TARGET, 3)
    assert found == (FAST, Options(parallelize=False), Options(min_work_per_thread=2))
    database.put([tuned(tree={**TREE, "candidates": [{"of another": 2}]})])
    assert candidates_for(PROGRAM, TARGET, 3) == ()
    assert options_found() == FROM_USER and "are not used" in caplog.text


def test_what_was_kept_without_being_confirmed_serves_no_more(database: Database) -> None:
    """A file of an older version: none of its options serve, and it is renewed by the next row."""
    row = Fastest(PROGRAM, "m", "q", "[1, 2, 3]", FAST.to_json(), 2e-6, 1e-6, "2026", "mm")
    way = Chosen(PROGRAM, "m", "q", "{}", "symbolic", "2026", "mm")
    database.put([tuned(), trial(1), way])
    with contextlib.closing(sqlite3.connect(database.path)) as connection:
        connection.execute("DROP TABLE fastest")
        connection.execute("PRAGMA user_version = 2")
        connection.commit()
    for _ in range(2):
        assert database.select(Tuned) == database.select(Trial) == []
        assert options_found() == ANALYTIC and database.select(Chosen) == [way]
        assert database.put([row]) and database.select(Fastest) == [row]


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"schema": 99}', "\x00", '{"schema": 1}'])
def test_a_damaged_shipped_file_is_no_file(base: Path, damage: str) -> None:
    (base / shipped.file_name("mm", PROGRAM)).write_text(damage)
    shipped._paths.cache_clear()
    assert shipped.shipped(PROGRAM, str(base)) == []
    shipped._paths.cache_clear()


@pytest.mark.parametrize("measured", ["[]", "[3]", "[[1, 2], [3]]", '[["a"]]', "{}", "[[1.5]]"])
def test_what_tells_no_sizes_is_no_tuned_program(measured: str) -> None:
    """Whoever asks how far sizes are from measured ones would fail."""
    row = replace(tuned(), measured=measured)
    with pytest.raises(ValueError, match="no sizes"):
        tuned_from(asdict(row))


def test_region_without_context_means_all_sizes() -> None:
    assert Region(FAST).context == TRUE
