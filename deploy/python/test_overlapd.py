"""Tests of the client against a small server, and where OVERLAPD_URL names a daemon with
the zoo's tiny_mlp as "mlp", against that."""

import asyncio
import http.server
import json
import os
import struct
import threading
import time
import unittest

import overlapd

try:
    import numpy
except ImportError:
    numpy = None


class Fake(http.server.ThreadingHTTPServer):
    """A server that gives the answers of a list, one after the other, and keeps what it was asked."""

    daemon_threads = True

    def handle_error(self, *_):
        pass  # a client has left

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked = list(answers), []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.headers["X-Port"] = str(self.client_address[1])
        self.server.asked.append((self.path, self.headers, body))
        answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        if answer is None:  # leave without a word
            self.close_connection = True
            return
        status, headers, content = answer
        if "sleep" in headers:
            time.sleep(headers["sleep"])
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        if "Transfer-Encoding" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST

    def log_message(self, *_):
        pass


def outputs(**tensors):
    head = {"outputs": [{"name": n, "datatype": t.datatype, "shape": t.shape, "parameters": {"binary_data_size": len(t.data)}} for n, t in tensors.items()]}
    text = json.dumps(head).encode()
    return 200, {"Inference-Header-Content-Length": len(text)}, text + b"".join(t.data for t in tensors.values())


def fault(status, reason, **headers):
    return status, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps({"error": "why", "reason": reason}).encode()


FULL = fault(503, "queue_full", Retry_After=1)
DONE = outputs(y=overlapd.Tensor.of([1.0, 2.0]))


