# SPDX-License-Identifier: Apache-2.0
"""Code cache: what was stored comes back or is a miss, whatever happens to files and processes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tcsym.errors import Span
from tcsym.index.expr import Index, floordiv, var
from tcsym.ir.compiled import Compiled, Fault
from tcsym.runtime import cache as cache_module
from tcsym.runtime.cache import CodeCache
from tests.assembled import assemble
from tests.targets import target_of

OBJECT = assemble("define i32 @tcsym_kernel(ptr %b, ptr %s, ptr %c) {\n ret i32 0\n}")
COMPILED = Compiled(
    object_code=OBJECT.ljust(5120, b"-"),
    sizes=("N", "M"),
    arguments=("A", "C"),
    faults=(Fault("bounds", "`A` is read out of bounds", Span(2, 3, 4)),),
    shared_bytes=var("N") * 4 + floordiv(var("M"), 8) * 32,
    private_bytes=Index((), 64),
    notes=("no packing: too small",),
    device_code=b".version 7.0\n",
    device_functions=("tcsym_task0",),
)
TARGET = target_of("novector")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodeCache:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "made" / "on demand"))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    monkeypatch.setattr(cache_module, "_warned", [])
    cache_module._cache_at.cache_clear()
    return CodeCache.default()


def only_file(cache: CodeCache) -> Path:
    assert cache.directory is not None
    (path,) = Path(cache.directory).iterdir()
    return path


def test_what_is_stored_is_loaded(cache: CodeCache) -> None:
    assert cache.load("k1") is None
    cache.store("k1", COMPILED, {"program": "mm"})
    assert cache.load("k1") == COMPILED
    (entry,) = cache.entries()
    assert (entry.key, entry.manifest["program"]) == ("k1", "mm")
    assert cache.total_bytes() == entry.bytes == only_file(cache).stat().st_size


def test_directory_is_private(cache: CodeCache) -> None:
    assert cache.directory is not None
    assert os.stat(cache.directory).st_mode & 0o777 == 0o700


def test_every_flipped_byte_is_a_miss_and_removed(cache: CodeCache) -> None:
    cache.store("k", replace(COMPILED, object_code=OBJECT))
    path = only_file(cache)
    good = path.read_bytes()
    for k in range(len(good)):
        path.write_bytes(good[:k] + bytes([good[k] ^ 0x10]) + good[k + 1 :])
        assert cache.load("k") is None, k
        assert not path.exists()
    path.write_bytes(good)
    assert cache.load("k") is not None


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_truncated_entries_are_misses(cache: CodeCache, part: float) -> None:
    cache.store("k", COMPILED)
    path = only_file(cache)
    os.truncate(path, int(path.stat().st_size * part))
    assert cache.entries()[0].manifest == {}
    assert cache.load("k") is None
    assert not path.exists()


def test_entry_under_another_name_is_a_miss(cache: CodeCache) -> None:
    cache.store("k", COMPILED)
    path = only_file(cache)
    path.rename(path.with_stem("other"))
    assert cache.load("other") is None


def test_manifest_of_another_form_is_a_miss(cache: CodeCache) -> None:
    cache.write("k", {"compiled": {"sizes": 3}}, b"")
    assert cache.load("k") is None
    assert cache.entries() == ()


def test_eviction_keeps_what_was_used_last(cache: CodeCache) -> None:
    for k in range(6):
        cache.store(f"k{k}", COMPILED)
    assert cache.directory is not None
    for k in range(6):
        os.utime(Path(cache.directory, f"k{k}.tco"), (1000 + k, 1000 + k))
    assert cache.load("k0") is not None  # used now
    size = cache.entries()[0].bytes
    assert cache.prune(3 * size) == 3
    assert [e.key for e in cache.entries()] == ["k0", "k5", "k4"]
    assert cache.clear() == 3
    assert cache.entries() == ()


def test_stores_keep_the_cache_bounded(cache: CodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_STORES_BETWEEN_PRUNES", 4)
    small = CodeCache(cache.directory, max_bytes=20_000)
    for k in range(40):
        small.store(f"k{k}", COMPILED)
    assert small.total_bytes() <= 20_000 + 4 * 6000


def test_left_over_temporary_files_are_removed_when_stale(cache: CodeCache) -> None:
    assert cache.directory is not None
    old, young = (Path(cache.directory, name) for name in (".tmp-1-aa", ".tmp-2-bb"))
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    cache.prune(10**9)
    assert not old.exists()
    assert young.exists()


# ---- trouble with the file system: works without, one warning


@pytest.mark.parametrize("directory", ["/dev/null/cache", "/proc/no/such"])
def test_unusable_directory(
    cache: CodeCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    directory: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("TCSYM_CACHE_DIR", directory)
    with caplog.at_level(logging.WARNING, "tcsym"):
        for _ in range(3):
            none = CodeCache.default()
            none.store("k", COMPILED)
            assert none.load("k") is None
            assert none.entries() == ()
            assert none.clear() == 0
    assert len(caplog.records) == 1


def test_full_or_read_only_disk(
    cache: CodeCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.store("there", COMPILED)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    with caplog.at_level(logging.WARNING, "tcsym"):
        for k in range(3):
            cache.store(f"k{k}", COMPILED)
    assert cache.load("k0") is None
    assert cache.load("there") == COMPILED
    assert len(caplog.records) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_read_only_directory() -> None:
    """In a child that is not root: root may write everywhere."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        CodeCache(directory).store("there", COMPILED)
        user = os.getuid() or 65534
        for p in (path, *path.iterdir()):
            os.chown(p, user, -1)
        path.chmod(0o500)

        def works_without() -> bool:
            os.setuid(user)
            cache = CodeCache(directory)
            cache.store("k", COMPILED)
            cache.prune(0)
            return cache.load("k") is None and cache.load("there") == COMPILED

        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if works_without() else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        path.chmod(0o700)


def test_no_home(cache: CodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TCSYM_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert CodeCache.default().directory is None


def test_directory_of_another_user_is_refused(
    cache: CodeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    cache_module._cache_at.cache_clear()
    assert CodeCache.default().directory is None


def test_switch_turns_it_off(cache: CodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store("k", COMPILED)
    monkeypatch.setenv("TCSYM_CACHE", "0")
    assert CodeCache.default().load("k") is None


# ---- several processes

WRITER = """
import sys
sys.path.insert(0, {directory!r})
import test_cache as t
cache = t.CodeCache.default()
mine = t.replace(t.COMPILED, notes=(sys.argv[1],))
for turn in range(60):
    for k in range(4):
        cache.store(f"k{{k}}", mine)
        found = cache.load(f"k{{(k + turn) % 4}}")
        assert found is None or found.object_code == t.COMPILED.object_code
    if turn % 10 == 0:
        cache.prune(6000)
    print(turn, flush=True)
"""


def test_concurrent_writers_one_killed(cache: CodeCache) -> None:
    script = WRITER.format(directory=str(Path(__file__).parent))
    writers = [
        subprocess.Popen([sys.executable, "-c", script, name], stdout=subprocess.PIPE)
        for name in "abc"
    ]
    assert writers[0].stdout is not None
    writers[0].stdout.readline()
    writers[0].kill()
    for w in writers[1:]:
        w.communicate(timeout=60)
        assert w.returncode == 0
    writers[0].communicate()
    for entry in cache.entries():
        assert entry.manifest
        assert cache.load(entry.key) is not None
