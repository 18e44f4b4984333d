"""Tell a local file system from one that other machines or programs serve.

A log's home on ``file://`` needs a directory where a name that was created is seen by every reader at once, where a
lock is honoured, and where an fsync reaches a disk. A network file system may hide a new name for a minute behind its
cache of missing ones, and a program behind FUSE promises what its author chose. A buffer has weaker needs, and does
not ask.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Final

from tenure.errors import Invalid

__all__ = ["check_local"]

_REMOTE: Final = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "SMB",
    0xFE534D42: "SMB",
    0x65735546: "FUSE",
    0x01021997: "9p",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x73757245: "Coda",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
}
"""File systems by the number that statfs(2) gives them. A virtiofs mount has that of FUSE."""
_BUFFER_BYTES: Final = 512
"""More than any struct statfs; its first word is the number."""
_NOT_YET: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


def check_local(path: Path) -> None:
    """Raise Invalid (``store_not_local``) if the directory is, or would be made, on a remote file system.

    Also raises Invalid if that cannot be found out. Outside Linux nothing is checked.
    """
    if sys.platform != "linux":
        return
    kind = _REMOTE.get(_file_system(path))
    if kind is not None:
        raise Invalid(
            f"{path} is on {kind}, where a new object may stay hidden from a reader, and two processes could lead one "
            "log: use a directory on a local disk, or a bucket (s3://, gs://, az://) that several machines share",
            code="store_not_local",
            path=str(path),
        )


def _file_system(path: Path) -> int:
    """Return the number of the kind of file system that the path, or the first directory above it, lies on.

    It comes from statfs(2), which Python does not offer.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    status = ctypes.create_string_buffer(_BUFFER_BYTES)
    place = path.absolute()
    while libc.statfs(os.fsencode(place), status) != 0:
        number = ctypes.get_errno()
        if number not in _NOT_YET or place == place.parent:
            raise Invalid(f"cannot find out where {path} lies: {os.strerror(number)}", code="store_not_local")
        place = place.parent
    return int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF
