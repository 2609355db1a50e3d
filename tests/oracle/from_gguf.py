"""Have other libraries load a GGUF file, in the environment of requirements.txt.

    python from_gguf.py transformers FILE OUT TEXT
    python from_gguf.py candle FILE OUT TEXT

transformers writes an .npz of weights (`w.NAME`), the ids of the text and its logits; Candle,
through mistralrs, one of the answer to the text.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def with_transformers(path: Path, text: str) -> dict[str, object]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logits = model(ids).logits[0]
    weights = {f"w.{name}": array.numpy() for name, array in model.state_dict().items()}
    return {"ids": ids[0], "logits": logits, **weights}


def with_candle(path: Path, text: str) -> dict[str, object]:
    from mistralrs import ChatCompletionRequest, Runner, Which

    file = Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
    question = [{"role": "user", "content": text}]
    request = ChatCompletionRequest(
        model="default", messages=question, max_tokens=16, temperature=0.0
    )
    answer = Runner(which=file).send_chat_completion_request(request)
    return {"said": answer.choices[0].message.content}


if __name__ == "__main__":
    library, file, out, *texts = sys.argv[1:]
    work = {"transformers": with_transformers, "candle": with_candle}[library]
    np.savez(out, **work(Path(file), *texts))
