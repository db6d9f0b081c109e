"""Routed experts: which experts of a mixture-of-experts model each token went to, as the engine chose them.

A trainer replays them, so that its router chooses the same. The last token that was sampled has none: no
forward pass came after it. 48 layers with 8 of at most 256 experts are 384 bytes a token, so a turn has
those of its new tokens only, and each token keeps the experts of the pass in which it was sampled.

In a row they stand on the item that has the call's ids, in NeMo Gym's form: ``routed_experts`` is
``nrlre1:TYPE:TOKENSxLAYERSxTOP_K:BASE64``. TYPE is ``int8``, ``uint8`` or ``int16``. This runtime's
``routed_experts_start`` says which token is the first; without it, the first one of the prompt.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.errors import TaskError

MOST_LAYERS = 1024
ROUTED_BYTES = 2**31
"""Of all sequences of a rollout: branches repeat the rows of their parent."""
_FORM = re.compile(r"nrlre1:(int8|uint8|int16):(\d{1,9})x(\d{1,4})x(\d{1,3}):([A-Za-z0-9+/=]*)", re.ASCII)


class Experts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The experts of some tokens of a call, one after the other.

    Attributes:
        layers: mixture-of-experts layers.
        top_k: experts of each.
        data: shape (tokens, layers, top_k): uint8, or uint16 (little-endian) if ``wide``.
        start: the first token, counted from the first one of the call's prompt.
        wide: the model has more than 256 experts.
    """

    layers: int
    top_k: int
    data: bytes
    start: int = 0
    wide: bool = False

    @property
    def row_bytes(self) -> int:
        """Of one token."""
        return self.layers * self.top_k * (1 + self.wide)

    def checked(self, tokens: int) -> Experts:
        """Itself, if it ends one token before a call's last.

        Args:
            tokens: of the call, prompt and completion.

        Raises:
            TaskError: it does not, or its sizes do not fit each other.
        """
        size, where = self.row_bytes, f"{self.layers} layers x {self.top_k} experts"
        if not 1 <= self.layers <= MOST_LAYERS or not 1 <= self.top_k <= 999 or self.start < 0:
            raise TaskError(f"routed experts: {where} from token {self.start} on; no model has these")
        if len(self.data) % size or self.start + len(self.data) // size != tokens - 1:
            raise TaskError(
                f"routed experts: {len(self.data):,} bytes from token {self.start} on are not those of "
                f"{where} for a call of {tokens:,} tokens, of which the last has none"
            )
        return self

    def until(self, token: int) -> Experts:
        """Without this token's, if it is the last one."""
        size = self.row_bytes
        one_more = size and self.start + len(self.data) // size == token
        return msgspec.structs.replace(self, data=self.data[:-size]) if one_more and self.data else self

    def widened(self) -> Experts:
        """The same, as uint16."""
        return self if self.wide else msgspec.structs.replace(self, data=bytes(_wide(self.data)), wide=True)

    def since(self, token: int) -> Experts:
        """Without the tokens before this one."""
        cut = max(0, token - self.start)
        return (
            msgspec.structs.replace(self, data=self.data[cut * self.row_bytes :], start=self.start + cut)
            if cut
            else self
        )


def _wide(narrow: bytes | bytearray) -> bytearray:
    data = bytearray(2 * len(narrow))
    data[::2] = narrow
    return data


def written(experts: Experts) -> dict[str, Any]:
    """The fields of a row's item."""
    # The bytes are the same; NeMo Gym's readers know the signed names only.
    kind = "int16" if experts.wide else "int8" if experts.data.isascii() else "uint8"
    shape = f"{len(experts.data) // max(1, experts.row_bytes)}x{experts.layers}x{experts.top_k}"
    fields: dict[str, Any] = {"routed_experts": f"nrlre1:{kind}:{shape}:{b64encode(experts.data).decode()}"}
    return fields | ({"routed_experts_start": experts.start} if experts.start else {})


def read(said: Raw, start: int = 0) -> Experts | None:
    """The experts of a row's item, from JSON; None where it has none, or has them in another form.

    Raises:
        TaskError: there are not as many as it says.
    """
    found = _FORM.fullmatch(bytes(said).decode("ascii", "replace"), 1, len(said) - 1) if said else None
    if found is None:
        return None
    tokens, layers, top_k = int(found[2]), int(found[3]), int(found[4])
    try:
        data = b64decode(found[5], validate=True)
    except ValueError as error:
        raise TaskError(f"routed_experts: {error}") from error
    experts = Experts(layers=layers, top_k=top_k, data=data, start=start, wide=found[1] == "int16")
    if not experts.row_bytes or len(data) != tokens * experts.row_bytes:
        raise TaskError(
            f"routed_experts: {len(data):,} bytes are not {tokens} x {layers} x {top_k} {found[1]}"
        )
    return experts


class Rows:
    """The experts of a sequence that is being put together, from its first token on.

    They are all there, or none: a gap would move those behind it.
    """

    def __init__(self, parent: Rows | None = None, tokens: int = 0) -> None:
        """
        Args:
            parent: those of the sequence that it leaves.
            tokens: how many ids both begin with.
        """
        self.data = bytearray()
        self.last: Experts | None = None
        self.whole = True
        if parent is not None and parent.last is not None and parent.whole:
            self.data += memoryview(parent.data)[: tokens * parent.last.row_bytes]
            self.last = parent.last

    def add(self, experts: Experts | None) -> None:
        """Go on with those of the next call. Where a token has some already, these stay."""
        old, self.last = self.last, experts
        if experts is None or not self.whole:
            self.whole = False
            return
        if old is not None and old.wide != experts.wide:
            # Some engines write as few bytes as the numbers of one call need.
            self.data = self.data if old.wide else _wide(self.data)
            self.last = experts = experts.widened()
        known, size = len(self.data), experts.row_bytes
        alike = old is None or (old.layers, old.top_k) == (experts.layers, experts.top_k)
        if not alike or experts.start * size > known:
            self.whole = False
            return
        self.data += memoryview(experts.data)[known - experts.start * size :]
