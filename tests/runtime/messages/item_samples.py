"""Items of every type."""

from __future__ import annotations

from hypothesis import strategies as st

ITEMS = [
    b'{"role": "user", "content": "no type"}',
    b'{ "type":"message" , "role":"user","content":[{"type":"input_image","detail":"low"}],"x":{}}',
    b'{"content":"\\u00e4 \xc3\xa4","phase":1.50,"role":"assistant","type":"message"}',
    b'{"type":"reasoning","summary":[],"content":null,"id":"r","zz":[1,2]}',
    b'{"type":"function_call","name":"f","arguments":"{\\"a\\": 1}","call_id":"c","parsed":{"a":1}}',
    b'{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"a","z":0}],"z":0}',
    b'{"type":"web_search_call","id":"w","action":{"query":"q"},"status":"completed"}',
    b'{"prompt_token_ids":[1,2],"type":"message","role":"assistant","content":[],"generation_log_probs":[-0.10]}',
]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
