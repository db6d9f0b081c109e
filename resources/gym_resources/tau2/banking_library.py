"""The bank's documents, and how an agent gets at them: by words, an expression, a shell, or beforehand.

Words are looked up with BM25 (Okapi, k1 = 1.5, b = 0.75), as by the authors; how it ranks is that of the
package ``rank_bm25``, where a word of more than half of the documents counts a quarter of an average one.
"""

from __future__ import annotations

import io
import math
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import msgspec
from gym_runtime import ToolError

from gym_resources.tau2.task import Limits

K1, B, RARE = 1.5, 0.75, 0.25
GREP_S, SHELL_S = 2.0, 30.0
UNPACK = 'mkdir /tmp/kb && cd /tmp/kb && tar -xf - && chmod -R a-w . && exec /bin/sh -c "$1"'
LONGEST_QUERY = 2_000
MODES: dict[str, tuple[str, ...]] = {
    "no_knowledge": (),
    "full_kb": (),
    "golden_retrieval": (),
    "grep_only": ("grep",),
    "bm25": ("KB_search",),
    "bm25_grep": ("KB_search", "grep"),
    "terminal_use": ("shell",),
}
"""The authors' ways to the documents that run here, with the tools of each."""

DEFAULT = "bm25_grep"
NEEDS = {
    "rerank": "a language model that ranks what is found",
    "embeddings": "a model of embeddings",
    "alltools": "a model of embeddings",
    "write": "a shell that keeps what it writes",
}
"""What the authors' other ways need, by a part of their names."""


class Document(msgspec.Struct, frozen=True):
    """A document of the bank, as it is published."""

    id: str
    title: str
    content: str

    @property
    def text(self) -> str:
        return f"## {self.title}\n\n{self.content}"


class Passage(msgspec.Struct, frozen=True):
    """A document that was found.

    Attributes:
        score: that of BM25, or the number of matches.
    """

    id: str
    title: str
    score: float
    content: str


def checked(mode: str) -> str:
    """The mode.

    Raises:
        ValueError: it does not run here, with the remedy.
    """
    if mode in MODES:
        return mode
    needs = next((needed for part, needed in NEEDS.items() if part in mode.lower()), "")
    why = f"needs {needs}, which is not here" if needs else "is unknown"
    raise ValueError(
        f"the way to the documents {mode[:100]!r} {why}; one of {', '.join(MODES)} runs: --set retrieval=NAME"
    )


