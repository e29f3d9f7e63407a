"""One run at a time in a directory."""

import contextlib
import errno
import os
import socket
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: it is up to the user
    fcntl = None  # type: ignore[assignment]

from adlmh_jax.store.base import StoreError

NAME = "lock"
MAX_BYTES = 200  # of a holder's description
TAKEN = (errno.EAGAIN, errno.EACCES)


class Lock:
    """A file that says who uses a directory.

    The operating system frees it when its holder ends, in whatever way: what a killed process
    leaves behind bars nobody. Where there are no such locks, nothing is barred.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock, or raise `StoreError` if another run has it."""
        if self._handle is not None or fcntl is None:
            return
        handle = os.open(self._directory / NAME, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if _try_lock(handle):
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
            else:
                raise self._refusal(os.read(handle, MAX_BYTES).decode(errors="replace"))
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle

    def release(self) -> None:
        """Give the lock back, if it is held."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_UN)  # a forked process may have the handle too
            os.close(handle)

    def __del__(self) -> None:
        self.release()

    def _refusal(self, holder: str) -> StoreError:
        return StoreError(
            f"`store` = {str(self._directory)!r} is in use: another run, of {holder or 'a process'}"
            ", writes there. Wait until it ends, or name another directory."
        )


def _try_lock(handle: int) -> bool:
    """Lock a file unless another has it; a file system without locks lets everybody in."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in TAKEN
    return True
