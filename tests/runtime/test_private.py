# SPDX-License-Identifier: Apache-2.0
"""What another user could have put into the caches is not used, whatever way it came there."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tcsym.index.expr import Index
from tcsym.ir.compiled import Compiled
from tcsym.runtime import cache as cache_module
from tcsym.runtime.cache import CodeCache
from tcsym.runtime.private import PrivateDirectory, UnsafeError
from tcsym.tuning import warn as warn_module
from tcsym.tuning.database import Database
from tests.assembled import assemble

NOBODY = 65534
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="files of another user: only root can give them away"
)
COMPILED = Compiled(
    object_code=assemble("define i32 @tcsym_kernel(ptr %b, ptr %s, ptr %c) {\n ret i32 0\n}"),
    sizes=("N",),
    arguments=("A",),
    faults=(),
    shared_bytes=Index((), 0),
    private_bytes=Index((), 0),
)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TCSYM_CACHE_DIR, with an entry `k` in its code cache."""
    base = tmp_path / "base"
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(base))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    monkeypatch.setattr(cache_module, "_warned", [])
    anew().store("k", COMPILED)
    assert anew().load("k") == COMPILED
    return base


def anew() -> CodeCache:
    """As another process finds it."""
    cache_module._cache_at.cache_clear()
    return CodeCache.default()


def given_away(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def turned_into_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def linked_twice(path: Path) -> None:
    os.link(path, path.with_name("elsewhere"))


def opened_to_group(path: Path) -> None:
    path.chmod(0o660)


def turned_into_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(given_away, marks=needs_root),
        turned_into_link,
        linked_twice,
        opened_to_group,
        turned_into_pipe,
    ],
)
def test_entries_that_others_may_have_made_are_misses(
    base: Path, happens: Callable[[Path], None]
) -> None:
    path = base / "code" / "k.tco"
    happens(path)
    assert anew().entries()[0].manifest == {}
    assert anew().load("k") is None
    assert not os.path.lexists(path)
    anew().store("k", COMPILED)
    assert anew().load("k") == COMPILED


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o1777])
def test_a_code_cache_that_was_open_is_emptied(base: Path, mode: int) -> None:
    code = base / "code"
    (code / "notes.txt").write_text("of the user")
    (code / ".tmp-1-aa").write_bytes(b"half")
    code.chmod(mode)
    assert anew().load("k") is None
    assert [path.name for path in code.iterdir()] == ["notes.txt"]
    assert code.stat().st_mode & 0o7777 == 0o700


def test_a_code_cache_that_others_could_read_is_closed(base: Path) -> None:
    (base / "code").chmod(0o755)
    assert anew().load("k") == COMPILED
    assert (base / "code").stat().st_mode & 0o777 == 0o700


def test_what_is_made_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    monkeypatch.delenv("TCSYM_CACHE_DIR", raising=False)
    before = os.umask(0)
    try:
        anew().store("k", COMPILED)
    finally:
        os.umask(before)
    made = [tmp_path / name for name in ("a", "a/b", "a/b/tcsym", "a/b/tcsym/code")]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 4
    (file,) = made[-1].iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    made[2].chmod(0o777)  # the user's own by its name: closed again
    assert anew().load("k") == COMPILED
    assert made[2].stat().st_mode & 0o777 == 0o700


def refused(caplog: pytest.LogCaptureFixture) -> str:
    """Why there is no code cache: what the one warning says. Kernels work without it."""
    with caplog.at_level(logging.WARNING, "tcsym"):
        for _ in range(3):
            cache = anew()
            cache.store("k", COMPILED)
            assert cache.load("k") is None
    assert cache.directory is None
    (record,) = caplog.records
    assert cache.trouble in record.getMessage()
    return record.getMessage()


