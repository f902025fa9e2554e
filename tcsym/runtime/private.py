# SPDX-License-Identifier: Apache-2.0
"""Directories that only this user can write, and the files in them: code is loaded from there.

What is opened is checked by its descriptor, so nothing can be exchanged between check and use. A
directory is opened anew for each use: what makes daemons closes the descriptors a process holds.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # on one path, as in Linux
_UNMAPPED = 65534  # the owner that a user namespace shows for users it does not know
_ELSEWHERE = "or set TCSYM_CACHE_DIR to a directory of your own"


def _flags(*names: str) -> int:
    """Of `os.open`: those that this system has."""
    flags = 0
    for name in ("O_NOFOLLOW", "O_CLOEXEC", *names):
        flags |= getattr(os, name, 0)
    return flags


_DIRECTORY = _flags("O_DIRECTORY")
_FILE = _flags("O_NONBLOCK")  # a pipe would be waited for
_NEW_FILE = _flags("O_WRONLY", "O_CREAT", "O_EXCL")


class UnsafeError(OSError):
    """Another user can write here, or could have; the message says what to do."""


class UnsafeFileError(UnsafeError):
    """One file only: the directory is good."""


class PrivateDirectory:
    """A directory by its path. Errors of all methods: OSError."""

    def __init__(self, path: str) -> None:
        self.path = path

    @staticmethod
    def made(
        base: str,
        name: str,
        *,
        owns_base: bool = False,
        discard: Callable[[str], bool] | None = None,
    ) -> PrivateDirectory:
        """`base`/`name`, made if it is missing, from now on closed to all other users.

        owns_base: `base` is closed to others, too; otherwise it must be safe as it is.
        discard: which files (by name) to remove if others could write the directory until now;
            None: then it is refused, with `UnsafeError`, as a directory of another user is.
        """
        base = os.path.abspath(base)
        _make(os.path.join(base, name))
        base = _without_links(base, is_closed_later=owns_base)
        if owns_base:
            _close_to_others(base, lambda _: False)
        path = os.path.join(base, name)
        _close_to_others(path, discard)
        return PrivateDirectory(path)

    def read(self, name: str, mark: bool = True) -> bytes:
        """The content of a file. mark: as used now, if it can be.

        FileNotFoundError if it is missing. UnsafeFileError if it is no regular file of this user,
        has another name too, or others may write it.
        """
        directory = self._opened()
        try:
            file = os.open(name, _FILE, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsafeFileError(f"{name} is a link") from None
            raise
        finally:
            os.close(directory)
        try:
            status = os.fstat(file)
            if not _is_own_file(status) or status.st_mode & _OTHERS_MAY_WRITE:
                raise UnsafeFileError(f"{name} may come from another user")
            if mark:
                with suppress(OSError):  # what cannot be written is good to read
                    os.utime(file)
            return _content(file, status.st_size)
        finally:
            os.close(file)

    def write(self, name: str, content: bytes, temporary: str) -> None:
        """The file appears whole: it is written under the name `temporary`, then renamed."""
        directory = self._opened()
        try:
            file = os.open(temporary, _NEW_FILE, 0o600, dir_fd=directory)
            try:
                with open(file, "wb") as stream:
                    stream.write(content)
                os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
                raise
        finally:
            os.close(directory)

    def names(self) -> list[str]:
        directory = self._opened()
        try:
            return os.listdir(directory)
        finally:
            os.close(directory)

    def status(self, name: str) -> os.stat_result:
        """Of a file; of a link, not of what it leads to."""
        directory = self._opened()
        try:
            return os.lstat(name, dir_fd=directory)
        finally:
            os.close(directory)

    def remove(self, name: str) -> None:
        directory = self._opened()
        try:
            os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)

    def require_own(self, *names: str) -> None:
        """UnsafeError unless those of these files that exist are this user's own, and no links."""
        for name in names:
            with suppress(FileNotFoundError):
                if not _is_own_file(self.status(name)):
                    path = os.path.join(self.path, name)
                    raise UnsafeError(f"{path} is a link or of another user: remove it")

    def _opened(self) -> int:
        directory = os.open(self.path, _DIRECTORY)
        try:
            status = os.fstat(directory)
            _require_own(self.path, status)
            if status.st_mode & _OTHERS_MAY_WRITE:
                raise UnsafeError(_open_text(self.path))
        except BaseException:
            os.close(directory)
            raise
        return directory


