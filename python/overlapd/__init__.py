"""A client of overlapd, by the standard library alone.

>>> import overlapd
>>> client = overlapd.Client("http://127.0.0.1:8000")
>>> answer = client.infer("mlp", {"input": [[0.0] * 16]}, timeout=0.1)
>>> answer["output"].tolist()

Inputs are arrays of numpy, nested lists, or :class:`Tensor`. Outputs are tensors, whose
:meth:`Tensor.numpy` needs numpy; nothing else does. Whatever goes wrong with a request is
an :class:`Error`, with the daemon's reason.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import random
import ssl
import struct
import threading
import time
import urllib.parse
from typing import Any, Iterable, Mapping, Optional, Sequence

__all__ = ["Client", "Error", "Tensor"]

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


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor as it travels: ``data`` has the elements in row-major order, little-endian.
    Of BYTES each element has its length before it, in four bytes."""

    datatype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, value: Any) -> Tensor:
        """Returns the tensor of an array or of nested lists: of bool, int (INT64), float
        (FP32), or of str and bytes (BYTES)."""
        if isinstance(value, Tensor):
            return value
        if hasattr(value, "dtype"):
            datatype = _NUMPY.get(value.dtype.name)
            if datatype:
                return cls(datatype, tuple(value.shape), value.astype(value.dtype.newbyteorder("<")).tobytes())
            value = value.tolist()  # an array of texts
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

    def numpy(self) -> Any:
        """Returns a numpy array: of objects for BYTES, of float32 for BF16."""
        import numpy

        if self.datatype in _TYPES:
            return numpy.frombuffer(self.data, numpy.dtype(_TYPES[self.datatype][0]).newbyteorder("<")).reshape(self.shape)
        kind = object if self.datatype == "BYTES" else numpy.float32
        return numpy.array(self._elements(), kind).reshape(self.shape)

    def _elements(self) -> Sequence[Any]:
        if self.datatype in _TYPES:
            letter = _TYPES[self.datatype][1]
            return struct.unpack(f"<{len(self.data) // struct.calcsize('<' + letter)}{letter}", self.data)
        if self.datatype == "BF16":  # the upper half of an FP32
            halves = struct.unpack(f"<{len(self.data) // 2}H", self.data)
            return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves)))
        texts, at = [], 0
        while at < len(self.data):
            (length,) = struct.unpack_from("<I", self.data, at)
            texts.append(self.data[at + 4 : at + 4 + length])
            at += 4 + length
        return texts


class Client:
    """A client of the daemon at ``url``, such as "http://127.0.0.1:8000". Threads may share
    one; each has a connection of its own, which is kept open.

    ``token`` is one of the daemon's access.token_file. ``context`` is for TLS, where the
    default does not know the daemon's authority.
    """

    def __init__(self, url: str, *, token: Optional[str] = None, context: Optional[ssl.SSLContext] = None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be http://HOST:PORT or https://HOST:PORT, not {url!r}")
        self._secure, self._host, self._port, self._context = parts.scheme == "https", parts.hostname, parts.port, context
        self._path = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._own = threading.local()

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
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
        tensors = {name: Tensor.of(value) for name, value in inputs.items()}
        head: dict[str, Any] = {
            "inputs": [
                {"name": n, "datatype": t.datatype, "shape": t.shape, "parameters": {"binary_data_size": len(t.data)}}
                for n, t in tensors.items()
            ],
            "parameters": {"binary_data_output": True, **({"priority": priority} if priority else {})},
        }
        if outputs is not None:
            head["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
        data = b"".join(t.data for t in tensors.values())
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, left = _FIRST_PAUSE, timeout
        while True:
            if left is not None:
                head["parameters"]["timeout"] = max(int(left * 1e6), 1)
            text = json.dumps(head).encode()
            try:
                answer, body = self._ask("POST", _model(model) + "/infer", text + data, {_LENGTH: str(len(text))}, left)
                return _outputs(answer, body)
            except Error as error:
                if deadline is None or error.status != 503 or error.retry_after is None:
                    raise
                # Retry-After is rounded up to whole seconds, so it is the longest pause.
                wait = min(pause * random.uniform(0.5, 1), error.retry_after)
                if time.monotonic() + wait >= deadline:
                    raise
                time.sleep(wait)
                pause, left = 2 * pause, max(deadline - time.monotonic(), 1e-6)

    def ready(self, model: Optional[str] = None, *, timeout: float = 5) -> bool:
        """Returns whether the daemon, or one of its models, can answer."""
        try:
            self._ask("GET", _model(model) + "/ready" if model else "/v2/health/ready", timeout=timeout)
            return True
        except Error:
            return False

    def metadata(self, model: Optional[str] = None, *, timeout: float = 5) -> dict[str, Any]:
        """Returns the name, version and extensions of the daemon, or the inputs and outputs
        of a model."""
        said: dict[str, Any] = json.loads(self._ask("GET", _model(model) if model else "/v2", timeout=timeout)[1])
        return said

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
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Sends a request once, or twice where the daemon had closed the connection."""
        wait = None if timeout is None else timeout + _GRACE
        while True:
            kept = hasattr(self._own, "connection")
            try:
                connection = self._connection(wait)
                connection.request(method, self._path + path, body or None, {**self._headers, **headers})
                answer = connection.getresponse()
                content = answer.read()
                break
            except TimeoutError as error:
                self.close()
                raise Error(f"no answer within {timeout} s", "timeout") from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not (kept and isinstance(error, (ConnectionError, http.client.BadStatusLine))):
                    raise Error(f"{self._host}:{self._port}: {error}", "unreachable") from error
        if answer.status == 200:
            return answer, content
        raise _fault(answer, content)

    def _connection(self, wait: Optional[float]) -> http.client.HTTPConnection:
        if not hasattr(self._own, "connection"):
            if self._secure:
                self._own.connection = http.client.HTTPSConnection(self._host, self._port, context=self._context)
            else:
                self._own.connection = http.client.HTTPConnection(self._host, self._port)
        connection: http.client.HTTPConnection = self._own.connection
        connection.timeout = wait
        if connection.sock:
            connection.sock.settimeout(wait)
        return connection


def _model(name: str) -> str:
    return "/v2/models/" + urllib.parse.quote(name, safe="")


def _fault(answer: http.client.HTTPResponse, content: bytes) -> Error:
    try:
        said = json.loads(content)
        message, reason = str(said["error"]), str(said.get("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, reason = "", ""  # of something between us and the daemon
    after = answer.headers.get("Retry-After", "")
    return Error(
        message or f"status {answer.status}", reason or f"http_{answer.status}", answer.status, float(after) if after.isdecimal() else None
    )


def _outputs(answer: http.client.HTTPResponse, body: bytes) -> dict[str, Tensor]:
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
