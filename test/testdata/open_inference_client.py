"""Drives tiny_add through the Open Inference Protocol's own client. Prints "ok", or fails."""
import sys

import grpc
from open_inference.grpc.protocol import ModelInferRequest, ModelMetadataRequest, ModelReadyRequest, ServerLiveRequest, ServerReadyRequest
from open_inference.grpc.service import GRPCInferenceServiceStub
from open_inference.openapi.client import InferenceRequest, OpenInferenceClient
from open_inference.openapi.core.api_error import ApiError

x = list(range(16))
client = OpenInferenceClient(base_url="http://" + sys.argv[1])
client.check_server_liveness()
client.check_server_readiness()
client.check_model_readiness("add")
assert client.read_server_metadata().name == "overlapd"
metadata = client.read_model_metadata("add")
assert [t.name for t in metadata.inputs] == ["INPUT0", "INPUT1"], metadata
# It sends integers as 0.0, 1.0 and so on.
both = [{"name": name, "shape": [1, 16], "datatype": "INT32", "data": x} for name in ("INPUT0", "INPUT1")]
answer = client.model_infer("add", request=InferenceRequest(id="a", inputs=both))
assert answer.id == "a" and answer.outputs[0].name == "OUTPUT0" and answer.outputs[0].data.__root__ == [2 * v for v in x], answer
try:
    client.read_model_metadata("none")
except ApiError as e:
    assert e.status_code == 404 and "unknown model" in e.body["error"], e
else:
    raise AssertionError("a model that there is not")

stub = GRPCInferenceServiceStub(grpc.insecure_channel(sys.argv[2]))
assert stub.ServerLive(ServerLiveRequest()).live and stub.ServerReady(ServerReadyRequest()).ready and stub.ModelReady(ModelReadyRequest(name="add")).ready
assert [t.name for t in stub.ModelMetadata(ModelMetadataRequest(name="add")).inputs] == ["INPUT0", "INPUT1"]
request = ModelInferRequest(model_name="add", id="b")
for name in ("INPUT0", "INPUT1"):
    i = request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
    i.contents.int_contents.extend(x)
answer = stub.ModelInfer(request)
assert answer.id == "b" and answer.raw_output_contents[0] == b"".join((2 * v).to_bytes(4, "little") for v in x), answer
print("ok")
