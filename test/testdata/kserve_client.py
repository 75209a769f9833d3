"""Drives tiny_add through KServe's clients for HTTP and gRPC. Prints "ok", or fails."""
import asyncio
import sys

import numpy as np
from kserve import InferInput, InferRequest, InferenceGRPCClient, InferenceRESTClient, RESTConfig

x = np.arange(32, dtype=np.int32).reshape(2, 16)


def request(model, binary):
    inputs = []
    for name in ("INPUT0", "INPUT1"):
        i = InferInput(name, [2, 16], "INT32")
        i.set_data_from_numpy(x, binary_data=binary)
        inputs.append(i)
    return InferRequest(model_name=model, infer_inputs=inputs)


def check(answer):
    by_name = {o.name: o.as_numpy() for o in answer.outputs}
    assert (by_name["OUTPUT0"] == x + x).all() and (by_name["OUTPUT1"] == 0).all(), by_name


async def main():
    base = "http://" + sys.argv[1]
    rest = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await rest.is_server_live(base) is True
    assert await rest.is_server_ready(base) is True
    assert await rest.is_model_ready(base, "add") is True
    for binary in False, True:
        check(await rest.infer(base, request("add", binary), model_name="add"))
    try:
        await rest.infer(base, request("none", True), model_name="none")
    except Exception as e:
        assert "404" in str(e) and "unknown model" in str(e), e
    else:
        raise AssertionError("a model that there is not")
    await rest.close()

    rpc = InferenceGRPCClient(sys.argv[2])
    assert await rpc.is_server_live() is True
    assert await rpc.is_server_ready() is True
    assert await rpc.is_model_ready("add") is True
    for binary in False, True:
        check(await rpc.infer(request("add", binary)))
    await rpc.close()


asyncio.run(main())
print("ok")
