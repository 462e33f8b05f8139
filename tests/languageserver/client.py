"""A client of a language server over stdio: it opens texts, and asks what an editor would ask."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from threading import Timer
from typing import Any

_MOST_S = 1200


class Editor:
    """An editor that has one schema for all YAML files."""

    def __init__(self, server: Path, schema: Path) -> None:
        self._server = subprocess.Popen(
            ["node", str(server), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._timer = Timer(_MOST_S, self._server.kill)
        self._timer.start()
        self._asked = 0
        self._notes: list[dict[str, Any]] = []
        self._opened = 0
        self._configured = False
        self._yaml = {"schemas": {schema.as_uri(): ["*.yaml"]}, "validate": True, "hover": True, "completion": True,
                      "schemaStore": {"enable": False}}  # fmt: skip
        capabilities = {
            "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}},
            "textDocument": {
                "hover": {"contentFormat": ["markdown"]},
                "completion": {"completionItem": {"documentationFormat": ["markdown"]}},
            },
        }
        self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities})
        self._send({"method": "initialized", "params": {}})
        self._send({"method": "workspace/didChangeConfiguration", "params": {"settings": None}})
        while not self._configured:
            self._read()

    def close(self) -> None:
        """End the server."""
        self._timer.cancel()
        self._server.kill()
        self._server.communicate()

    def open(self, text: str) -> str:
        """Open a text as a file; returns its address."""
        self._opened += 1
        uri = f"file:///declarations/{self._opened}.yaml"
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        return uri

    def complaints(self, text: str) -> list[tuple[int, str]]:
        """The lines (the first is 1) and texts of what is wrong with a file."""
        uri = self.open(text)
        while True:
            for note in self._notes:
                if note["method"] == "textDocument/publishDiagnostics" and note["params"]["uri"] == uri:
                    self._notes.remove(note)
                    found = note["params"]["diagnostics"]
                    return sorted((each["range"]["start"]["line"] + 1, each["message"]) for each in found)
            self._read()

    def ask(self, method: str, params: Any) -> Any:
        """The answer to a request."""
        self._asked += 1
        number = self._asked
        self._send({"id": number, "method": method, "params": params})
        while True:
            answer = self._read()
            if answer.get("id") == number and "method" not in answer:
                return answer.get("result")

    def at(self, method: str, uri: str, line: int, column: int) -> Any:
        """The answer to a request about a place; the first line and column are 0."""
        return self.ask(method, {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._server.stdin.flush()

    def _read(self) -> dict[str, Any]:
        """One message of the server; it may ask for settings; notifications are kept."""
        assert self._server.stdout is not None
        length = 0
        while line := self._server.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            raise EOFError("the language server has ended")
        message: dict[str, Any] = json.loads(self._server.stdout.read(length))
        if "method" in message and "id" in message:
            asked = message["params"]["items"] if message["method"] == "workspace/configuration" else []
            answer = [self._yaml if item.get("section") == "yaml" else {} for item in asked]
            self._configured |= bool(asked)
            self._send({"id": message["id"], "result": answer or None})
        elif "method" in message:
            self._notes.append(message)
        return message
