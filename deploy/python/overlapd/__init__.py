"""A client of overlapd, by the standard library alone.

>>> import overlapd
>>> client = overlapd.Client("http://127.0.0.1:8000")
>>> answer = client.infer("mlp", {"input": [[0.0] * 16]}, timeout=0.1)
>>> answer["output"].tolist()

Inputs are arrays of numpy, nested lists, or :class:`Tensor`. Outputs are tensors, which
numpy takes as arrays; nothing else needs numpy. Whatever goes wrong with a request is an
:class:`Error`, with the daemon's reason. :class:`AsyncClient` does the same under asyncio.
"""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import io
import json
import random
import ssl
import struct
import threading
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, Iterable, Mapping, NamedTuple, Optional, Protocol, Sequence, TypedDict, Union, overload

if TYPE_CHECKING:
    import email.message

    import numpy as _numpy

__all__ = ["AsyncClient", "Client", "Error", "ModelMetadata", "ServerMetadata", "Tensor", "TensorMetadata", "Value"]


class _Array(Protocol):
    """What is asked of an array of numpy, or of another library that has the same."""

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def astype(self, dtype: Any, /) -> Any: ...
    def tolist(self) -> Any: ...


Value = Union["Tensor", _Array, bool, int, float, str, bytes, Sequence["Value"]]
"""What :meth:`Tensor.of` makes a tensor of."""