class Tensors(unittest.TestCase):
    def test_lists(self):
        for value, datatype, shape in [
            ([[1, 2, 3], [4, 5, 6]], "INT64", (2, 3)),
            ([0.5, -1.0], "FP32", (2,)),
            ([[True], [False]], "BOOL", (2, 1)),
            (["ä", b"\xff", ""], "BYTES", (3,)),
            (7, "INT64", ()),
        ]:
            tensor = overlapd.Tensor.of(value)
            self.assertEqual((tensor.datatype, tensor.shape), (datatype, shape))
            want = [v.encode() if isinstance(v, str) else v for v in value] if datatype == "BYTES" else value
            self.assertEqual(tensor.tolist(), want)
        self.assertEqual(overlapd.Tensor.of([1, 2.5]).datatype, "FP32")

    def test_no_tensors(self):
        for value in [[[1], [2, 3]], [[1], 2]]:
            with self.assertRaises(ValueError):
                overlapd.Tensor.of(value)
        for value in [[None], ["a", 1], {"a": 1}]:
            with self.assertRaises(TypeError):
                overlapd.Tensor.of(value)

    def test_bfloat16(self):
        self.assertEqual(overlapd.Tensor("BF16", (2,), struct.pack("<HH", 0x3F80, 0xC000)).tolist(), [1.0, -2.0])

    def test_repr_is_short(self):
        for tensor, want in [
            (overlapd.Tensor.of([[1.5, 2.0]]), "Tensor(FP32, (1, 2), [1.5, 2.0])"),
            (overlapd.Tensor.of(list(range(100_000))), "Tensor(INT64, (100000,), [0, 1, 2, 3, ...])"),
            (overlapd.Tensor.of(["a" * 100_000, "b"]), f"Tensor(BYTES, (2,), [{b'a' * 16!r}..., b'b'])"),
            (overlapd.Tensor.of([]), "Tensor(FP32, (0,), [])"),
            (overlapd.Tensor("BF16", (1,), struct.pack("<H", 0x3F80)), "Tensor(BF16, (1,), [1.0])"),
            (overlapd.Tensor("FP32", (9,), b"\0"), "Tensor(FP32, (9,), [])"),
        ]:
            self.assertEqual(repr(tensor), want)

    @unittest.skipUnless(numpy, "needs numpy")
    def test_is_an_array(self):
        tensor = overlapd.Tensor.of([[1.0, 2.0]])
        array = numpy.asarray(tensor)
        self.assertEqual((array.shape, array.dtype.name, numpy.asarray(tensor, "float64").dtype.name), ((1, 2), "float32", "float64"))
        self.assertEqual(float(numpy.add(tensor, 1).sum()), 5.0)
        for copy in (array, tensor.numpy(), numpy.array(tensor), overlapd.Tensor.of(["a"]).numpy()):
            copy[...] = copy[..., ::-1]  # they may be written to
        self.assertEqual(tensor.tolist(), [[1.0, 2.0]])
        if int(numpy.__version__.split(".")[0]) >= 2:
            view = numpy.asarray(tensor, copy=False)
            self.assertFalse(view.flags.writeable)
            for other, kind in [(tensor, "float64"), (overlapd.Tensor.of(["a"]), None)]:
                with self.assertRaises(ValueError):
                    numpy.asarray(other, kind, copy=False)

    @unittest.skipUnless(numpy, "needs numpy")
    def test_numpy(self):
        for name in ["bool", "uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]:
            array = numpy.array([[0, 1, 1], [1, 0, 1]], name)
            for each in (array, array.T, array.astype(array.dtype.newbyteorder(">"))):
                tensor = overlapd.Tensor.of(each)
                numpy.testing.assert_array_equal(tensor.numpy(), each)
                self.assertEqual(tensor.numpy().dtype.name, name)
        self.assertEqual(overlapd.Tensor.of(numpy.float64(2)).datatype, "FP64")
        texts = overlapd.Tensor.of(numpy.array([["a", "b"]]))
        self.assertEqual((texts.datatype, texts.numpy().tolist()), ("BYTES", [[b"a", b"b"]]))
        with self.assertRaises(TypeError):
            overlapd.Tensor.of(numpy.array([1j]))


class Requests(unittest.TestCase):
    def ask(self, *answers, inputs={"x": [1.0]}, **options):
        self.server = Fake(*answers)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.client = overlapd.Client(self.server.url, token="secret")
        self.addCleanup(self.client.close)
        return self.client.infer("m/1 ", inputs, **options)

    def fails(self, *answers, **options):
        with self.assertRaises(overlapd.Error) as caught:
            self.ask(*answers, **options)
        return caught.exception

    def test_what_is_sent(self):
        answer = self.ask(DONE, inputs={"x": [[1, 2]], "t": ["ab"]}, outputs=["y"], timeout=2, priority=1)
        self.assertEqual(answer["y"].tolist(), [1.0, 2.0])
        path, headers, body = self.server.asked[0]
        self.assertEqual((path, headers["Authorization"]), ("/v2/models/m%2F1%20/infer", "Bearer secret"))
        length = int(headers["Inference-Header-Content-Length"])
        head = json.loads(body[:length])
        self.assertEqual(body[length:], struct.pack("<qqI", 1, 2, 2) + b"ab")
        self.assertEqual([(i["datatype"], i["shape"], i["parameters"]["binary_data_size"]) for i in head["inputs"]], [("INT64", [1, 2], 16), ("BYTES", [1], 6)])
        self.assertEqual((head["outputs"][0]["name"], head["parameters"]["priority"]), ("y", 1))
        self.assertTrue(1e6 < head["parameters"]["timeout"] <= 2e6)

    def test_tries_again_within_the_deadline(self):
        self.assertEqual(self.ask(FULL, FULL, DONE, timeout=30)["y"].shape, (2,))
        timeouts = [json.loads(body[: int(h["Inference-Header-Content-Length"])])["parameters"]["timeout"] for _, h, body in self.server.asked]
        self.assertEqual(len(timeouts), 3)
        self.assertTrue(timeouts[0] > timeouts[1] > timeouts[2])

    def test_gives_up_at_the_deadline(self):
        began = time.monotonic()
        error = self.fails(FULL, timeout=0.3)
        self.assertEqual((error.reason, error.status, error.retry_after, str(error)), ("queue_full", 503, 1.0, "why"))
        self.assertLess(time.monotonic() - began, 10)
        self.assertGreater(len(self.server.asked), 1)

    def test_does_not_try_again(self):
        for answer, options in [
            (FULL, {}),
            (fault(503, "given_up"), {"timeout": 1}),
            (fault(400, "invalid", Retry_After=1), {"timeout": 1}),
            (fault(500, "model_failed", Retry_After=1), {"timeout": 1}),
            (fault(404, "not_found"), {"timeout": 1}),
        ]:
            error = self.fails(answer, **options)
            self.assertEqual((error.status, len(self.server.asked)), (answer[0], 1))

    def test_foreign_answers(self):
        self.assertEqual(self.fails((502, {}, b"<html>")).reason, "http_502")
        self.assertEqual(self.fails((503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"[1]")).retry_after, None)
        for answer in [(200, {}, b"{}"), (200, {"Inference-Header-Content-Length": 2}, b"{}"), (200, DONE[1], DONE[2] + b"x"), (200, DONE[1], DONE[2][:-1])]:
            self.assertEqual(self.fails(answer).reason, "bad_answer")

    def test_no_answer(self):
        error = self.fails((200, {"sleep": 5}, b""), timeout=0.05)
        self.assertEqual((error.reason, error.status), ("timeout", None))
        with self.assertRaises(overlapd.Error) as caught:
            overlapd.Client("http://127.0.0.1:1").infer("m", {"x": [1]})
        self.assertEqual(caught.exception.reason, "unreachable")
        self.assertFalse(overlapd.Client("http://127.0.0.1:1").ready())
        with self.assertRaises(ValueError):
            overlapd.Client("127.0.0.1:8000")

    def test_a_connection_that_was_closed(self):
        self.ask(DONE, None, DONE)
        self.assertEqual(self.client.infer("m", {"x": [1]})["y"].shape, (2,))  # on another connection
        self.assertEqual(len(self.server.asked), 3)
        self.assertEqual(self.fails(None).reason, "unreachable")
        self.assertEqual(len(self.server.asked), 1)


class Async(unittest.IsolatedAsyncioTestCase):
    """The same requests without threads."""

    async def ask(self, *answers, **options):
        self.server = Fake(*answers)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.client = overlapd.AsyncClient(self.server.url, token="secret")
        self.addAsyncCleanup(self.client.close)
        return await self.client.infer("m/1 ", {"x": [1.0]}, **options)

    async def fails(self, *answers, **options):
        with self.assertRaises(overlapd.Error) as caught:
            await self.ask(*answers, **options)
        return caught.exception

    async def test_many_at_once(self):
        await self.ask(DONE, (200, {"sleep": 0.05, **DONE[1]}, DONE[2]))
        answers = await asyncio.gather(*(self.client.infer("m", {"x": [1]}) for _ in range(20)))
        self.assertEqual([a["y"].tolist() for a in answers], 20 * [[1.0, 2.0]])
        path, headers, _ = self.server.asked[0]
        self.assertEqual((path, headers["Authorization"]), ("/v2/models/m%2F1%20/infer", "Bearer secret"))

    async def test_keeps_connections(self):
        await self.ask(DONE)
        ports = {h["X-Port"] for _, h, _ in self.server.asked}
        for _ in range(3):
            await self.client.infer("m", {"x": [1]})
            ports.add(self.server.asked[-1][1]["X-Port"])
        self.assertEqual(len(ports), 1)

    async def test_tries_again_within_the_deadline(self):
        self.assertEqual((await self.ask(FULL, FULL, DONE, timeout=30))["y"].shape, (2,))
        self.assertEqual(len(self.server.asked), 3)

    async def test_faults(self):
        error = await self.fails(FULL, timeout=0.3)
        self.assertEqual((error.reason, error.status, error.retry_after), ("queue_full", 503, 1.0))
        self.assertEqual((await self.fails((200, {"sleep": 5}, b""), timeout=0.05)).reason, "timeout")
        self.assertEqual((await self.fails(None)).reason, "unreachable")
        self.assertEqual((await self.fails((200, {}, b"{}"))).reason, "bad_answer")
        with self.assertRaises(overlapd.Error) as caught:
            await overlapd.AsyncClient("http://127.0.0.1:1").infer("m", {"x": [1]})
        self.assertEqual(caught.exception.reason, "unreachable")
        self.assertFalse(await overlapd.AsyncClient("http://127.0.0.1:1").ready())

    async def test_a_connection_that_was_closed(self):
        await self.ask(DONE, None, DONE)
        self.assertEqual((await self.client.infer("m", {"x": [1]}))["y"].shape, (2,))
        self.assertEqual(len(self.server.asked), 3)

    async def test_leaves_when_cancelled(self):
        await self.ask(DONE, (200, {"sleep": 0.3, **DONE[1]}, DONE[2]), DONE)
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.client.infer("m", {"x": [1]}), 0.05)
        self.assertEqual((await self.client.infer("m", {"x": [1]}))["y"].shape, (2,))  # not the answer to the other

    async def test_chunks(self):
        status, headers, content = DONE
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (content[:7], content[7:])) + b"0\r\n\r\n"
        self.assertEqual((await self.ask((status, {**headers, "Transfer-Encoding": "chunked"}, chunks)))["y"].tolist(), [1.0, 2.0])


