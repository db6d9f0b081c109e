"""An appender of result rows that keeps the index beside them up to date."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gym_runtime.files.appender import Appender
from gym_runtime.files.index import IndexFile


class RowAppender(Appender):
    """Appends result rows, and to the index what it needs of each.

    The index is a convenience that can be made again from the rows, so nothing that happens to it stops
    the run: where it cannot be written, or is behind the rows already, it is left to its readers.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._index = IndexFile.open(path)
        # An index that is behind would get a gap; a reader makes it again from the rows.
        if self._index is not None and self._index.end_bytes != self.end_bytes:
            self._drop_index()

    def append(self, line: bytes) -> None:
        """Append one row; see `Appender.append`."""
        offset = self.end_bytes
        super().append(line)
        if self._index is not None:
            self._index.append(line, offset, self.end_bytes - offset)

    def flush(self) -> None:
        """Hand the rows to the system, then their index."""
        super().flush()
        if self._index is not None:
            try:
                self._index.flush()
            except OSError:
                self._drop_index()

    def close(self) -> None:
        """Flush, sync and close."""
        with contextlib.ExitStack() as stack:
            # After the rows' own close, which flushes the index once more.
            stack.callback(self._drop_index)
            super().close()

    def _drop_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None
