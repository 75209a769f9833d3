"""Drives tiny_add through Triton's clients for gRPC and HTTP. Prints "ok", or fails."""
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
import tritonclient.http as http

client = triton.InferenceServerClient(sys.argv[2])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("add")
assert client.get_server_metadata().name == "overlapd"
assert [t.name for t in client.get_model_metadata("add").inputs] == ["INPUT0", "INPUT1"]
config = client.get_model_config("add").config
assert config.max_batch_size > 0 and config.input[0].data_type == 8 and list(config.input[0].dims) == [16]
assert [m.state for m in client.get_model_repository_index().models] == ["READY"]

x = np.arange(32, dtype=np.int32).reshape(2, 16)


def inputs():
    both = [triton.InferInput(name, [2, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for i in both:
        i.set_data_from_numpy(x)
    return both


def check(result):
    assert (result.as_numpy("OUTPUT0") == x + x).all() and (result.as_numpy("OUTPUT1") == 0).all()


check(client.infer("add", inputs(), request_id="a", priority=1, timeout=30000000, client_timeout=30))
check(client.infer("add", inputs(), compression_algorithm="gzip"))
one = client.infer("add", inputs(), outputs=[triton.InferRequestedOutput("OUTPUT1")])
assert [o.name for o in one.get_response().outputs] == ["OUTPUT1"]

answers = queue.Queue()
client.start_stream(lambda result, error: answers.put((result, error)))
for n in range(100):
    client.async_stream_infer("add", inputs(), request_id=str(n))
client.stop_stream()
for n in range(100):
    result, error = answers.get(timeout=30)
    assert error is None and result.get_response().id == str(n), (n, error)
    check(result)

for code, call in {
    "NOT_FOUND": lambda: client.infer("none", inputs()),
    "INVALID_ARGUMENT": lambda: client.infer("add", inputs()[:1]),
    "DEADLINE_EXCEEDED": lambda: client.infer("add", inputs(), timeout=1),
    "UNIMPLEMENTED": lambda: client.load_model("add", config="{}"),
}.items():
    try:
        call()
    except triton.InferenceServerException as e:
        assert code in e.status(), e
    else:
        raise AssertionError(code)
for call in client.load_model, client.unload_model:  # every model is loaded at the start
    try:
        call("add")
    except triton.InferenceServerException as e:
        assert "INVALID_ARGUMENT" in e.status() and "--model-control-mode" in e.message(), (call.__name__, e)
    else:
        raise AssertionError(call.__name__)
assert client.get_inference_statistics("add").model_stats[0].inference_stats.success.count >= 103
for call in client.register_cuda_shared_memory, client.update_trace_settings, client.get_log_settings:
    arguments = {"register_cuda_shared_memory": ["a", b"", 0, 4]}.get(call.__name__, [])
    try:
        call(*arguments)
    except triton.InferenceServerException as e:
        assert "UNIMPLEMENTED" in e.status() and ("configuration" in e.message() or "request" in e.message()), (call.__name__, e)
    else:
        raise AssertionError(call.__name__)
client.close()

client = http.InferenceServerClient(sys.argv[1])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("add") and not client.is_model_ready("none")
assert client.get_server_metadata()["name"] == "overlapd"
assert [t["name"] for t in client.get_model_metadata("add")["inputs"]] == ["INPUT0", "INPUT1"]
assert client.get_model_config("add")["max_batch_size"] > 0
assert [m["state"] for m in client.get_model_repository_index()] == ["READY"]
assert client.get_inference_statistics("add")["model_stats"][0]["inference_stats"]["success"]["count"] >= 103


def over_http(binary):
    both = [http.InferInput(name, [2, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for i in both:
        i.set_data_from_numpy(x, binary_data=binary)
    return both


for binary in False, True:
    check(client.infer("add", over_http(binary), timeout=30000000, priority=1))
    outputs = [http.InferRequestedOutput(name, binary_data=binary) for name in ("OUTPUT0", "OUTPUT1")]
    check(client.infer("add", over_http(binary), outputs=outputs, request_compression_algorithm="gzip", response_compression_algorithm="gzip"))
for status, call in {
    "404": lambda: client.infer("none", over_http(True)),
    "400": lambda: client.infer("add", over_http(True)[:1]),
    "503": lambda: client.infer("add", over_http(True), timeout=1),
    "501": lambda: client.load_model("add", config="{}"),
}.items():
    try:
        call()
    except http.InferenceServerException as e:
        assert status in e.status(), (status, e)
    else:
        raise AssertionError(status)
client.close()
print("ok")
