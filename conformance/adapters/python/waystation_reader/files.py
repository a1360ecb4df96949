"""A checkpoint's directory: which names there are, and reading a regular file without following links."""

import hashlib
import os
import stat

from .refusal import Refusal, io_refusal

PIECE = 1 << 20


class Directory:
    """An open directory. All names are resolved beneath its handle."""

    def __init__(self, path, beneath=None):
        """Opens the path that a caller gives, or a name beneath another directory, without following a link there."""
        self.path = path
        try:
            if beneath is None:
                self.handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            else:
                self.handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=beneath.handle)
            self.names = set(os.listdir(self.handle))
        except FileNotFoundError:
            raise Refusal("not-found", "dir.present", "there is no such directory", path) from None
        except NotADirectoryError:
            raise Refusal("not-regular", "dir.regular", "expected a directory, found something else", path) from None
        except OSError as error:
            raise io_refusal(error, path) from None

    def close(self):
        os.close(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def is_directory(self, name):
        """Whether a name stands for a directory itself, not for a link to one."""
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise io_refusal(error, name) from None

    def length(self, name, absent=("file-missing", "dir.present")):
        """The length of a named file, which has to be there and regular."""
        if name not in self.names:
            raise Refusal(absent[0], absent[1], "the file is not there", name)
        try:
            status = os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            raise Refusal(absent[0], absent[1], "the file is not there", name) from None
        except OSError as error:
            raise io_refusal(error, name) from None
        if not stat.S_ISREG(status.st_mode):
            raise Refusal("not-regular", "dir.regular", "not a regular file", name)
        return status.st_size

    def open(self, name):
        """A named file for reading, unbuffered; it is known to be regular."""
        self.length(name)
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.handle)
        except OSError as error:
            raise io_refusal(error, name) from None
        return File(descriptor, name)

    def read(self, name):
        """All bytes of a named file, whose length has been checked before."""
        size = self.length(name)
        with self.open(name) as file:
            return file.read(0, size)

    def sha256(self, name):
        """The digest of a named file in hex."""
        digest = hashlib.sha256()
        size = self.length(name)
        with self.open(name) as file:
            for offset in range(0, size, PIECE):
                digest.update(file.read(offset, min(PIECE, size - offset)))
        return digest.hexdigest()


class File:
    """An open file, read by position."""

    def __init__(self, descriptor, name):
        self.descriptor = descriptor
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def size(self):
        try:
            return os.fstat(self.descriptor).st_size
        except OSError as error:
            raise io_refusal(error, self.name) from None

    def read(self, offset, size):
        """Exactly so many bytes, for which no memory is taken before the file is seen to have them."""
        pieces = []
        try:
            if offset + size > self.size():
                raise Refusal("length-mismatch", "dir.length", f"the file ends before {offset + size}", self.name)
            while size > 0:
                piece = os.pread(self.descriptor, size, offset)
                if not piece:
                    raise Refusal("length-mismatch", "dir.length", f"the file ends at {offset}", self.name)
                pieces.append(piece)
                offset += len(piece)
                size -= len(piece)
        except OSError as error:
            raise io_refusal(error, self.name) from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
