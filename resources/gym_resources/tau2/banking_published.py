"""What the authors publish of the bank, and the rows that are made of it.

The tasks are those of the folder, as for the authors; their ``tasks.json`` is older for some of them.
Source: github.com/sierra-research/tau2-bench (MIT), at the tag ``v1.0.1``, which changed how this domain is
judged; scores of earlier versions do not compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime import Asset, DatasetSource
from gym_runtime.assets import find, folder, missing

from gym_resources.tau2.banking_library import DEFAULT, Corpus, Document
from gym_resources.tau2.published import customer, opening
from gym_resources.tau2.shared_records import Record, Tables

TAG = "v1.0.1"
NAME, PLACE = "tau2_banking", "banking_knowledge"
COMPONENTS = ("policy_header", "additional_instructions")
TEMPLATES = {
    "no_knowledge": "no_knowledge",
    "full_kb": "full_kb",
    "golden_retrieval": "required_docs",
    "grep_only": "grep_only",
    "bm25": "classic_rag_bm25_no_grep",
    "bm25_grep": "classic_rag_bm25",
    "terminal_use": "agentic_search",
}
"""The authors' prompt for each way to the documents."""

_PROMPTS = [*(f"components/{name}.md" for name in COMPONENTS), *(f"{name}.md" for name in TEMPLATES.values())]
FILES = ("db.json", *(f"prompts/{name}" for name in _PROMPTS))
_COMPONENT = re.compile(r"\{\{component:(\w{1,50})\}\}")
_decode_document = msgspec.json.Decoder(Document).decode
_data = f"data/tau2/domains/{PLACE}"
ASSET = Asset(
    name="tau2-bench-banking",
    description="the tasks, documents, prompts and database of tau2-bench's domain banking_knowledge",
    licence="MIT",
    urls={
        f"{PLACE}/{file}": f"https://raw.githubusercontent.com/sierra-research/tau2-bench/{TAG}/{_data}/{file}"
        for file in FILES
    },
    size_bytes=20_000_000,
    setting="GYM_TAU2",
    page="https://github.com/sierra-research/tau2-bench",
    install=f"""
set -e
[ -d {PLACE}/tasks ] && exit 0
rm -rf part
git clone --quiet --depth 1 --branch {TAG} --filter=blob:none --sparse \
  https://github.com/sierra-research/tau2-bench part
git -C part sparse-checkout set {_data}/documents {_data}/tasks
rm -rf {PLACE}/documents
mv part/{_data}/documents {PLACE}/documents
mv part/{_data}/tasks {PLACE}/tasks
rm -rf part
""",
)


class _Table(msgspec.Struct, frozen=True):
    data: dict[str, Record] = {}


def corpus() -> Corpus:
    """The published documents, read once.

    Raises:
        AssetMissing: they were not fetched.
    """
    place = _folder("documents")
    return _corpus(place, place.stat().st_mtime_ns)


def documents() -> list[Document]:
    """The published documents, by the names of their files.

    Raises:
        AssetMissing: they were not fetched.
    """
    return [_decode_document(path.read_bytes()) for path in sorted(_folder("documents").glob("*.json"))]


def tables() -> Tables:
    """The published database, read once.

    Raises:
        AssetMissing: it was not fetched.
    """
    (path,) = find(ASSET, NAME, f"{PLACE}/db.json")
    return _tables(path, path.stat().st_mtime_ns)


def sources() -> tuple[DatasetSource, ...]:
    """The tasks with the prompt of each way to the documents; the default way's source has no name."""
    return tuple(
        DatasetSource(
            asset=ASSET,
            file=f"{PLACE}/prompts/{template}.md",
            further_files=tuple(f"{PLACE}/prompts/components/{name}.md" for name in COMPONENTS),
            split="benchmark",
            license="MIT",
            name="" if way == DEFAULT else way,
            rows=partial(rows, way),
        )
        for way, template in sorted(TEMPLATES.items(), key=lambda one: one[0] != DEFAULT)
    )


def rows(
    way: str, template: Iterator[dict[str, Any]], *components: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The rows of the published tasks for one way to the documents.

    Raises:
        AssetMissing: the tasks, or documents that the prompt has, were not fetched.
    """
    texts = {name: next(one)["text"] for name, one in zip(COMPONENTS, components, strict=True)}
    prompt = _COMPONENT.sub(lambda found: texts.get(found[1], found[0]), next(template)["text"])
    library = documents() if way in ("full_kb", "golden_retrieval") else []
    for path in sorted(_folder("tasks").glob("task_*.json")):
        task = msgspec.json.decode(path.read_bytes())
        yield {
            "responses_create_params": {"input": opening(_filled(prompt, task, library).strip())},
            "id": f"banking_{task['id']}",
            "config": {"domain": PLACE, "retrieval_config": way},
            "task": task,
            "simulated_user": customer(task["user_scenario"]),
        }


def _filled(prompt: str, task: dict[str, Any], library: list[Document]) -> str:
    """The prompt with all documents, or with those that the task needs, where it has a place for them."""
    known = {document.title: document for document in library} | {one.id: one for one in library}
    wanted: list[str] = task.get("required_documents") or []
    needed = [known[name].text for name in wanted if name in known]
    texts = {
        "{{full_knowledge_base}}": [document.text for document in library],
        "{{required_documents}}": needed or ["(No documents provided)"],
    }
    for place, parts in texts.items():
        prompt = prompt.replace(place, "\n\n---\n\n".join(parts))
    return prompt


def _folder(name: str) -> Path:
    place = folder(ASSET) / PLACE / name
    if not place.is_dir():
        raise missing(ASSET, NAME, f"{PLACE}/{name}")
    return place


@lru_cache(1)
def _tables(path: Path, changed_ns: int) -> Tables:
    del changed_ns
    found = msgspec.json.decode(path.read_bytes(), type=dict[str, _Table])
    return {name: table.data for name, table in found.items()}


@lru_cache(1)
def _corpus(place: Path, changed_ns: int) -> Corpus:
    del place, changed_ns  # they say which version is kept
    return Corpus(documents())
