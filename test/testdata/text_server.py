"""Serves embeddings or scores of one model with FastAPI, tokenizers and ONNX Runtime, as such servers do.

text_server.py FOLDER PORT THREADS: requests are tokenized in a thread, and what waits is run in batches of
up to 32 texts, sorted by length.
"""
import asyncio
import base64
import concurrent.futures
import contextlib
import os
import sys

import numpy as np
import onnxruntime as ort
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from tokenizers import Tokenizer

BATCH, LENGTH = 32, 128
folder, port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
tokenizer.enable_truncation(LENGTH)
options = ort.SessionOptions()
options.intra_op_num_threads = threads
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = ort.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
output = session.get_outputs()[0].name
model, tokenizing = (concurrent.futures.ThreadPoolExecutor(1) for _ in range(2))
waiting = []  # (length, encoding, future)
work = asyncio.Event()


def run(batch):
    """Returns the row of each encoding."""
    length = max(n for n, _, _ in batch)
    ids, mask, types = (np.zeros((len(batch), length), dtype=np.int64) for _ in range(3))
    for i, (n, e, _) in enumerate(batch):
        ids[i, :n], mask[i, :n], types[i, :n] = e.ids, 1, e.type_ids
    out = session.run([output], {"input_ids": ids, "attention_mask": mask, "token_type_ids": types})[0]
    if out.ndim == 2:
        return 1 / (1 + np.exp(-out[:, 0]))
    m = mask[:, :, None].astype(np.float32)
    pooled = (out * m).sum(1) / m.sum(1)
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


async def batches():
    while True:
        await work.wait()
        work.clear()
        while waiting:
            waiting.sort(key=lambda w: w[0])
            batch = waiting[:BATCH]
            del waiting[:BATCH]
            rows = await asyncio.get_running_loop().run_in_executor(model, run, batch)
            for (_, _, future), row in zip(batch, rows):
                if not future.done():
                    future.set_result(row)


@contextlib.asynccontextmanager
async def lifespan(_):
    task = asyncio.create_task(batches())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


async def rows(texts):
    loop = asyncio.get_running_loop()
    encodings = await loop.run_in_executor(tokenizing, tokenizer.encode_batch, texts)
    futures = [loop.create_future() for _ in encodings]
    waiting.extend((len(e.ids), e, f) for e, f in zip(encodings, futures))
    work.set()
    return await asyncio.gather(*futures)


@app.get("/v1/models")
async def models():
    return {"object": "list", "data": [{"id": os.path.basename(folder), "object": "model"}]}


@app.post("/v1/embeddings")
async def embeddings(request: Request):
    body = await request.json()
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    data = [{"object": "embedding", "index": i, "embedding": base64.b64encode(r.astype("<f4").tobytes()).decode()}
            for i, r in enumerate(await rows(texts))]
    return JSONResponse({"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 0, "total_tokens": 0}})


@app.post("/v1/rerank")
async def rerank(request: Request):
    body = await request.json()
    scores = await rows([(body["query"], d) for d in body["documents"]])
    results = sorted(({"index": i, "relevance_score": float(s)} for i, s in enumerate(scores)), key=lambda r: -r["relevance_score"])
    return JSONResponse({"model": body["model"], "results": results})


uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)
