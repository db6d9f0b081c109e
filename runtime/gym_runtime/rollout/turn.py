"""A turn as its agent sees it: one answer of the model."""

from __future__ import annotations

from gym_runtime.messages import calls
from gym_runtime.messages.call_tokens import Ids, lengthened
from gym_runtime.messages.responses import FunctionCall, Item, Message, Response, decode_items


class Turn:
    """One answer of the model.

    Args:
        items: of the response, where they are decoded already.
    """

    def __init__(
        self,
        response: Response,
        tokens: calls.Tokens | None,
        before: Ids = (),
        items: list[Item] | None = None,
    ) -> None:
        self.response = response
        self._tokens, self._before = tokens, before
        self.items = decode_items(response.output) if items is None else items

    @property
    def tokens(self) -> calls.Tokens | None:
        """What the engine saw and produced, with the whole prompt; None if it was not asked for."""
        return None if self._tokens is None else lengthened(self._tokens, self._before)

    @property
    def function_calls(self) -> list[FunctionCall]:
        return [item for item in self.items if isinstance(item, FunctionCall)]

    @property
    def messages(self) -> list[Message]:
        """The assistant's messages."""
        return [item for item in self.items if isinstance(item, Message) and item.role == "assistant"]

    @property
    def incomplete(self) -> str | None:
        """Why the answer is incomplete (``max_output_tokens``, ``content_filter``), or None."""
        details = self.response.incomplete_details
        return None if details is None else details.reason or "incomplete"
