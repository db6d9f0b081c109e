"""What a harness gets of its task's function tools: an MCP server, its configuration, and a shell command."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from gym_runtime import Image
from msgspec import Raw

SERVER = "gym"
"""The server's name; harnesses put it in front of the tools' names."""
_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_tool = msgspec.json.Decoder(dict[str, Any]).decode

# With http.client: an opener of urllib's loads all certificates from Python 3.12 on, 25 ms of CPU.
_COMMAND = """#!{python} -I
import http.client, json, sys

if len(sys.argv) not in (2, 3):
    sys.exit("usage: gym-tool NAME ['{{\\"ARGUMENT\\": VALUE}}']")
try:
    arguments = json.loads(sys.argv[2] if len(sys.argv) == 3 else "{{}}")
except ValueError as error:
    sys.exit(f"gym-tool: the arguments are not JSON: {{error}}")
params = {{"name": sys.argv[1], "arguments": arguments}}
body = json.dumps({{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}}).encode()
connection = http.client.HTTPConnection({host!r})
try:
    connection.request("POST", {path!r}, body, {{"content-type": "application/json"}})
    response = connection.getresponse()
    said = response.read()
except (OSError, http.client.HTTPException) as error:
    sys.exit(f"gym-tool: there is no answer: {{error}}")
try:
    answer = json.loads(said)
except ValueError:
    sys.exit(f"gym-tool: the server answered {{response.status}}: {{said[:1000]}}")
if "error" in answer:
    sys.exit("gym-tool: " + answer["error"]["message"])
print("\\n".join(one.get("text", "[" + one["type"] + "]") for one in answer["result"]["content"]))
sys.exit(answer["result"]["isError"])
"""


def write_files(folder: str, url: str) -> dict[str, str]:
    """Write ``gym-tool`` and ``mcp.json``; what stands for them in a command.

    Args:
        url: the MCP server's.
    """
    own = Path(folder)
    config = own / "mcp.json"
    config.write_bytes(_encode({"mcpServers": {SERVER: {"type": "http", "url": url}}}))
    command = own / "gym-tool"
    where = urlsplit(url)
    command.write_text(_COMMAND.format(python=sys.executable, host=where.netloc, path=where.path))
    command.chmod(0o700)
    return {"mcp_url": url, "mcp_config": str(config)}


def write_images(folder: str, images: Sequence[Image]) -> list[str]:
    """Write the images of a prompt; their paths, in order."""
    paths = [
        Path(folder, f"image-{number}.{one.media_type.removeprefix('image/')}")
        for number, one in enumerate(images, 1)
    ]
    for path, one in zip(paths, images, strict=True):
        path.write_bytes(one.data)
    return [str(path) for path in paths]


def described(tools: Sequence[Raw]) -> str:
    """A paragraph for harnesses that take no MCP server: the tools, and how the shell calls them."""
    found = [_decode_tool(tool) for tool in tools]
    lines = [
        f"- {one['name']}: {one.get('description') or ''} {_encode(one.get('parameters') or {}).decode()}"
        for one in found
        if one.get("type") == "function"
    ]
    how = "These tools are called in the shell, with their arguments as JSON: gym-tool NAME '{...}'"
    return "\n".join([how, *lines]) if lines else ""


_PREFIXES = (f"mcp__{SERVER}__", f"{SERVER}__", f"{SERVER}_")


def own_name(name: str, tools: Collection[str]) -> str:
    """The tool's own name for the one by which a harness calls it.

    >>> own_name("mcp__gym__add", {"add"}), own_name("gym_add", {"add"}), own_name("Bash", {"add"})
    ('add', 'add', 'Bash')
    """
    for prefix in _PREFIXES:
        if name.startswith(prefix) and name[len(prefix) :] in tools:
            return name[len(prefix) :]
    return name


def with_own_names(output: Sequence[Raw], tools: Collection[str]) -> list[Raw]:
    """A transcript in which calls have the tools' own names; other items stay as they are, byte by byte."""
    return [_renamed(item, tools) for item in output]


def _renamed(item: Raw, tools: Collection[str]) -> Raw:
    if b'"function_call"' not in bytes(item):
        return item
    fields = _decode_fields(item)
    if bytes(fields.get("type", b"")) != b'"function_call"':
        return item
    name = msgspec.json.decode(fields["name"])
    own = own_name(name, tools)
    return item if own == name else Raw(_encode({**fields, "name": Raw(_encode(own))}))
