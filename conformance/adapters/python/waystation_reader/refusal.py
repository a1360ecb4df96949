"""The one way in which this reader says no: a code and a rule of the specification, and where."""


class Refusal(Exception):
    """A breach of a rule, or a failure of the environment."""

    def __init__(self, code, rule, message, file=None, offset=None, pointer=None):
        super().__init__(message)
        self.code = code
        self.rule = rule
        self.message = message
        self.file = file
        self.offset = offset
        self.pointer = pointer

    def at(self, file=None, prefix=None):
        """Fills in the file, and puts a JSON pointer in front of what is there; gives itself back."""
        if file is not None and self.file is None:
            self.file = file
        if prefix is not None:
            self.pointer = prefix + (self.pointer or "")
        return self

    def finding(self):
        """As a JSON object."""
        found = {"code": self.code, "rule": self.rule, "file": self.file or "", "message": self.message}
        if self.offset is not None:
            found["offset"] = self.offset
        if self.pointer is not None:
            found["pointer"] = self.pointer
        return found


def attempt(report, check, *arguments, file=None, prefix=None):
    """What the check gives; when it refuses, that goes to `report` with its file and pointer filled in, and None is given."""
    try:
        return check(*arguments)
    except Refusal as refusal:
        report(refusal.at(file=file, prefix=prefix))
        return None


def io_refusal(error, file, rule="run.errors"):
    """What a failed system call is answered with."""
    code = "io"
    if isinstance(error, PermissionError):
        code = "io-denied"
    return Refusal(code, rule, error.strerror or str(error), file)
