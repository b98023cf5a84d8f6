"""A headless Chromium over its DevTools protocol: click, look, and hear of every request, message and exception.

What would leave the machine goes to a proxy of ours that writes it down: the protocol itself misses what a page asks for
before its process is listened to.
"""

import base64
import contextlib
import itertools
import json
import socketserver
import subprocess
import threading
import time
from pathlib import Path

import needs
from websockets.sync.client import connect

FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions
--disable-background-networking --disable-component-update --disable-sync --disable-default-apps"""
# Hosts that Chromium asks on its own account, whatever the page.
OWN = ("clients2.google.com", "accounts.google.com", "update.googleapis.com", "optimizationguide-pa.googleapis.com",
       "content-autofill.googleapis.com")  # fmt: skip
PATIENCE = 30  # seconds until what was expected counts as missing


class Browser:
    """One window. `requests` are the addresses that any frame asked for, `complaints` console errors and exceptions.

    reaches: HOST:PORT of a server of the test's own that it may call.
    """

    def __init__(self, folder: Path, width: int = 1500, height: int = 1000, reaches: str = ""):
        self.requests, self.complaints, self.contexts = [], [], {}
        self.proxy = _proxy(self.requests)
        arguments = [*FLAGS.split(), "--remote-debugging-port=0", f"--window-size={width},{height}"]
        arguments.append(f"--proxy-bypass-list=<-loopback>;{reaches}".rstrip(";"))
        arguments.append(f"--proxy-server=http://127.0.0.1:{self.proxy.server_address[1]}")
        self.process = subprocess.Popen(
            [needs.chromium(), *arguments, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port, path = until(lambda: _port(folder))
        self.closing = contextlib.ExitStack()
        self.socket = self.closing.enter_context(connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None))
        self.numbers, self.answers = itertools.count(1), {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.page = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._listen(self.page)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.close()
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.proxy.shutdown()
        self.proxy.server_close()

    def open(self, url: str) -> None:
        self.call("Page.navigate", self.page, url=url)

    def evaluate(self, expression: str, context: tuple[str, int] | None = None):
        """The value of a JavaScript expression in the page, or in one of `contexts`."""
        session, number = context or (self.page, None)
        where = {} if number is None else {"contextId": number}
        answer = self.call(
            "Runtime.evaluate", session, expression=expression, returnByValue=True, awaitPromise=True, **where
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def in_frames(self, expression: str) -> list:
        """The values of an expression in every frame inside the page."""
        self.pump(0.05)
        values = []
        for context, origin in list(self.contexts.items()):
            if origin in ("://", "null", ""):  # a data: document has no origin
                try:
                    values.append(self.evaluate(expression, context))
                except AssertionError:  # the frame has gone in the meantime
                    continue
        return values

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", self.page, format="png")["data"]))

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        number = self._send(method, session, **parameters)
        while number not in self.answers:
            self._take(self.socket.recv(PATIENCE))
        answer = self.answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def pump(self, seconds: float) -> None:
        """Take in what the browser has to say for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self._take(self.socket.recv(left))
            except TimeoutError:
                return

    def _send(self, method: str, session: str | None = None, **parameters) -> int:
        message = {"id": next(self.numbers), "method": method, "params": parameters}
        self.socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        return message["id"]

    def _listen(self, session: str) -> None:
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._send(f"{domain}.enable", session)
        # A frame in a process of its own starts only when it is being listened to.
        self._send("Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        self._send("Runtime.runIfWaitingForDebugger", session)

    def _take(self, text: str) -> None:
        message = json.loads(text)
        if "id" in message:
            self.answers[message["id"]] = message
            return
        event, session = message["params"], message.get("sessionId", "")
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(event["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(event["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(event["exceptionDetails"])
            case "Runtime.consoleAPICalled" if event["type"] in ("error", "assert"):
                self.complaints.append([part.get("value", part.get("description")) for part in event["args"]])
            case "Log.entryAdded" if event["entry"]["level"] == "error":
                self.complaints.append(event["entry"])
            case "Runtime.executionContextCreated":
                self.contexts[session, event["context"]["id"]] = event["context"]["origin"]
            case "Runtime.executionContextDestroyed":
                self.contexts.pop((session, event["executionContextId"]), None)
            case "Target.attachedToTarget":
                self._listen(event["sessionId"])


def _proxy(requests: list[str]) -> socketserver.TCPServer:
    """A proxy that appends every address asked for to `requests` and answers nothing."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            address = (self.rfile.readline().decode("latin-1").split() + ["", ""])[1]
            if not address.removeprefix("http://").startswith(OWN):
                requests.append(address or "a connection")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def until(look, seconds: float = PATIENCE):
    """What `look` returns as soon as it is true; AssertionError if it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain for {look}")


def _port(folder: Path) -> list[str] | None:
    path = folder / "DevToolsActivePort"
    lines = path.read_text().split() if path.exists() else []
    return lines if len(lines) == 2 else None
