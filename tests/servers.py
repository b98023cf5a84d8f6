"""Servers on this machine, each in a thread: for engines and APIs, and a stand-in for the Hugging Face hub over its own HTTP interface.

`huggingface_hub` and `datasets` talk to it through HF_ENDPOINT, by the paths, headers and error codes that they use with
the real one: repository info, file tree, path infos, and files by revision.
"""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class Serving(ThreadingHTTPServer):
    """Serves from its making until the end of its `with` block; `bodies` is for what was asked, under `lock`."""

    request_queue_size = 64
    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.lock, self.bodies = threading.Lock(), []
        self.address = f"http://127.0.0.1:{self.server_port}/v1"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


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


class Hub:
    """The server, for a `with` statement; `environment` is what a process needs to see it and nothing else."""

    def __init__(self, repos: dict[str, Repo], home):
        self.repos, self.home = repos, home
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"repos": repos}))

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.server.server_address[1]}",
            "HF_HOME": str(self.home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }


class _Handler(BaseHTTPRequestHandler):
    repos: dict[str, Repo]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def do_POST(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    def _answer(self):
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        api = parts[0] == "api"
        parts = parts[1:] if api else parts
        kind = parts.pop(0) if parts[0] in ("datasets", "models") else "models"
        name, rest = "/".join(parts[:2]), parts[2:]
        own = {key.partition("@")[2]: repo for key, repo in self.repos.items() if key.partition("@")[0] == name}
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
        elif rest[0] == "paths-info":
            self._json(_entries(repo, self._wanted()))
        else:
            self._refuse(404, "EntryNotFound", f"no such call: {self.path}")

    def _wanted(self) -> list[str]:
        if "json" in (self.headers.get("Content-Type") or ""):
            return json.loads(self.body)["paths"]
        return parse_qs(self.body.decode()).get("paths", [])

    def _tree(self, repo: Repo, folder: str):
        recursive = parse_qs(urlsplit(self.path).query).get("recursive", [""])[0].lower() in ("1", "true")
        inside = [path for path in _paths(repo) if not folder or path.startswith(f"{folder}/")]
        depth = folder.count("/") + 1 if folder else 0
        if folder and not inside:
            self._refuse(404, "EntryNotFound", f"{folder} does not exist on {repo.commit}")
        else:
            self._json(_entries(repo, [path for path in inside if recursive or path.count("/") == depth]))

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
        start, end = 0, len(data)
        if status == 200 and (asked := self.headers.get("Range")):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end, status = int(first), min(int(last or end), end - 1) + 1, 206
            headers |= {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        self.send_response(status)
        for key, value in ({"Accept-Ranges": "bytes", "Content-Length": str(end - start)} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[start:end])


def _digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def _paths(repo: Repo) -> list[str]:
    """Files and the folders above them."""
    folders = {"/".join(path.split("/")[:i]) for path in repo.files for i in range(1, path.count("/") + 1)}
    return sorted({*repo.files, *folders})


def _entries(repo: Repo, paths: list[str]) -> list[dict]:
    known = set(_paths(repo))
    return [_entry(repo, path.strip("/")) for path in paths if path.strip("/") in known]


def _entry(repo: Repo, path: str) -> dict:
    if path not in repo.files:
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": path}
    data = repo.files[path]
    return {"type": "file", "oid": _digest(data), "size": len(data), "path": path}


def _info(name: str, repo: Repo) -> dict:
    return {
        "_id": "0" * 24, "id": name, "modelId": name, "author": name.split("/")[0], "sha": repo.commit,
        "lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z", "private": False,
        "gated": "manual" if repo.gated else False, "disabled": False, "downloads": 0, "likes": 0, "tags": [],
        "siblings": [
            {"rfilename": path, "size": repo.sizes.get(path, len(data))} for path, data in sorted(repo.files.items())
        ],
    }  # fmt: skip