class ServerMetadata(TypedDict):
    """What the daemon says of itself."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(TypedDict):
    """An input or output of a model; a dimension of -1 is open."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(TypedDict):
    """What the daemon says of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


# The name in numpy, and in struct, of each type of the protocol. The others, BYTES and
# BF16, have no name there.
_TYPES = {
    "BOOL": ("bool", "?"),
    "UINT8": ("uint8", "B"), "UINT16": ("uint16", "H"), "UINT32": ("uint32", "I"), "UINT64": ("uint64", "Q"),
    "INT8": ("int8", "b"), "INT16": ("int16", "h"), "INT32": ("int32", "i"), "INT64": ("int64", "q"),
    "FP16": ("float16", "e"), "FP32": ("float32", "f"), "FP64": ("float64", "d"),
}  # fmt: skip
_NUMPY = {name: datatype for datatype, (name, _) in _TYPES.items()}

_LENGTH = "Inference-Header-Content-Length"
_GRACE = 0.1  # seconds that a connection waits longer than the deadline, for the daemon's own answer to it
_FIRST_PAUSE = 0.02  # seconds before the second try, at most; it doubles with each
_SHOWN, _SHOWN_BYTES = 4, 16  # elements in the repr of a tensor, and bytes of each
_LINE_BYTES, _HEAD_LINES = 1 << 16, 128  # of an answer's header, at most


class Error(Exception):
    """A request that was not answered with outputs.

    ``status`` is the HTTP status, or None where there was no answer. ``reason`` is a word
    for programs, such as "queue_full", "deadline_passed" or "invalid"; docs/protocol.md has
    them all. It is "unreachable" or "timeout" where no answer came. ``retry_after`` is in
    seconds, or None if the daemon does not ask to try again.
    """

    def __init__(self, message: str, reason: str, status: Optional[int] = None, retry_after: Optional[float] = None):
        super().__init__(message)
        self.reason, self.status, self.retry_after = reason, status, retry_after


@dataclasses.dataclass(frozen=True, repr=False)
class Tensor:
    """A tensor as it travels: ``data`` has the elements in row-major order, little-endian.
    Of BYTES each element has its length before it, in four bytes. numpy takes a tensor as
    an array (``numpy.asarray(tensor)``)."""

    datatype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, value: Value) -> Tensor:
        """Returns the tensor of an array or of nested lists: of bool, int (INT64), float
        (FP32), or of str and bytes (BYTES)."""
        if isinstance(value, Tensor):
            return value
        if hasattr(value, "dtype"):
            array: Any = value
            datatype = _NUMPY.get(array.dtype.name)
            if datatype:
                return cls(datatype, tuple(array.shape), array.astype(array.dtype.newbyteorder("<")).tobytes())
            value = array.tolist()  # an array of texts
        shape, flat = _flatten(value)
        kinds = {type(v) for v in flat}
        if kinds <= {str, bytes} and kinds:
            texts = [v.encode() if isinstance(v, str) else v for v in flat]
            return cls("BYTES", shape, b"".join(struct.pack("<I", len(t)) + t for t in texts))
        datatype = "BOOL" if kinds == {bool} else "INT64" if kinds == {int} else "FP32" if kinds <= {int, float} else ""
        if not datatype:
            raise TypeError(f"a tensor has bool, int, float, str or bytes, not {sorted(k.__name__ for k in kinds)}")
        return cls(datatype, shape, struct.pack(f"<{len(flat)}{_TYPES[datatype][1]}", *flat))

    def tolist(self) -> Any:
        """Returns the elements as nested lists; those of BYTES are bytes."""
        return _nest(self._elements(), self.shape)

    def numpy(self) -> _numpy.ndarray[Any, _numpy.dtype[Any]]:
        """Returns a new numpy array: of objects for BYTES, of float32 for BF16."""
        return self.__array__(copy=True)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> _numpy.ndarray[Any, _numpy.dtype[Any]]:
        """Returns the array that numpy makes of a tensor, which may be written to; with
        ``copy=False`` one that shares the tensor's memory and may not."""
        import numpy

        if self.datatype in _TYPES:
            array = numpy.frombuffer(self.data, numpy.dtype(_TYPES[self.datatype][0]).newbyteorder("<")).reshape(self.shape)
            if copy is False and dtype in (None, array.dtype):
                return array
        elif copy is not False:
            kind: Any = object if self.datatype == "BYTES" else numpy.float32
            array = numpy.array(self._elements(), kind).reshape(self.shape)
        if copy is False:
            raise ValueError(f"a tensor of {self.datatype} is no array of {dtype or 'numpy'} without a copy")
        return numpy.array(array, dtype)

    def __repr__(self) -> str:
        shown = []
        try:
            for v in self._elements(_SHOWN):
                shown.append(repr(v[:_SHOWN_BYTES]) + "..." if isinstance(v, bytes) and len(v) > _SHOWN_BYTES else repr(v))
        except struct.error:
            pass  # its data is no tensor
        count = 1
        for n in self.shape:
            count *= n
        if count > len(shown) == _SHOWN:
            shown.append("...")
        return f"Tensor({self.datatype}, {self.shape}, [{', '.join(shown)}])"

    def _elements(self, most: Optional[int] = None) -> Sequence[Any]:
        if self.datatype in _TYPES:
            return self._unpack(_TYPES[self.datatype][1], most)
        if self.datatype == "BF16":  # the upper half of an FP32
            halves = self._unpack("H", most)
            return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves)))
        texts: list[bytes] = []
        at = 0
        while at < len(self.data) and len(texts) != most:
            (length,) = struct.unpack_from("<I", self.data, at)
            texts.append(self.data[at + 4 : at + 4 + length])
            at += 4 + length
        return texts

    def _unpack(self, letter: str, most: Optional[int]) -> tuple[Any, ...]:
        size = struct.calcsize("<" + letter)
        data = self.data if most is None else self.data[: min(most, len(self.data) // size) * size]
        return struct.unpack(f"<{len(data) // size}{letter}", data)


class _Server:
    """Where a daemon is, and what it is told with every request."""

    def __init__(self, url: str, token: Optional[str], context: Optional[ssl.SSLContext]):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be http://HOST:PORT or https://HOST:PORT, not {url!r}")
        self.secure, self.host, self.context = parts.scheme == "https", parts.hostname, context
        self.port = parts.port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def unreachable(self, error: Exception) -> Error:
        return Error(f"{self.host}:{self.port}: {error}", "unreachable")


class _Query:
    """A request to infer, which may be sent several times within its timeout."""

    def __init__(
        self, model: str, inputs: Mapping[str, Value], outputs: Optional[Iterable[str]], timeout: Optional[float], priority: int
    ):
        tensors = {name: Tensor.of(value) for name, value in inputs.items()}
        self._head: dict[str, Any] = {
            "inputs": [
                {"name": n, "datatype": t.datatype, "shape": t.shape, "parameters": {"binary_data_size": len(t.data)}}
                for n, t in tensors.items()
            ],
            "parameters": {"binary_data_output": True, **({"priority": priority} if priority else {})},
        }
        if outputs is not None:
            self._head["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
        self._data = b"".join(t.data for t in tensors.values())
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._pause = _FIRST_PAUSE
        self.path = _model(model) + "/infer"

    def request(self) -> tuple[bytes, dict[str, str], Optional[float]]:
        """Returns the body and the headers of the next try, and the time that is left for it."""
        left = None
        if self._deadline is not None:
            left = max(self._deadline - time.monotonic(), 1e-6)
            self._head["parameters"]["timeout"] = max(int(left * 1e6), 1)
        text = json.dumps(self._head).encode()
        return text + self._data, {_LENGTH: str(len(text))}, left

    def pause(self, error: Error) -> float:
        """Returns how long to wait before the next try, or raises the error if there is none."""
        if self._deadline is None or error.status != 503 or error.retry_after is None:
            raise error
        # Retry-After is rounded up to whole seconds, so it is the longest pause.
        wait = min(self._pause * random.uniform(0.5, 1), error.retry_after)
        if time.monotonic() + wait >= self._deadline:
            raise error
        self._pause *= 2
        return wait


class _Answer(NamedTuple):
    status: int
    headers: email.message.Message
    content: bytes

    def checked(self) -> bytes:
        """Returns the content of an answer that is no fault."""
        if self.status != 200:
            raise _fault(self)
        return self.content


class Client:
    """A client of the daemon at ``url``, such as "http://127.0.0.1:8000". Threads may share
    one; each has a connection of its own, which is kept open.

    ``token`` is one of the daemon's access.token_file. ``context`` is for TLS, where the
    default does not know the daemon's authority.
    """

    def __init__(self, url: str, *, token: Optional[str] = None, context: Optional[ssl.SSLContext] = None):
        self._server = _Server(url, token, context)
        self._own = threading.local()

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Value],
        *,
        outputs: Optional[Iterable[str]] = None,
        timeout: Optional[float] = None,
        priority: int = 0,
    ) -> dict[str, Tensor]:
        """Returns the outputs of a model by name, all or those that are named.

        ``timeout`` is in seconds. The daemon has it as the query's deadline, unless the
        service's own target is shorter, and while it has not passed the query is tried
        again when the daemon asks for that (503 with Retry-After). Without a timeout there
        is one try. Requests that are wrong (400) and models that fail (500) are never tried
        again. ``priority`` 1 is the highest, 0 none.
        """
        query = _Query(model, inputs, outputs, timeout, priority)
        while True:
            body, headers, left = query.request()
            try:
                return _outputs(self._ask("POST", query.path, body, headers, left))
            except Error as error:
                time.sleep(query.pause(error))

    def ready(self, model: Optional[str] = None, *, timeout: float = 5) -> bool:
        """Returns whether the daemon, or one of its models, can answer."""
        try:
            self._ask("GET", _model(model) + "/ready" if model else "/v2/health/ready", timeout=timeout)
            return True
        except Error:
            return False

    @overload
    def metadata(self, model: None = None, *, timeout: float = 5) -> ServerMetadata: ...
    @overload
    def metadata(self, model: str, *, timeout: float = 5) -> ModelMetadata: ...
    def metadata(self, model: Optional[str] = None, *, timeout: float = 5) -> Any:
        """Returns the name, version and extensions of the daemon, or the inputs and outputs
        of a model."""
        return json.loads(self._ask("GET", _model(model) if model else "/v2", timeout=timeout).content)

    def close(self) -> None:
        """Closes the connection of this thread. The next request opens another one."""
        connection = self._own.__dict__.pop("connection", None)
        if connection:
            connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}, timeout: Optional[float] = None
    ) -> _Answer:
        """Sends a request once, or twice where the daemon had closed the connection."""
        wait = None if timeout is None else timeout + _GRACE
        while True:
            kept = hasattr(self._own, "connection")
            try:
                connection = self._connection(wait)
                connection.request(method, self._server.path + path, body or None, {**self._server.headers, **headers})
                answer = connection.getresponse()
                said = _Answer(answer.status, answer.headers, answer.read())
                break
            except TimeoutError as error:
                self.close()
                raise Error(f"no answer within {timeout} s", "timeout") from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not (kept and isinstance(error, (ConnectionError, http.client.BadStatusLine))):
                    raise self._server.unreachable(error) from error
        said.checked()
        return said

    def _connection(self, wait: Optional[float]) -> http.client.HTTPConnection:
        if not hasattr(self._own, "connection"):
            if self._server.secure:
                self._own.connection = http.client.HTTPSConnection(self._server.host, self._server.port, context=self._server.context)
            else:
                self._own.connection = http.client.HTTPConnection(self._server.host, self._server.port)
        connection: http.client.HTTPConnection = self._own.connection
        connection.timeout = wait
        if connection.sock:
            connection.sock.settimeout(wait)
        return connection