def test_a_directory_in_an_open_one_is_refused(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base.chmod(0o777)
    assert f"chmod go-w {base}" in refused(caplog)
    base.chmod(0o1777)  # as /tmp: others cannot exchange what is in it
    assert anew().load("k") == COMPILED


@needs_root
@pytest.mark.parametrize("name", ["", "code"])
def test_a_directory_of_another_user_is_refused(
    base: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    given_away(base / name)
    text = refused(caplog)
    assert f"{base / name} belongs to another user" in text.replace("//", "/")
    assert "TCSYM_CACHE_DIR" in text


def test_a_link_in_place_of_the_code_cache_is_refused(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turned_into_link(base / "code")
    assert "code is a link" in refused(caplog)


def test_links_above_are_followed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base.parent / "far").mkdir()
    (base.parent / "far" / "link").symlink_to(Path("..") / "again")
    (base.parent / "again").symlink_to(base)
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(base.parent / "far" / "link"))
    assert anew().load("k") == COMPILED
    assert anew().directory == str(base / "code")


@needs_root
def test_a_link_of_another_user_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    base.parent.chmod(0o1777)
    link = base.parent / "link"
    link.symlink_to(base)
    given_away(link)
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(link))
    assert f"{link} belongs to another user" in refused(caplog)


def test_links_in_a_circle_are_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (base / "link").symlink_to("link")
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(base / "link"))
    refused(caplog)


def exchanged(base: Path) -> Path:
    """Another directory in place of the code cache, with the same entry."""
    code = base / "code"
    code.rename(base / "old")
    code.mkdir(0o700)
    (code / "k.tco").write_bytes((base / "old" / "k.tco").read_bytes())
    (code / "k.tco").chmod(0o600)
    return code


def test_a_directory_that_is_exchanged_later_is_checked_anew(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = anew()
    code = exchanged(base)
    assert cache.load("k") == COMPILED  # of the same user: as good as the first
    code.chmod(0o777)
    with caplog.at_level(logging.WARNING, "tcsym"):
        assert cache.load("k") is None
    assert "chmod go-w" in caplog.text
    assert (code / "k.tco").exists()
    cache.store("k2", COMPILED)
    assert cache.clear() == 0
    assert [path.name for path in code.iterdir()] == ["k.tco"]


@needs_root
@pytest.mark.parametrize("as_link", [False, True])
def test_a_directory_of_another_user_put_there_later(
    base: Path, caplog: pytest.LogCaptureFixture, as_link: bool
) -> None:
    cache = anew()
    code = exchanged(base)
    given_away(code)
    if as_link:
        code.rename(base / "theirs")
        code.symlink_to("theirs")
    with caplog.at_level(logging.WARNING, "tcsym"):
        assert cache.load("k") is None
    assert len(caplog.records) == 1


def test_closed_descriptors_do_no_harm(base: Path) -> None:
    """Daemons close all descriptors when they start."""
    script = """
import os
from tcsym.runtime.cache import CodeCache
cache = CodeCache.default()
assert cache.load("k") is not None
os.closerange(3, 256)
assert cache.load("k") is not None
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert anew().load("k") == COMPILED


def is_good_for_nobody(base: Path) -> bool:
    """For a process of that user."""
    child = os.fork()
    if child == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            PrivateDirectory.made(str(base), "code")
            os._exit(0)
        except UnsafeError:
            os._exit(1)
        except BaseException:
            os._exit(2)
    return {0: True, 1: False}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@needs_root
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_users_own_group_may_write_above() -> None:
    """With the umask 002, where each user has a group of the same number."""
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory) / "base"
        base.mkdir()
        for path in (base.parent, base):
            os.chown(path, NOBODY, NOBODY)
        base.chmod(0o775)
        assert is_good_for_nobody(base)
        os.chown(base, NOBODY, 0)
        base.chmod(0o775)
        assert not is_good_for_nobody(base)


# ---- the options store: data, but of the user alone


def test_an_options_store_that_was_open_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("tcsym.tuning.database.warn_once", told.append)
    assert Database.at(str(base)) is not None
    (base / "options").chmod(0o777)
    assert Database.at(str(base)) is None
    assert f"chmod 700 {base}/options" in told[0]
    (base / "options").chmod(0o700)  # as the user was told
    assert Database.at(str(base)) is not None


@pytest.mark.parametrize("happens", [turned_into_link, pytest.param(given_away, marks=needs_root)])
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_of_another_user_in_the_options_store(
    base: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Path], None], suffix: str
) -> None:
    monkeypatch.setattr(warn_module, "warn_once", lambda _: None)
    database = Database.at(str(base))
    assert database is not None
    path = Path(database.path + suffix)
    path.touch()
    happens(path)
    assert Database.at(str(base)) is None


def test_unsafe_is_an_error_of_the_system() -> None:
    assert issubclass(UnsafeError, OSError)
    with pytest.raises(FileNotFoundError):
        PrivateDirectory("/nowhere").read("k")
