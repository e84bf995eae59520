"""The command line: ``langmem-harness``."""

from __future__ import annotations

import sys

from langmem_harness.errors import LangMemHarnessError, MissingExtraError


def main() -> None:
    """Run the command line; our errors become one line on standard error and exit code 1 (2: the extra is missing)."""
    try:
        from langmem_harness.cli.main import app
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("typer", "rich", "click"):
            raise
        print(MissingExtraError("the command line", "cli"), file=sys.stderr)
        sys.exit(2)
    try:
        app()
    except LangMemHarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


__all__ = ["main"]
