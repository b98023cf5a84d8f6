"""A small HTTP server on a port of its own, in a thread, for the tests of the openai engine and of APIs."""

import threading
from http.server import ThreadingHTTPServer


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
