"""Asks for embeddings and scores through OpenAI's, Cohere's and LangChain's clients. Prints "ok", or fails."""
import json
import os
import sys
import urllib.request

import cohere
import numpy as np
import openai
from langchain_openai import OpenAIEmbeddings
from tokenizers import Tokenizer

url = "http://" + sys.argv[1]
words = "the quick brown fox jumps over a lazy dog".split()
texts = [" ".join(words[i % 9 :] + words[: (i * 7) % 9]) for i in range(256)]

client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
assert [m.id for m in client.models.list()] == ["enc", "rank"]
assert client.models.retrieve("enc").id == "enc"

for n in 1, 256:
    floats = client.embeddings.create(model="enc", input=texts[:n], encoding_format="float")
    packed = client.embeddings.create(model="enc", input=texts[:n])  # the client's own choice is base64
    assert [d.index for d in floats.data] == list(range(n)) and floats.usage.prompt_tokens == packed.usage.total_tokens > 2 * n
    a, b = (np.array([d.embedding for d in r.data]) for r in (floats, packed))
    assert a.shape == (n, 256) and abs(a - b).max() < 1e-6, abs(a - b).max()
    assert abs(np.linalg.norm(a, axis=1) - 1).max() < 1e-6
one = client.embeddings.create(model="enc", input=texts[0], dimensions=8).data[0].embedding
assert np.allclose(one, a[0][:8] / np.linalg.norm(a[0][:8]), atol=1e-6)


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


# The same output of the model, pooled and normalized as sentence-transformers does it.
tokenizer = Tokenizer.from_file(os.path.join(sys.argv[3], "models", "text_encoder", "tokenizer.json"))
for text, got in zip(texts[:20], a):
    e = tokenizer.encode(text)
    length = next(n for n in (16, 64) if n >= len(e.ids))
    columns = {"input_ids": e.ids, "attention_mask": e.attention_mask, "token_type_ids": e.type_ids}
    pad = [0] * (length - len(e.ids))
    out = post("/v2/models/enc/infer", {"inputs": [
        {"name": k, "shape": [1, length], "datatype": "INT64", "data": v + pad} for k, v in columns.items()]})["outputs"][0]
    hidden = np.array(out["data"], dtype=np.float32).reshape(length, -1)
    mask = np.array(e.attention_mask + pad, dtype=np.float32)[:, None]
    pooled = (hidden * mask).sum(0) / max(mask.sum(), 1e-9)
    want = pooled / max(np.linalg.norm(pooled), 1e-12)
    assert abs(want - got).max() < 1e-6, abs(want - got).max()
    tokens = client.embeddings.create(model="enc", input=e.ids).data[0].embedding
    assert abs(np.array(tokens) - got).max() < 1e-6
by_tensor = post("/v2/models/enc/infer", {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": texts[:2]}]})["outputs"][0]
assert by_tensor["shape"] == [2, 256] and abs(np.array(by_tensor["data"]).reshape(2, 256) - a[:2]).max() < 1e-6

for arguments, status, parameter in (
    ({"model": "none", "input": "a"}, 404, "model"),
    ({"model": "enc", "input": []}, 400, "input"),
    ({"model": "enc", "input": [10**6]}, 400, "input"),
    ({"model": "enc", "input": "a", "dimensions": 257}, 400, "dimensions"),
    ({"model": "enc", "input": "a", "encoding_format": "int8"}, 400, "encoding_format"),
    ({"model": "rank", "input": "a"}, 400, "model"),
    ({"model": "enc", "input": "a", "extra_body": {"parameters": {"timeout": 1}}}, 503, None),
    ({"model": "enc", "input": "a", "extra_headers": {"Overlapd-Timeout": "1"}}, 503, None),
):
    try:
        client.embeddings.create(**arguments)
    except openai.APIStatusError as e:
        reasons = {404: ["not_found"], 400: ["invalid"], 503: ["deadline_passed", "cannot_finish"]}[status]
        assert e.status_code == status and e.param == parameter and e.code in reasons and e.body["message"], (arguments, e)
    else:
        raise AssertionError(arguments)

for of in cohere.Client, cohere.ClientV2:
    rank = of(api_key="none", base_url=url)
    results = rank.rerank(model="rank", query="fox", documents=texts[:5], top_n=3).results
    scores = [r.relevance_score for r in results]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True) and all(0 <= s <= 1 for s in scores)
    assert len({r.index for r in results}) == 3
    try:
        rank.rerank(model="rank", query="fox", documents=[])
    except cohere.BadRequestError as e:
        assert "documents" in str(e.body)
    else:
        raise AssertionError("no documents")
pair = post("/v2/models/rank/infer", {"inputs": [{"name": "text", "shape": [1, 2], "datatype": "BYTES", "data": ["fox", texts[results[0].index]]}]})
assert abs(pair["outputs"][1]["data"][0] - scores[0]) < 1e-6

chain = OpenAIEmbeddings(model="enc", base_url=url + "/v1", api_key="none", check_embedding_ctx_length=False)
assert np.allclose(chain.embed_documents(texts[:3]), a[:3], atol=1e-6) and np.allclose(chain.embed_query(texts[0]), a[0], atol=1e-6)
print("ok")
