"""Loads and unloads the model "x", which has three versions, as KServe's model agent and its
clients do. Prints "ok", or fails."""
import asyncio
import json
import sys
import urllib.request

import grpc
import numpy as np
from kserve import InferInput, InferRequest, InferenceGRPCClient, InferenceRESTClient, RESTConfig
from kserve.protocol.grpc import grpc_predict_v2_pb2 as messages
from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc as services

x = np.arange(16, dtype=np.float32).reshape(1, 16)
base = "http://" + sys.argv[1]


def request(version=None):
    i = InferInput("input", [1, 16], "FP32")
    i.set_data_from_numpy(x, binary_data=True)
    return InferRequest(model_name="x", model_version=version, infer_inputs=[i])


def agent(call):
    """What KServe's agent sends when a TrainedModel comes or goes."""
    with urllib.request.urlopen(urllib.request.Request(f"{base}/v2/repository/models/x/{call}", data=b"", method="POST")) as answer:
        assert answer.status == 200 and json.load(answer) == {"name": "x", call: True}


async def main():
    rest, rpc = InferenceRESTClient(RESTConfig(protocol="v2")), InferenceGRPCClient(sys.argv[2])
    assert await rest.is_model_ready(base, "x") is False
    agent("load")
    assert await rest.is_model_ready(base, "x") is True
    answer = await rest.infer(base, request(), model_name="x")
    assert answer.model_name == "x", answer  # its client drops the version
    for version in "1", "2", "3":
        answer = await rpc.infer(request(version))
        assert answer.model_name == "x" and answer.model_version == version, answer
    agent("unload")
    assert await rest.is_model_ready(base, "x") is False

    with grpc.insecure_channel(sys.argv[2]) as channel:
        stub = services.GRPCInferenceServiceStub(channel)
        loaded = stub.RepositoryModelLoad(messages.RepositoryModelLoadRequest(model_name="x"))
        assert loaded.model_name == "x" and loaded.isLoaded
        assert await rpc.is_model_ready("x") is True
        unloaded = stub.RepositoryModelUnload(messages.RepositoryModelUnloadRequest(model_name="x"))
        assert unloaded.model_name == "x" and unloaded.isUnloaded
    assert await rpc.is_model_ready("x") is False
    await rest.close()
    await rpc.close()


asyncio.run(main())
print("ok")