@unittest.skipUnless(os.environ.get("OVERLAPD_URL"), "needs a daemon")
class Daemon(unittest.TestCase):
    def setUp(self):
        self.client = overlapd.Client(os.environ["OVERLAPD_URL"])
        self.addCleanup(self.client.close)

    def test_ready(self):
        self.assertTrue(self.client.ready() and self.client.ready("mlp"))
        self.assertFalse(self.client.ready("nobody"))
        self.assertEqual(self.client.metadata("mlp")["inputs"][0]["name"], "input")
        self.assertEqual(self.client.metadata()["name"], "overlapd")

    def test_without_threads(self):
        async def ask():
            async with overlapd.AsyncClient(os.environ["OVERLAPD_URL"]) as client:
                self.assertTrue(await client.ready() and not await client.ready("nobody"))
                self.assertEqual((await client.metadata("mlp"))["inputs"][0]["name"], "input")
                answers = await asyncio.gather(*(client.infer("mlp", {"input": [[1.0] * 16]}, timeout=60) for _ in range(50)))
                self.assertEqual({a["output"].shape for a in answers}, {(1, 10)})

        asyncio.run(ask())

    def test_infer(self):
        rows = [[i / 16] * 16 for i in range(3)]
        answer = self.client.infer("mlp", {"input": rows}, timeout=60)["output"]
        self.assertEqual((answer.datatype, answer.shape), ("FP32", (3, 10)))
        again = self.client.infer("mlp", {"input": rows[2:]}, outputs=["output"])["output"]
        for a, b in zip(again.tolist()[0], answer.tolist()[2]):
            self.assertAlmostEqual(a, b, places=5)

    @unittest.skipUnless(numpy, "needs numpy")
    def test_numpy(self):
        answer = self.client.infer("mlp", {"input": numpy.zeros((2, 16), "float32")})["output"].numpy()
        self.assertEqual((answer.shape, str(answer.dtype)), ((2, 10), "float32"))

    def test_reasons(self):
        for inputs, options, status, reason in [
            ({"input": [[1.0] * 15]}, {}, 400, "invalid"),
            ({"wrong": [[1.0] * 16]}, {"timeout": 60}, 400, "invalid"),
            ({"input": [[1.0] * 16]}, {"timeout": 1e-6}, 503, None),
        ]:
            with self.assertRaises(overlapd.Error) as caught:
                self.client.infer("mlp", inputs, **options)
            self.assertEqual(caught.exception.status, status, caught.exception)
            self.assertTrue(caught.exception.reason == reason or reason is None)
        with self.assertRaises(overlapd.Error) as caught:
            self.client.infer("nobody", {"input": [[1.0] * 16]})
        self.assertEqual((caught.exception.status, caught.exception.reason), (404, "not_found"))


if __name__ == "__main__":
    unittest.main()
