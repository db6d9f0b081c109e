"""The APIs of models, one table each: Responses, Chat Completions, Anthropic's Messages, Gemini's.

Inside, everything is the Responses API. A dialect reads and writes both ends of a call: a client's request
and its answer (the gateway is asked), a request to an engine and its answer (an adapter asks). It knows no
HTTP. The functions have the same names in each:

    ====================  ==========================================================================
    ``read_request``      a client's body → the call and what the client asked for (`dialect.Asked`)
    ``write_answer``      the model's response → the body of an answer to the client
    ``write_events``      the same as a stream
    ``write_request``     a call → the body for an engine
    ``read_answer``       an engine's body → the response
    ====================  ==========================================================================

The files: `responses_api`; `completions`, which only engines speak; `chat_request` with `chat_messages`,
`chat_answer` with `chat_tokens`; `messages_api` and `gemini_api` for clients, `messages_engine` and
`gemini_engine` for engines with computer tools of their own. `dialect` has what they share, `pieces` JSON
that passes through undecoded, `side_channel` the parameters that the Responses API lacks.
"""

from gym_runtime.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
