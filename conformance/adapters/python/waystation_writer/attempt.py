"""The directory of an attempt while it is made: files created exclusively, synced, linked to their names (chapter 11).

Knows file systems and nothing of what is in the files. After any error the attempt is given up; nothing is tried twice.
"""

import errno
import os
import re
import secrets
import stat

from waystation_reader.files import Directory
from waystation_reader.refusal import Refusal, io_refusal

_ATTEMPT = re.compile("step-[0-9]{12}-([0-9a-f]{8})[0-9a-f]{8}")
# What file systems without hard links answer.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Attempt:
    """A new directory at a path whose parent is there."""

    def __init__(self, path):
        parent, name = os.path.split(os.path.normpath(path))
        self.run = Directory(parent)
        try:
            os.mkdir(name, dir_fd=self.run.handle)
            os.fsync(self.run.handle)
        except FileExistsError:
            raise Refusal("exists", "session.directory", "the directory is there already", name) from None
        except OSError as error:
            raise io_refusal(error, name) from None
        self.directory = Directory(name, self.run)
        self.handle = self.directory.handle

    def close(self):
        self.directory.close()
        self.run.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def create(self, name, pieces):
        """A file that was not there, of these pieces of bytes, synced on the descriptor that wrote it."""
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=self.handle)
            try:
                for piece in pieces:
                    left = memoryview(piece)
                    while left:
                        left = left[os.write(descriptor, left):]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except FileExistsError:
            raise Refusal("exists", "writer.create", "the file is there already", name) from None
        except OSError as error:
            raise io_refusal(error, name) from None

    def put(self, name, data):
        """A file that appears whole under its name. One of equal bytes that is there already is as good."""
        temporary = f"tmp-{secrets.token_hex(8)}"
        self.create(temporary, [data])
        try:
            try:
                os.link(temporary, name, src_dir_fd=self.handle, dst_dir_fd=self.handle, follow_symlinks=False)
            except FileExistsError:
                self._same(name, data)
            except OSError as error:
                if error.errno not in _NO_LINKS or name in self.names():
                    self._same(name, data)
                else:
                    os.rename(temporary, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)
                    return
            os.unlink(temporary, dir_fd=self.handle)
        except OSError as error:
            raise io_refusal(error, name) from None

    def _same(self, name, data):
        """On any doubt about a name, what is there is read back."""
        try:
            regular = stat.S_ISREG(os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_mode)
            if regular:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.handle)
                with os.fdopen(descriptor, "rb") as file:
                    if file.read(len(data) + 1) == data:
                        return
        except OSError as error:
            raise Refusal("commit-unknown", "commit.put", f"cannot be read back: {error.strerror}", name) from None
        raise Refusal("commit-conflict", "commit.put", "other bytes are there already", name)

    def sync(self):
        """Makes the names in the directory last."""
        _sync(self.handle)

    def sync_run(self):
        _sync(self.run.handle)

    def names(self):
        """The names that are in the directory now."""
        try:
            return set(os.listdir(self.handle))
        except OSError as error:
            raise io_refusal(error, None) from None

    def fence(self, timeline):
        """Stops where an attempt of a higher timeline is in the run."""
        try:
            names = os.listdir(self.run.handle)
        except OSError as error:
            raise io_refusal(error, None) from None
        for matched in filter(None, map(_ATTEMPT.fullmatch, names)):
            if int(matched[1], 16) > timeline and self.run.is_directory(matched[0]):
                raise Refusal("fenced", "commit.fence", "an attempt of a higher timeline is in the run", matched[0])


def _sync(handle):
    try:
        os.fsync(handle)
    except OSError as error:
        raise io_refusal(error, None) from None
