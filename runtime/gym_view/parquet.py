"""Records as Parquet, written in groups of rows that are bounded in number and size."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from gym_runtime.errors import UsageError

Form = Literal["rollouts", "messages", "completion", "pairs"]
NESTED = ("_gym", "response", "responses_create_params", "reward_components")
"""Fields of a row that are columns of JSON text."""
GROUP_ROWS = 2000
GROUP_BYTES = 16 * 2**20
SHARD_BYTES = 512 * 2**20


class Writer:
    """Writes records into one file, or into shards of a folder."""

    def __init__(self, path: Path, form: Form, *, one_file: bool) -> None:
        self._path = path
        self._one_file = one_file
        self._arrow = arrow()
        self._schema = _schema(form)
        self._stack = ExitStack()
        self._file: Any = None
        self._shards = 0
        self._shard_bytes = 0
        self._waiting: list[dict[str, Any]] = []
        self._waiting_bytes = 0
        self.rows = 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._stack:
            if error is None:
                self._flush()

    def add(self, record: dict[str, Any], size_bytes: int) -> None:
        self._waiting.append(record)
        self._waiting_bytes += size_bytes
        self.rows += 1
        if len(self._waiting) >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._file is None or (not self._one_file and self._shard_bytes >= SHARD_BYTES):
            self._stack.close()
            path = self._path
            if not self._one_file:
                # ``load_dataset`` takes the split from the beginning of the name.
                path = path / "data" / f"train-{self._shards:05}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
            parquet: Any = import_module("pyarrow.parquet")
            self._file = self._stack.enter_context(
                parquet.ParquetWriter(path, self._schema, compression="zstd")
            )
            self._shards += 1
            self._shard_bytes = 0
        self._file.write_batch(self._arrow.RecordBatch.from_pylist(self._waiting, schema=self._schema))
        self._shard_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0


def _schema(form: Form) -> Any:
    pa = arrow()
    text = pa.large_string()
    call = pa.struct(
        [
            ("id", pa.string()),
            ("type", pa.string()),
            ("function", pa.struct([("name", pa.string()), ("arguments", text)])),
        ]
    )
    conversation = pa.list_(
        pa.struct(
            [
                ("role", pa.string()),
                ("content", text),
                ("reasoning_content", text),
                ("tool_calls", pa.list_(call)),
                ("tool_call_id", pa.string()),
            ]
        )
    )
    about = {
        "rollout_id": pa.string(),
        "environment": pa.string(),
        "_ng_task_index": pa.int64(),
        "_ng_rollout_index": pa.int64(),
        "reward": pa.float64(),
        "outcome": pa.string(),
        "model": pa.string(),
        "input_tokens": pa.int64(),
        "output_tokens": pa.int64(),
        "turns": pa.int64(),
        "tool_calls": pa.int64(),
        "label": pa.string(),
        "note": text,
    }
    columns: dict[Form, dict[str, Any]] = {
        "rollouts": {**about, **dict.fromkeys(NESTED, text), "fields": text},
        "messages": {**about, "messages": conversation, "tools": text},
        "completion": {**about, "prompt": conversation, "completion": conversation, "tools": text},
        "pairs": {
            "environment": pa.string(),
            "_ng_task_index": pa.int64(),
            "prompt": conversation,
            "chosen": conversation,
            "rejected": conversation,
            "score_chosen": pa.float64(),
            "score_rejected": pa.float64(),
            "tools": text,
        },
    }
    return pa.schema(list(columns[form].items()))


def arrow() -> Any:
    """The library, loaded now.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module("pyarrow")
    except ModuleNotFoundError:
        raise UsageError(
            "this export needs the package 'pyarrow', which is not installed: "
            "pip install 'gym-runtime[parquet]'"
        ) from None
