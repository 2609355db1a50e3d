"""Have transformers answer with an exported model, or embed texts.

    python answering.py answer|embed FOLDER OUT TEXT ...

writes an .npz: of an answer to the one text, its tokens (`ids`, of which `asked` are the question),
the logits of all positions and the text itself; of texts embedded, the ids and the mean of the last
layer of each. Runs in the environment of requirements.txt.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
import transformers

ANSWER = 16  # tokens


def answer(folder: str, text: str) -> dict[str, object]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        ids = model.generate(prompt, max_new_tokens=ANSWER, do_sample=False)
        logits = model(ids).logits[0]
    answer_text = tokenizer.decode(ids[0][prompt.shape[1] :])
    return {"ids": ids[0], "asked": prompt.shape[1], "logits": logits, "said": answer_text}


def embed(folder: str, *texts: str) -> dict[str, object]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    ids = [tokenizer(text)["input_ids"] for text in texts]
    with torch.inference_mode():
        means = [model(torch.tensor([token])).last_hidden_state[0].mean(0) for token in ids]
    return {"ids": json.dumps(ids), "means": torch.stack(means)}


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    work, place, out, *arguments = sys.argv[1:]
    np.savez(out, **{"answer": answer, "embed": embed}[work](place, *arguments))
