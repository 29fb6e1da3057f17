#!/usr/bin/env python3
"""Records the results of PEFT's LoRA with small models: the logits with an adapter, and ten steps that train it.

    python generate_lora.py            # every case
    python generate_lora.py --read FOLDER [gpt2]    # prints the logits with an adapter that hasten has written

Each case gets data/lora/NAME with the files that PEFT writes for an adapter with non-zero B, `trained.safetensors` (the
adapter after ten steps), and `expected.safetensors` with the logits before the training and the losses. See README.md.
"""
import json
import os
import pathlib
import shutil
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BertConfig, BertForSequenceClassification

torch.set_num_threads(1)

DATA = pathlib.Path(__file__).resolve().parent / "data"
STEPS = 10
LEARNING_RATE = 3e-2
DECODER_IDS = 30
EPSILON = 1e-3  # large, because AdamW would amplify the rounding errors of gradients that are zero (those of key biases)

CASES = {
    "query_value": dict(r=4, lora_alpha=8, target_modules=["query", "value"], modules_to_save=["classifier"]),
    "all_linear": dict(r=3, lora_alpha=6, target_modules="all-linear", task_type="SEQ_CLS", use_rslora=True),
    "pattern": dict(r=2, lora_alpha=5, target_modules=r".*layer\.0\..*(key|intermediate\.dense)", bias="lora_only"),
    "bias_all": dict(r=2, lora_alpha=4, target_modules=["attention.output.dense"], bias="all",
                     modules_to_save=["classifier"]),
}

# Decoders, whose base models generate_decoders.py wrote.
DECODERS = {
    "gpt2": dict(r=4, lora_alpha=8, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True, task_type="CAUSAL_LM"),
    "llama": dict(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
}
CASES |= DECODERS


def base_model(name=None):
    if name in DECODERS:
        return AutoModelForCausalLM.from_pretrained(DATA / "decoders" / name)
    config = BertConfig.from_json_file(DATA / "base" / "config.json")
    model = BertForSequenceClassification(config)
    model.load_state_dict(load_file(DATA / "base" / "init.safetensors"))
    return model


def batch_of(name, batches, step):
    """Returns the rows of a step. For a decoder, the ids fit its vocabulary and are also the labels."""
    batch = {key: tensor[step] for key, tensor in batches.items()}
    if name in DECODERS:
        batch["input_ids"] = batch["input_ids"] % DECODER_IDS
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return batch


def generate(name):
    folder = DATA / "lora" / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(7)
    model = get_peft_model(base_model(name), LoraConfig(**CASES[name]))
    for key, parameter in model.named_parameters():
        if "lora_B" in key:
            parameter.data.normal_(0, 0.05)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    batches = load_file(DATA / "base" / "batches.safetensors")
    model.eval()
    with torch.no_grad():
        logits = model(**batch_of(name, batches, 0)).logits
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, eps=EPSILON)
    losses = []
    for step in range(STEPS):
        loss = model(**batch_of(name, batches, step)).loss
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    save_file({"logits": logits, "losses": torch.stack(losses)}, folder / "expected.safetensors")
    model.save_pretrained("/tmp/peft-trained")
    shutil.copy("/tmp/peft-trained/adapter_model.safetensors", folder / "trained.safetensors")
    shutil.rmtree("/tmp/peft-trained")
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = None  # a path on this machine
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    print(name, sum(p.numel() for p in trained), [round(float(x), 4) for x in losses])


def read(folder, name):
    """Prints the logits that PEFT computes with an adapter that hasten has written, on a base model of these cases."""
    batches = load_file(DATA / "base" / "batches.safetensors")
    model = PeftModel.from_pretrained(base_model(name), folder).eval()
    with torch.no_grad():
        print(model(**batch_of(name, batches, 0)).logits.flatten().tolist())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], (sys.argv[3:] or [None])[0])
    else:
        for each in sys.argv[1:] or CASES:
            generate(each)