class Corpus:
    """Documents with what is made of them once, which takes time: in a thread."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents

    @cached_property
    def index(self) -> Index:
        return Index([document.content for document in self.documents])

    @cached_property
    def archive(self) -> bytes:
        """The documents as files, and a file that lists them, as a tar archive."""
        texts = {f"{_file_name(one.id)}.md": f"# {one.title}\n\n{one.content}" for one in self.documents}
        listed = sorted(f"- {_file_name(one.id)}.md: {one.title}" for one in self.documents)
        texts["INDEX.md"] = "\n".join(["# Documents", "", *listed, ""])
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as files:
            for name, text in texts.items():
                data = text.encode()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                files.addfile(member, io.BytesIO(data))
        return archive.getvalue()


class Library:
    """The documents of a conversation."""

    def __init__(self, corpus: Corpus, limits: Limits) -> None:
        self.corpus, self.limits = corpus, limits

    def prepare(self, tools: Sequence[str]) -> None:
        """Make what these tools need."""
        if "KB_search" in tools:
            _ = self.corpus.index
        if "shell" in tools:
            _ = self.corpus.archive

    def search(self, query: str) -> list[Passage]:
        """The documents that share a word with the query, the best ones first.

        Raises:
            ToolError: the query is longer than `LONGEST_QUERY`.
        """
        if len(query) > LONGEST_QUERY:
            raise ToolError(f"Error: the query is longer than {LONGEST_QUERY} characters")
        scores = self.corpus.index.scores(query)
        return self._shown(Counter(scores).most_common(self.limits.top_k))

    async def grep(self, pattern: str) -> list[Passage]:
        """The documents with matches, those with most of them first.

        Raises:
            ToolError: it is no expression, or takes longer than `GREP_S`.
        """
        from gym_runtime import run_isolated  # heavy, and a listing of all environments needs no sandbox

        texts = [document.content for document in self.corpus.documents]
        try:
            found = await run_isolated(matches, pattern, texts, self.limits.case_sensitive, timeout_s=GREP_S)
        except TimeoutError as error:
            raise ToolError(f"Error: the expression took longer than {GREP_S:g} s; simplify it") from error
        if found is None:
            raise ToolError("Error: this is no regular expression")
        counts = Counter({number: float(count) for number, count in enumerate(found) if count})
        return self._shown(counts.most_common(self.limits.grep_top_k))

    async def shell(self, command: str) -> str:
        """What a command says in a folder with the documents; each one finds them as they were.

        Raises:
            ToolError: the command is longer than `LONGEST_QUERY`, or takes longer than `SHELL_S`.
        """
        if len(command) > LONGEST_QUERY:
            raise ToolError(f"Error: the command is longer than {LONGEST_QUERY} characters")
        import gym_sandbox

        bounds = gym_sandbox.Limits(cpu_s=20, memory_bytes=1 << 30, processes=32, output_bytes=100_000)
        program = ["/bin/sh", "-c", UNPACK, "sh", command]
        async with gym_sandbox.Sandbox(bounds) as box:
            done = await box.run(program, stdin=self.corpus.archive, timeout_s=SHELL_S)
        if done.timed_out:
            raise ToolError(f"Error: the command took longer than {SHELL_S:g} s")
        said, wrong = (text.decode(errors="replace").strip() for text in (done.stdout, done.stderr))
        ended = f"exit code {done.exit_code}" if done.exit_code else ""
        return "\n".join(part for part in (said, wrong, ended) if part) or "(no output)"

    def _shown(self, found: Sequence[tuple[int, float]]) -> list[Passage]:
        return [
            Passage(document.id, document.title, round(score, 4), document.content)
            for number, score in found
            for document in (self.corpus.documents[number],)
        ]


class Index:
    """BM25 over texts; it takes about a second for 700 documents."""

    def __init__(self, texts: Sequence[str]) -> None:
        counted = [Counter(text.lower().split()) for text in texts]
        lengths = [sum(counts.values()) for counts in counted]
        mean = (sum(lengths) / len(lengths) if lengths else 0.0) or 1.0
        self.postings: dict[str, list[tuple[int, float]]] = {}
        for number, (counts, length) in enumerate(zip(counted, lengths, strict=True)):
            norm = K1 * (1 - B + B * length / mean)
            for word, count in counts.items():
                weight = count * (K1 + 1) / (count + norm)
                self.postings.setdefault(word, []).append((number, weight))
        rarity = {
            word: math.log(len(texts) - len(found) + 0.5) - math.log(len(found) + 0.5)
            for word, found in self.postings.items()
        }
        average = sum(rarity.values()) / len(rarity) if rarity else 0.0
        self.rarity = {word: RARE * average if value < 0 else value for word, value in rarity.items()}

    def scores(self, query: str) -> dict[int, float]:
        """The score of each text that has a word of the query, by its number."""
        found: dict[int, float] = {}
        for word, times in Counter(query.lower().split()).items():
            rarity = self.rarity.get(word, 0.0) * times
            for number, weight in self.postings.get(word, ()):
                found[number] = found.get(number, 0.0) + rarity * weight
        return dict(sorted(found.items()))


def _file_name(key: str) -> str:
    """A document's id as the name of a file."""
    return re.sub(r"[^\w.-]", "_", key.replace("..", "_"))[:200]


def matches(pattern: str, texts: list[str], case_sensitive: bool) -> list[int] | None:
    """How often an expression matches in each text; None if the expression is not valid."""
    try:
        compiled = re.compile(pattern, 0 if case_sensitive else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        return None
    return [sum(1 for _ in compiled.finditer(text)) for text in texts]
