"""A chat-completions server on loopback that is as strict as the real ones, and stricter where providers differ.

`POST /v1/chat/completions`, with and without ``stream``, with tools and ``stream_options``. It answers 400 with an
``invalid_request_error`` to:

- a body that is not JSON, no model, no messages, unknown keys of the request
- an unknown role, unknown keys of a message, a name that is not ``[A-Za-z0-9_-]{1,64}``
- empty or blank content: a text, a list, or a text part; ``null`` without tool calls; an unknown part
- a system message that is not at the beginning
- a conversation that does not begin with a user message (after the system message)
- a tool call without an id, with an id that was used before in the same message, with a name that is no tool name,
  or with arguments that are not a JSON object
- a tool call whose result does not follow directly (only other results of the same message may stand between)
- a tool message without its call, or a second one for the same call
- tools that are malformed or have the same name twice, tool calls in the history of a request without tools
- more estimated tokens than the window has (``context_length_exceeded``)

What it answers is decided by a function of the messages, so a test plays the model.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Messages = Sequence[Mapping[str, Any]]
Answer = Callable[[Messages], Mapping[str, Any]]
"""From the messages of a request to the assistant's message: ``{"content": ..., "tool_calls": [...]}``."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_REQUEST_KEYS = {
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "temperature",
    "top_p", "max_tokens", "max_completion_tokens", "stop", "n", "seed", "user", "metadata", "response_format",
    "frequency_penalty", "presence_penalty", "logprobs",
}  # fmt: skip
_MESSAGE_KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
_PARTS = {"text": "text", "image_url": "image_url", "input_audio": "input_audio", "file": "file"}


class BadRequestError(Exception):
    """The request breaks a rule."""

    def __init__(self, message: str, code: str | None = None) -> None:
        self.code = code
        super().__init__(message)


def check_request(body: Any, *, window_tokens: int = 1_000_000) -> None:
    """Check a request against the rules above.

    Raises:
        BadRequestError: It breaks one.
    """
    _require(isinstance(body, dict), "the body must be an object")
    _require(not body.keys() - _REQUEST_KEYS, f"unrecognized request arguments: {sorted(body.keys() - _REQUEST_KEYS)}")
    _require(isinstance(body.get("model"), str) and body["model"], "model is missing")
    messages = body.get("messages")
    _require(isinstance(messages, list) and messages, "messages must not be empty")
    tools = _check_tools(body.get("tools"))
    open_calls: set[str] = set()
    answered: set[str] = set()
    spoken = False
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        role = _check_shape(message, where)
        if role == "tool":
            call_id = message.get("tool_call_id")
            _require(call_id not in answered, f"{where}: a second result for {call_id!r}")
            _require(
                call_id in open_calls,
                f"{where}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
            )
            open_calls.discard(call_id)
            answered.add(call_id)
            continue
        _require(
            not open_calls,
            f"{where}: an assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'; missing: {sorted(open_calls)}",
        )
        answered = set()
        if role in ("system", "developer"):
            _require(not spoken, f"{where}: a system message in the middle of the conversation")
            continue
        _require(spoken or role == "user", f"{where}: the conversation must begin with a user message")
        spoken = True
        if role == "assistant" and message.get("tool_calls") is not None:
            open_calls = _check_calls(message["tool_calls"], where)
            _require(tools, f"{where}: tool calls in a request without tools")
    _require(not open_calls, f"no results for the last tool calls: {sorted(open_calls)}")
    tokens = len(json.dumps([messages, body.get("tools")])) // 4
    if tokens > window_tokens:
        raise BadRequestError(
            f"This model's maximum context length is {window_tokens} tokens, your messages have {tokens}.",
            "context_length_exceeded",
        )


def _check_shape(message: Any, where: str) -> str:
    _require(isinstance(message, dict), f"{where}: not an object")
    role = message.get("role")
    _require(role in _MESSAGE_KEYS, f"{where}: unknown role {role!r}")
    unknown = message.keys() - _MESSAGE_KEYS[role]
    _require(not unknown, f"{where}: unrecognized keys {sorted(unknown)}")
    if "name" in message:
        _require(isinstance(message["name"], str) and _NAME.match(message["name"]), f"{where}: bad name")
    content = message.get("content")
    if role == "assistant" and message.get("tool_calls") and content in (None, ""):
        return str(role)
    if isinstance(content, str):
        _require(content.strip(), f"{where}: content is empty")
        return str(role)
    _require(isinstance(content, list) and content, f"{where}: content must be a text or a list that is not empty")
    for part in content:
        _require(isinstance(part, dict) and part.get("type") in _PARTS, f"{where}: unknown content part")
        value = part.get(_PARTS[part["type"]])
        _require(value, f"{where}: an empty content part")
        _require(part["type"] != "text" or str(value).strip(), f"{where}: an empty text part")
    return str(role)


