"""Servers on this machine, each in a thread: for engines and APIs, and a stand-in for the Hugging Face hub over its own HTTP interface.

`huggingface_hub` and `datasets` talk to it through HF_ENDPOINT, by the paths, headers and error codes that they use with
the real one: repository info, file tree, and files by revision.
"""

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit


class Serving(ThreadingHTTPServer):
    """Serves from its making until the end of its `with` block."""

    request_queue_size = 64
    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *where):
        """A client that has gone away, as one does when another of its requests was refused, is not worth a traceback."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*where)


class Api(Serving):
    """Chat completions by `reply(body, headers)`: a status, bytes or what becomes JSON, and headers if there are any.

    What was asked is in `bodies`, when it came in `times`.
    """

    def __init__(self, reply: Callable[..., tuple]):
        self.reply, self.bodies, self.times = reply, [], []
        super().__init__(_Completions)
        self.address = f"{self.origin}/v1"


class _Completions(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.times.append(time.monotonic())
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        status, value, *headers = self.server.reply(body, self.headers)
        if self.path != "/v1/chat/completions":
            status, value = 404, {"error": {"message": f"no such path: {self.path}"}}
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in ({"Content-Length": str(len(content))} | dict(*headers)).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def choice(content, index: int = 0, reason: str | None = "stop", **message) -> dict:
    return {"index": index, "finish_reason": reason, "message": {"role": "assistant", "content": content} | message}


@dataclass
class Repo:
    """A repository, or the revision of one that its key NAME@REVISION names: its files at one commit.

    gated: the status with which its files are refused. sizes: of files that are told to be larger than they are.
    """

    files: dict[str, bytes]
    commit: str
    kind: str = "datasets"
    gated: int | None = None
    asked: list[str] = field(default_factory=list)  # files that were sent
    sizes: dict[str, int] = field(default_factory=dict)


class Hub(Serving):
    """A hub of these repositories; `environment` is what a process needs to see it and nothing else."""

    def __init__(self, repos: dict[str, Repo], home):
        self.repos = repos
        super().__init__(_Handler)
        here = {"HF_ENDPOINT": self.origin, "HF_HOME": str(home)}
        self.environment = here | {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        api = parts[0] == "api"
        parts = parts[1:] if api else parts
        kind = parts.pop(0) if parts[0] in ("datasets", "models") else "models"
        name, rest = "/".join(parts[:2]), parts[2:]
        own = {key.partition("@")[2]: repo for key, repo in self.server.repos.items() if key.partition("@")[0] == name}
        named = rest[1] if len(rest) > 1 else ""
        repo = next((own[key] for key in own if named in (key, own[key].commit)), own.get(""))
        if repo is None or repo.kind != kind:
            self._refuse(401, "RepoNotFound", "Repository not found")
        elif named not in ("", "main", repo.commit) and named not in own:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {rest[1]}")
        elif not api:
            self._file(repo, "/".join(rest[2:]))
        elif not rest or rest[0] == "revision":
            self._json(_info(name, repo))
        elif rest[0] == "tree":
            self._tree(repo, "/".join(rest[2:]))
        else:
            self._refuse(404, "EntryNotFound", f"no such call: {self.path}")

    do_HEAD = do_GET

    def _tree(self, repo: Repo, folder: str):
        recursive = "recursive=true" in self.path
        inside = {path: one for path, one in _entries(repo).items() if not folder or path.startswith(f"{folder}/")}
        depth = folder.count("/") + 1 if folder else 0
        if folder and not inside:
            self._refuse(404, "EntryNotFound", f"{folder} does not exist on {repo.commit}")
        else:
            self._json([one for path, one in inside.items() if recursive or path.count("/") == depth])

    def _file(self, repo: Repo, path: str):
        if repo.gated:
            self._refuse(repo.gated, "GatedRepo", "Access to this repository is restricted")
        elif path not in repo.files:
            self._refuse(404, "EntryNotFound", "Entry not found", commit=repo.commit)
        else:
            if self.command == "GET":
                repo.asked.append(path)
            data = repo.files[path]
            self._send(200, data, {"X-Repo-Commit": repo.commit, "ETag": f'"{_digest(data)}"'})

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str, commit: str | None = None):
        headers = {"X-Error-Code": code, "X-Error-Message": message} | ({"X-Repo-Commit": commit} if commit else {})
        self._send(status, json.dumps({"error": message}).encode(), headers | {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: dict[str, str]):
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def _entries(repo: Repo) -> dict[str, dict]:
    """What the hub tells of each file, and of the folders above them."""
    found = {}
    for path, data in repo.files.items():
        for folder in [*PurePosixPath(path).parents][:-1]:
            found[str(folder)] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": str(folder)}
        found[path] = {"type": "file", "oid": _digest(data), "size": len(data), "path": path}
    return found


def _info(name: str, repo: Repo) -> dict:
    return {
        "_id": "0" * 24, "id": name, "sha": repo.commit, "private": False, "gated": "manual" if repo.gated else False,
        "siblings": [
            {"rfilename": path, "size": repo.sizes.get(path, len(data))} for path, data in sorted(repo.files.items())
        ],
    }  # fmt: skip
