"""The daemon's Unix socket: in a folder of ours, mode 0600, bound under a lock that a live daemon never loses."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specctl.config.paths import Paths, ensure_runtime_dir
from specctl.core.errors import Refused


@dataclass(slots=True)
class BoundSocket:
    """A listening socket and the lock that makes it ours. `close` removes the socket file; the lock file stays."""

    path: Path
    lock_path: Path
    listener: socket.socket
    lock_fd: int
    inode: int

    def is_ours(self) -> bool:
        """Whether clients that open `path` still reach this listener, and whoever locks `lock_path` still meets our lock."""
        try:
            lock = self.lock_path.stat()
            return self._socket_is_ours() and os.path.samestat(lock, os.fstat(self.lock_fd))
        except OSError:
            return False

    def _socket_is_ours(self) -> bool:
        return self.path.lstat().st_ino == self.inode

    def close(self) -> None:
        with suppress(OSError):
            if self._socket_is_ours():
                self.path.unlink()
        self.listener.close()
        os.close(self.lock_fd)


def _take_lock(lock_path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(lock_path, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise Refused(
            f"a daemon already runs: pid {holder} holds {lock_path}", remedy="Use it, or end it with `specctl down`"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def bind(where: Paths) -> BoundSocket:
    """Locks, removes a dead daemon's socket, binds 0600 and listens.

    Raises Refused when a live daemon holds the lock, or when the folder is not only ours.
    """
    ensure_runtime_dir(where)
    lock_fd = _take_lock(where.lock)
    try:
        listener = _listen(where.socket)
    except BaseException:
        os.close(lock_fd)
        raise
    return BoundSocket(where.socket, where.lock, listener, lock_fd, where.socket.lstat().st_ino)


def _listen(path: Path) -> socket.socket:
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        raise Refused(f"{path} exists and is not a socket", remedy="Remove it or set SPECCTL_SOCKET")
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    previous = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(previous)
    listener.listen(128)
    return listener


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end. Source: SO_PEERCRED, unix(7)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", raw)
    return pid, uid