def _check_calls(calls: Any, where: str) -> set[str]:
    _require(isinstance(calls, list) and calls, f"{where}: tool_calls must not be empty")
    ids: set[str] = set()
    for call in calls:
        _require(isinstance(call, dict) and call.get("type") == "function", f"{where}: a tool call of unknown type")
        call_id, function = call.get("id"), call.get("function")
        _require(isinstance(call_id, str) and call_id, f"{where}: a tool call without id")
        _require(call_id not in ids, f"{where}: the id {call_id!r} twice")
        _require(isinstance(function, dict) and _NAME.match(str(function.get("name"))), f"{where}: bad function name")
        try:
            arguments = json.loads(function["arguments"])
        except (KeyError, TypeError, ValueError):
            arguments = None
        _require(isinstance(arguments, dict), f"{where}: arguments are not a JSON object")
        ids.add(call_id)
    return ids


def _check_tools(tools: Any) -> set[str]:
    if tools is None:
        return set()
    _require(isinstance(tools, list) and tools, "tools must not be empty")
    names: set[str] = set()
    for tool in tools:
        _require(isinstance(tool, dict) and tool.get("type") == "function", "a tool of unknown type")
        name = str(tool.get("function", {}).get("name"))
        _require(_NAME.match(name) and name not in names, f"bad or repeated tool name {name!r}")
        names.add(name)
    return names


def _require(condition: Any, message: str) -> None:
    if not condition:
        raise BadRequestError(message)


class OpenAIServer:
    """The server, in a thread of its own, while it is used as a context manager.

    Attributes:
        base_url: For the client.
        requests: Bodies of all requests, oldest first.
        refused: Messages of all 400s.
    """

    def __init__(self, answer: Answer, *, window_tokens: int = 1_000_000) -> None:
        self.answer = answer
        self.window_tokens = window_tokens
        self.requests: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                try:
                    body = json.loads(raw)
                except ValueError as error:
                    raise BadRequestError("the body is not JSON") from error
                server.requests.append(body)
                check_request(body, window_tokens=server.window_tokens)
            except BadRequestError as error:
                server.refused.append(str(error))
                self._send_json(
                    400, {"error": {"message": str(error), "type": "invalid_request_error", "code": error.code}}
                )
                return
            message = {"role": "assistant", "content": None, **server.answer(body["messages"])}
            if body.get("stream"):
                self._send_events(_chunks(body, message))
            else:
                finish = "tool_calls" if message.get("tool_calls") else "stop"
                choice = {"index": 0, "message": message, "finish_reason": finish}
                self._send_json(
                    200, {**_head(body, "chat.completion"), "choices": [choice], "usage": _usage(body, message)}
                )

        def _send_json(self, status: int, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _send_events(self, events: Iterator[Mapping[str, Any]]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in [*(json.dumps(event) for event in events), "[DONE]"]:
                data = f"data: {line}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return Handler


def _chunks(body: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A message as deltas: the role, words, calls with their arguments in two halves, the reason, the usage."""
    head = _head(body, "chat.completion.chunk")

    def delta(content: Mapping[str, Any], finish: str | None = None) -> Mapping[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": content, "finish_reason": finish}]}

    yield delta({"role": "assistant", "content": ""})
    for word in re.findall(r"\S+\s*", message.get("content") or ""):
        yield delta({"content": word})
    for index, call in enumerate(message.get("tool_calls") or ()):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        yield delta(
            {"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": arguments[:half]}}]}
        )
        yield delta({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    yield delta({}, "tool_calls" if message.get("tool_calls") else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(body, message)}


def _head(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_777_000_000, "model": body["model"]}


def _usage(body: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, int]:
    read, written = len(json.dumps(body["messages"])) // 4, max(1, len(json.dumps(message)) // 4)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