def _make(path: str) -> None:
    """As `os.makedirs`, which makes those above the last one open to others."""
    above = os.path.dirname(path)
    if not os.path.exists(above):
        _make(above)
    try:
        os.mkdir(path, 0o700)
    except OSError:
        if not os.path.isdir(path):
            raise


def _close_to_others(path: str, discard: Callable[[str], bool] | None) -> None:
    if os.path.islink(path):
        raise UnsafeError(f"{path} is a link: remove it, {_ELSEWHERE}")
    directory = os.open(path, _DIRECTORY)
    try:
        status = os.fstat(directory)
        _require_own(path, status)
        was_open = status.st_mode & _OTHERS_MAY_WRITE
        if was_open and discard is None:
            raise UnsafeError(
                f"others could write {path}: if you trust what is in it, make it private"
                f" (chmod 700 {path}), else remove it"
            )
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.fchmod(directory, 0o700)
        if was_open and discard is not None:
            for name in filter(discard, os.listdir(directory)):
                os.unlink(name, dir_fd=directory)
    finally:
        os.close(directory)


def _without_links(path: str, is_closed_later: bool) -> str:
    """The absolute path with all links followed: nobody else can make it lead elsewhere.

    is_closed_later: the last directory itself may be open yet.
    """
    done, rest, links = "/", path.split("/")[::-1], 0
    while rest:
        name = rest.pop()
        if name == "..":
            done = os.path.dirname(done)
            continue
        if name in ("", "."):
            continue
        place = os.path.join(done, name)
        status = os.lstat(place)
        if not _is_trusted(status.st_uid):
            raise UnsafeError(_owner_text(place, status))
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"too many links in {path}")
            target = os.readlink(place)
            done = "/" if target.startswith("/") else done
            rest += target.split("/")[::-1]
            continue
        if not (is_closed_later and not any(rest)) and _is_open(status):
            raise UnsafeError(_open_text(place))
        done = place
    return done


def _is_open(status: os.stat_result) -> bool:
    """Others can exchange what is in this directory.

    Not in one like /tmp, where only its owner can rename a file, nor where the group that may write
    is the one that many systems make for each user, of the same number.
    """
    mode = status.st_mode
    if mode & stat.S_ISVTX:
        return False
    own_group = status.st_gid == os.geteuid() != 0
    return bool(mode & (stat.S_IWOTH if own_group else _OTHERS_MAY_WRITE))


def _is_trusted(owner: int) -> bool:
    return owner in (0, os.geteuid()) or (owner == _UNMAPPED and not _root_is_known())


def _root_is_known() -> bool:
    """False in a user namespace without root: its files seem to be of `_UNMAPPED`."""
    try:
        with open("/proc/self/uid_map") as file:
            return any(line.split()[1] == "0" for line in file)
    except OSError:
        return True


def _is_own_file(status: os.stat_result) -> bool:
    """A regular file of this user, under one name."""
    own = status.st_uid == os.geteuid()
    return own and stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _require_own(path: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise UnsafeError(_owner_text(path, status))


def _owner_text(path: str, status: os.stat_result) -> str:
    return f"{path} belongs to another user (number {status.st_uid}): remove it, {_ELSEWHERE}"


def _open_text(path: str) -> str:
    return f"others can write {path}: close it to them (chmod go-w {path}), {_ELSEWHERE}"


def _content(file: int, size: int) -> bytes:
    content = os.read(file, size + 1)
    while len(content) < size:
        part = os.read(file, size)
        if not part:
            break
        content += part
    return content