class AsyncClient:
    """A client for asyncio: :class:`Client` with methods to await. Requests that run at the
    same time have connections of their own, which are kept open; ``limit`` is how many at
    most. A request that is cancelled closes its connection, by which the daemon learns that
    nobody waits.
    """

    def __init__(self, url: str, *, token: Optional[str] = None, context: Optional[ssl.SSLContext] = None, limit: int = 64):
        self._server = _Server(url, token, context)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._places = asyncio.Semaphore(limit)

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, Value],
        *,
        outputs: Optional[Iterable[str]] = None,
        timeout: Optional[float] = None,
        priority: int = 0,
    ) -> dict[str, Tensor]:
        """Returns the outputs of a model by name, as :meth:`Client.infer` does."""
        query = _Query(model, inputs, outputs, timeout, priority)
        while True:
            body, headers, left = query.request()
            try:
                return _outputs(await self._ask("POST", query.path, body, headers, left))
            except Error as error:
                wait = query.pause(error)
            await asyncio.sleep(wait)

    async def ready(self, model: Optional[str] = None, *, timeout: float = 5) -> bool:
        """Returns whether the daemon, or one of its models, can answer."""
        try:
            await self._ask("GET", _model(model) + "/ready" if model else "/v2/health/ready", timeout=timeout)
            return True
        except Error:
            return False

    @overload
    async def metadata(self, model: None = None, *, timeout: float = 5) -> ServerMetadata: ...
    @overload
    async def metadata(self, model: str, *, timeout: float = 5) -> ModelMetadata: ...
    async def metadata(self, model: Optional[str] = None, *, timeout: float = 5) -> Any:
        """Returns the name, version and extensions of the daemon, or the inputs and outputs
        of a model."""
        return json.loads((await self._ask("GET", _model(model) if model else "/v2", timeout=timeout)).content)

    async def close(self) -> None:
        """Closes the connections that no request uses. The next request opens another one."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in idle), return_exceptions=True)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}, timeout: Optional[float] = None
    ) -> _Answer:
        """Sends a request once, or twice where the daemon had closed the connection."""
        lines = {**self._server.headers, **headers, "Host": f"{self._server.host}:{self._server.port}", "Content-Length": str(len(body))}
        if any("\r" in v or "\n" in v for v in lines.values()):
            raise ValueError("a header has a line break")
        head = f"{method} {self._server.path}{path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
        try:
            answer = await asyncio.wait_for(self._exchange(head.encode() + b"\r\n" + body), None if timeout is None else timeout + _GRACE)
        except asyncio.TimeoutError as error:
            raise Error(f"no answer within {timeout} s", "timeout") from error
        except (OSError, EOFError, ValueError, http.client.HTTPException, asyncio.LimitOverrunError) as error:
            raise self._server.unreachable(error) from error
        answer.checked()
        return answer

    async def _exchange(self, request: bytes) -> _Answer:
        async with self._places:
            while True:
                kept, lasts = bool(self._idle), False
                reader, writer = self._idle.pop() if kept else await self._connect()
                try:
                    writer.write(request)
                    await writer.drain()
                    first = await reader.readline()
                    if first or not kept:
                        answer, lasts = await _read(reader, first)
                        return answer
                except ConnectionError:
                    if not kept:
                        raise
                finally:
                    if lasts:
                        self._idle.append((reader, writer))
                    else:
                        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = (self._server.context or ssl.create_default_context()) if self._server.secure else None
        return await asyncio.open_connection(self._server.host, self._server.port, ssl=context, limit=_LINE_BYTES)


async def _read(reader: asyncio.StreamReader, first: bytes) -> tuple[_Answer, bool]:
    """Returns the answer that begins with a line, and whether another one may follow."""
    version, status, *_ = first.decode("latin-1").split(" ", 2) if first.count(b" ") else ("", "")
    if not version.startswith("HTTP/1.") or not status.strip().isdecimal():
        raise http.client.BadStatusLine(first[:_SHOWN_BYTES].decode("latin-1"))
    lines = [await reader.readline()]
    while lines[-1].strip() and len(lines) < _HEAD_LINES:
        lines.append(await reader.readline())
    headers = http.client.parse_headers(io.BytesIO(b"".join(lines)))
    lasts = headers.get("Connection", "").lower() != "close" and version == "HTTP/1.1"
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        parts = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        while (await reader.readline()).strip():
            pass  # trailers
        content = b"".join(parts)
    elif "Content-Length" in headers:
        content = await reader.readexactly(int(headers["Content-Length"]))
    else:
        content, lasts = await reader.read(), False
    return _Answer(int(status), headers, content), lasts


def _model(name: str) -> str:
    return "/v2/models/" + urllib.parse.quote(name, safe="")


def _fault(answer: _Answer) -> Error:
    try:
        said = json.loads(answer.content)
        message, reason = str(said["error"]), str(said.get("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, reason = "", ""  # of something between us and the daemon
    after = answer.headers.get("Retry-After", "")
    return Error(
        message or f"status {answer.status}", reason or f"http_{answer.status}", answer.status, float(after) if after.isdecimal() else None
    )


def _outputs(answer: _Answer) -> dict[str, Tensor]:
    body = answer.content
    try:
        at = int(answer.headers[_LENGTH])
        tensors = {}
        for o in json.loads(body[:at])["outputs"]:
            size = o["parameters"]["binary_data_size"]
            tensors[o["name"]] = Tensor(o["datatype"], tuple(o["shape"]), body[at : at + size])
            at += size
    except (KeyError, TypeError, ValueError) as error:
        raise Error(f"the answer has no binary tensors: {error!r}", "bad_answer", answer.status) from error
    if at != len(body):
        raise Error(f"the answer has {len(body)} bytes, its tensors {at}", "bad_answer", answer.status)
    return tensors


def _flatten(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    if not isinstance(value, (list, tuple)):
        return (), [value]
    parts = [_flatten(v) for v in value]
    shapes = {shape for shape, _ in parts}
    if len(shapes) > 1:
        raise ValueError(f"lists of different lengths are no tensor: {sorted(shapes)}")
    inner = shapes.pop() if shapes else ()
    return (len(value), *inner), [v for _, flat in parts for v in flat]


def _nest(flat: Sequence[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return flat[0]
    step = len(flat) // max(shape[0], 1)
    return [_nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
