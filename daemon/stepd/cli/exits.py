"""Exit codes, and the error that carries one."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_NO_SUCH_JOB = 4


class CommandError(Exception):
    """A command cannot do what was asked; `code` is its exit code."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code
