"""A small OpenAI-compatible endpoint whose answers have a confidence, and one page for a browser.

POST /v1/chat/completions   as OpenAI's; each choice has `confidence` in [0, 1] or null, and `orce` with the details
GET  /v1/models             the one model
GET  /reliability           how confidences held on the judge's test set: the bins of the diagram
GET  /                      the page
GET  /health                {status, waiting}: how many requests wait or are computed
One request is computed at a time, in a thread of its own; the others wait, and everything else is answered meanwhile.
Imported only by `orce serve`, as it needs FastAPI (the extra `serve`).
"""

import asyncio
import contextlib
import json
import math
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from orce.apps.service.assistant import Assistant, Reply
from orce.apps.service.observed import Diagram
from orce.errors import BadInput
from orce.reports.tables import render

LONGEST = 4096  # tokens of a conversation with its answers
BODY = 2**20  # bytes of a request
WAITING = 16  # requests that wait or are computed
LEFT = 0.5  # seconds between two looks whether a client has left
LOCAL = ["127.0.0.1", "localhost", "[::1]"]


class Turn(BaseModel):
    """One message; its content is text."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class Chat(BaseModel):
    """The part of a chat completion's request that is understood; other keys are ignored, as OpenAI's clients send many."""

    messages: list[Turn] = Field(min_length=1)
    model: str = ""
    n: int = Field(1, ge=1, le=32)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=4096)
    max_completion_tokens: int | None = Field(None, ge=1, le=4096)
    seed: int = 0
    stream: bool = False
    choices: list[str] | None = None  # ours: the options of a multiple-choice question
    context: str | None = None  # ours: a passage that the question is about


class Full(Exception):
    """The queue is full; the argument is the number of seconds after which it may have room."""


class Turns:
    """Calls of the model, one at a time and in their order; at most WAITING wait or run."""

    def __init__(self):
        self.worker, self.waiting, self.seconds = ThreadPoolExecutor(1), 0, 1.0

    async def take(self, request: Request, call: Callable[[], Any]) -> Any:
        """The result of the call; None if its client left before it began. Raises Full."""
        if self.waiting >= WAITING:
            raise Full(math.ceil(self.seconds))
        self.waiting += 1
        job = self.worker.submit(self._timed, call)
        try:
            done = asyncio.wrap_future(job)
            while not (await asyncio.wait([done], timeout=LEFT))[0]:
                if await request.is_disconnected() and job.cancel():
                    return None
            return done.result()
        finally:
            self.waiting -= 1

    def _timed(self, call: Callable[[], Any]) -> Any:
        started = time.monotonic()
        try:
            return call()
        finally:
            self.seconds = time.monotonic() - started


class BodyLimit:
    """Refuses a request with a body of more than BODY bytes before the rest of it is read."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        announced = int(dict(scope["headers"]).get(b"content-length", 0))
        body, more = b"", announced <= BODY
        while more and len(body) <= BODY:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if max(announced, len(body)) > BODY:
            refusal = failure(413, f"the body has more than {BODY} bytes", headers={"Connection": "close"})
            return await refusal(scope, receive, send)
        whole = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again():
            return next(whole, None) or await receive()

        return await self.app(scope, again, send)


def create(
    assistant: Assistant,
    name: str,
    test: Diagram | None,
    hosts: list[str] | None = None,
    key: str = "",
    longest: int = LONGEST,
) -> FastAPI:
    """The application. name: of the model; test: of its test set; hosts: names by which it may be called
    (default: this machine's own); key: what clients must send as bearer token (default: nothing); longest: tokens of a
    conversation with its answers."""
    turns = Turns()

    @contextlib.asynccontextmanager
    async def running(app):
        yield
        turns.worker.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(title="orce serve", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    app.add_middleware(BodyLimit)
    # A page elsewhere could otherwise reach this address under a name of its own.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL, *(hosts or [])])
    page = render.html_environment().get_template("serve.html.j2").render(name=name, test=test, key=bool(key))

    @app.exception_handler(RequestValidationError)
    async def refused(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return failure(400, f"{where}: {first['msg']}" if where else first["msg"], where or None)

    @app.exception_handler(BadInput)
    async def bad(request: Request, error: BadInput) -> JSONResponse:
        return failure(400, str(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        return failure(error.status_code, error.detail)

    @app.exception_handler(Full)
    async def full(request: Request, error: Full) -> JSONResponse:
        later = {"Retry-After": str(error.args[0])}
        return failure(429, f"{WAITING} requests are waiting; try again in {error.args[0]} s", headers=later)

    # `async` throughout: a plain function would need one of the threads that wait for something else.
    @app.get("/", response_class=HTMLResponse)
    async def index() -> str:
        return page

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "waiting": turns.waiting}

    @app.get("/favicon.ico", status_code=204)
    async def icon() -> None:
        """Browsers ask for one; there is none."""

    @app.get("/reliability")
    async def diagram() -> dict[str, Any]:
        return asdict(test) if test else {}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "orce"}]}

    @app.post("/v1/chat/completions")
    async def chat(body: Chat, request: Request) -> Any:
        if key and request.headers.get("authorization") != f"Bearer {key}":
            return failure(401, "the key is missing or wrong; send it as a bearer token")
        found = await turns.take(request, lambda: completion(assistant, body, name, test, longest))
        if found is None:
            return Response(status_code=499)  # nobody reads it
        if not body.stream:
            return found
        return StreamingResponse(streamed(found), media_type="text/event-stream")

    return app


def completion(assistant: Assistant, body: Chat, name: str, test: Diagram | None, longest: int) -> dict[str, Any]:
    """The whole reply to a request. Raises BadInput for a conversation that cannot be asked."""
    messages = [turn.model_dump() for turn in body.messages]
    if messages[-1]["role"] != "user":
        raise BadInput(
            f"messages.{len(messages) - 1}.role: {messages[-1]['role']!r}; the last message must be the user's"
        )
    limit = body.max_completion_tokens or body.max_tokens
    replies = assistant.reply(
        messages, body.n, body.temperature, limit, body.seed, body.top_p, body.choices, body.context, longest
    )
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": name,
        "choices": [_choice(i, one, test) for i, one in enumerate(replies)],
    }


def _choice(index: int, reply: Reply, test: Diagram | None) -> dict[str, Any]:
    details = {key: getattr(reply, key) for key in ("answer", "stated", "mean", "mass", "retried")}
    seen = {} if test is None else {"on_test_set": test.sentence(reply.confidence)}
    return {
        "index": index,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": reply.text},
        "confidence": reply.confidence,
        "orce": details | seen,
    }


def streamed(found: dict[str, Any]) -> Iterator[str]:
    """The reply as server-sent events: a text in one piece for each choice, then its end with the confidence."""
    head = {key: found[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for one in found["choices"]:
        said = {"index": one["index"], "delta": one["message"], "finish_reason": None}
        end = {key: one[key] for key in ("index", "finish_reason", "confidence", "orce")} | {"delta": {}}
        for choice in (said, end):
            yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"


def failure(
    status: int, message: str, parameter: str | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """An error in OpenAI's form."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "invalid_request_error")
    error = {"message": message, "type": kind, "param": parameter, "code": None}
    return JSONResponse({"error": error}, status, headers)
