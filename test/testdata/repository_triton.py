"""Loads and unloads models of a repository with Triton's clients: "x" and "y", whose three versions differ in
their weights. The daemon loads by request, and at the start "y". Prints "ok", or fails."""
import os
import shutil
import signal
import sys
import time

import numpy as np
import tritonclient.grpc as triton
import tritonclient.http as http

folder = sys.argv[3]
x = np.arange(16, dtype=np.float32).reshape(1, 16)


def infer(client, module, model, version=""):
    given = module.InferInput("input", [1, 16], "FP32")
    given.set_data_from_numpy(x)
    result = client.infer(model, [given], model_version=version)
    answer = result.get_response()
    answer = answer if isinstance(answer, dict) else {"model_name": answer.model_name, "model_version": answer.model_version}
    assert answer["model_name"] == model and (not version or answer["model_version"] == version), answer
    return result.as_numpy("output"), answer["model_version"]


def states(client):
    index = client.get_model_repository_index()
    index = index if isinstance(index, list) else [{"name": m.name, "version": m.version, "state": m.state, "reason": m.reason} for m in index.models]
    return sorted((m["name"], m["version"], m["state"], m["reason"]) for m in index)


def refused(error, text, call):
    try:
        call()
    except error as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)


def all_of(model, *state):
    return [(model, str(v)) + state for v in (1, 2, 3)]


for module, address in (http, sys.argv[1]), (triton, sys.argv[2]):
    client = module.InferenceServerClient(address)
    error = module.InferenceServerException
    assert client.is_server_ready() and client.is_model_ready("y") and not client.is_model_ready("x")
    assert states(client) == all_of("x", "UNAVAILABLE", "unloaded") + all_of("y", "READY", "")
    refused(error, "is not loaded", lambda: infer(client, module, "x"))

    client.load_model("x")
    assert states(client) == all_of("x", "READY", "") + all_of("y", "READY", "")
    outputs = [infer(client, module, "x", v)[0] for v in ("1", "2", "3")]
    assert not np.allclose(outputs[0], outputs[1]) and not np.allclose(outputs[1], outputs[2])
    highest, version = infer(client, module, "x")
    assert (highest == outputs[2]).all() and version == "3"
    assert client.is_model_ready("x", "2") and client.is_model_ready("x", "3")
    for version in "", "2":
        metadata, config = client.get_model_metadata("x", version), client.get_model_config("x", version)
        if module is http:
            assert metadata["name"] == config["name"] == "x" and metadata["versions"] == ["3", "2", "1"], metadata
        else:
            assert metadata.name == config.config.name == "x" and list(metadata.versions) == ["3", "2", "1"], metadata
    count = client.get_inference_statistics("x", "2")
    count = count["model_stats"] if module is http else count.model_stats
    assert len(count) == 1
    refused(error, "only the versions 3, 2, 1", lambda: infer(client, module, "x", "7"))
    refused(error, "", lambda: client.load_model("x", config="{}"))
    refused(error, "", lambda: client.load_model("none"))

    client.load_model("x")  # again, which changes nothing
    client.unload_model("x", unload_dependents=True)
    assert states(client) == all_of("x", "UNAVAILABLE", "unloaded") + all_of("y", "READY", "")
    refused(error, "is not loaded", lambda: infer(client, module, "x", "2"))
    infer(client, module, "y")

    # A new model and a new version are there once they are loaded.
    shutil.copytree(os.path.join(folder, "y", "1"), os.path.join(folder, "z", "1"))
    client.load_model("z")
    infer(client, module, "z", "1")
    client.unload_model("z")
    shutil.copytree(os.path.join(folder, "y", "1"), os.path.join(folder, "z", "5"))
    client.load_model("z")
    assert infer(client, module, "z")[1] == "5"
    with open(os.path.join(folder, "z", "5", "model.onnx"), "w") as f:
        f.write("no model")
    refused(error, "cannot be loaded", lambda: client.load_model("z"))
    assert infer(client, module, "z")[1] == "5"
    client.unload_model("z")
    # What is gone stays known until a reload.
    shutil.rmtree(os.path.join(folder, "z"))
    refused(error, "no such model", lambda: client.load_model("z"))
    client.close()
    if module is http:  # the other client starts from the same state
        os.kill(int(sys.argv[4]), signal.SIGHUP)
        client = http.InferenceServerClient(sys.argv[1])
        for _ in range(600):
            if not any(m["name"] == "z" for m in client.get_model_repository_index()):
                break
            time.sleep(0.1)
        client.close()
print("ok")
