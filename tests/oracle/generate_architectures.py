#!/usr/bin/env python3
"""Exports small models of transformers and torchvision with random weights, and records how eager PyTorch trains them.

    python generate_architectures.py                # every architecture
    python generate_architectures.py llama t5       # some of them
    python generate_architectures.py --list

Each architecture gets data/architectures/NAME.pt2, NAME.safetensors and an entry in architectures.json. See README.md.
"""
import argparse
import copy
import json
import os
import pathlib
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.export import Dim

from eager_training import save, train, without_origins

try:
    from torchvision_models import MODELS as TORCHVISION
except ImportError:  # transformers works without torchvision
    TORCHVISION = {}

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

DATA = pathlib.Path(__file__).resolve().parent / "data" / "architectures"
ROWS, STEPS = 3, 20
ORIGINS = ["stack_trace", "torch_fn", "source_fn_stack", "from_node", "custom"]
VOCABULARY, LENGTH, CLASSES, PIXELS = 32, 8, 3, 16


def ids(rows):
    return torch.randint(3, VOCABULARY, (rows, LENGTH))


def mask(rows):
    value = torch.ones(rows, LENGTH, dtype=torch.long)
    value[1:, LENGTH - 2:] = 0
    return value


def classes(rows):
    return torch.randint(0, CLASSES, (rows,))


def text(rows):
    return {"input_ids": ids(rows), "attention_mask": mask(rows), "labels": classes(rows)}


def text_without_labels(rows):
    return {"input_ids": ids(rows), "attention_mask": mask(rows)}


def language(rows):
    value = ids(rows)
    return {"input_ids": value, "attention_mask": mask(rows), "labels": value}


def language_without_mask(rows):
    value = ids(rows)
    return {"input_ids": value, "labels": value}


def translation(rows):
    return {"input_ids": ids(rows), "attention_mask": mask(rows), "decoder_input_ids": ids(rows), "labels": ids(rows)}


def speech(rows):
    return {"input_features": torch.randn(rows, 8, 16), "decoder_input_ids": ids(rows), "labels": ids(rows)}


def waveform(rows):
    return {"input_values": torch.randn(rows, 200)}


def images(rows):
    return {"pixel_values": torch.randn(rows, 3, PIXELS, PIXELS), "labels": classes(rows)}


def images_and_text(rows):
    return {"input_ids": ids(rows), "pixel_values": torch.randn(rows, 3, PIXELS, PIXELS), "attention_mask": mask(rows), "return_loss": True}


def features(rows):
    return {"x": torch.randn(rows, 3, 16, 16)}


class UNet(nn.Module):
    """A model that is not from transformers. It downsamples and upsamples with convolutions and has skip connections."""

    def __init__(self):
        super().__init__()
        self.first, self.down = self.block(3, 4), self.block(4, 8)
        self.up, self.last, self.head = nn.ConvTranspose2d(8, 4, 2, stride=2), self.block(8, 4), nn.Conv2d(4, CLASSES, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.SiLU())

    def forward(self, x):
        y = self.first(x)
        z = self.up(self.down(F.max_pool2d(y, 2)))
        return self.head(self.last(torch.cat([y, z], 1))).mean((2, 3))


class Recurrent(nn.Module):
    """A model that is not from transformers: a bidirectional LSTM, a GRU and an RNN in sequence."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True, proj_size=0)
        self.gru = nn.GRU(12, 6, batch_first=True)
        self.rnn = nn.RNN(6, 6, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, input_ids):
        y, _ = self.lstm(self.embed(input_ids))
        y, _ = self.gru(y)
        return self.head(self.rnn(y)[0][:, -1])


# The sizes, under the names that most configurations use.
ENCODER = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
           "max_position_embeddings": 16, "num_labels": CLASSES, "pad_token_id": 0}
DECODER = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
           "intermediate_size": 24, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
           "tie_word_embeddings": True}
GPT = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 2,
       "use_cache": False}
SEQ2SEQ = {"vocab_size": VOCABULARY, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
           "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 16, "pad_token_id": 0,
           "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None, "use_cache": False}
VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "image_size": PIXELS, "patch_size": 4,
          "num_labels": CLASSES}


def without(settings, *names, **others):
    return {**{key: value for key, value in settings.items() if key not in names}, **others}


def hugging_face(config, model, settings):
    def make():
        return getattr(transformers, model)(getattr(transformers, config)(**settings))
    make.__name__ = model
    return make


def encoder(prefix, model="ForSequenceClassification", inputs=text, **others):
    return hugging_face(prefix + "Config", prefix + model, {**ENCODER, **others}), inputs


def decoder(prefix, inputs=language, **others):
    return hugging_face(prefix + "Config", prefix + "ForCausalLM", {**DECODER, **others}), inputs


def vision(prefix, settings, model="ForImageClassification", inputs=images):
    return hugging_face(prefix + "Config", prefix + model, settings), inputs


MODELS = {
    "albert": encoder("Albert", embedding_size=8),
    "bert": encoder("Bert", num_hidden_layers=2),
    "convbert": encoder("ConvBert", embedding_size=16),
    "deberta_v2": encoder("DebertaV2", inputs=text_without_labels, relative_attention=True, position_buckets=4, pos_att_type=["p2c", "c2p"],
                          type_vocab_size=0, max_relative_positions=8),
    "distilbert": (hugging_face("DistilBertConfig", "DistilBertForSequenceClassification", {
        "vocab_size": VOCABULARY, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 16,
        "num_labels": CLASSES}), text),
    "electra": encoder("Electra", embedding_size=8),
    "fnet": encoder("FNet", inputs=lambda rows: {"input_ids": ids(rows), "labels": classes(rows)}),
    "mobilebert": encoder("MobileBert", embedding_size=8, intra_bottleneck_size=8, num_feedforward_networks=1),
    "modernbert": encoder("ModernBert", num_hidden_layers=2, global_attn_every_n_layers=2, local_attention=4, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                          sep_token_id=2),
    "mpnet": encoder("MPNet", max_position_embeddings=20, pad_token_id=1),
    "roberta": encoder("Roberta", max_position_embeddings=20, pad_token_id=1),
    "roformer": encoder("RoFormer", embedding_size=16),
    "squeezebert": encoder("SqueezeBert", embedding_size=16, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2,
                           output_groups=2),
    "bloom": (hugging_face("BloomConfig", "BloomForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 1, "n_head": 2,
                                                               "use_cache": False}), language),
    "cohere": decoder("Cohere"),
    "falcon": decoder("Falcon", alibi=False),
    "gemma": decoder("Gemma", head_dim=8),
    "gemma2": decoder("Gemma2", num_hidden_layers=2, head_dim=8, sliding_window=4, query_pre_attn_scalar=8),
    "gemma3": (hugging_face("Gemma3TextConfig", "Gemma3ForCausalLM", {**DECODER, "num_hidden_layers": 2, "head_dim": 8, "sliding_window": 4}), language),
    "glm": decoder("Glm", head_dim=8),
    "gpt2": (hugging_face("GPT2Config", "GPT2LMHeadModel", GPT), language),
    "gpt_neo": (hugging_face("GPTNeoConfig", "GPTNeoForCausalLM", {
        "vocab_size": VOCABULARY, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
        "window_size": 4, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}), language),
    "gpt_neox": decoder("GPTNeoX"),
    "gptj": (hugging_face("GPTJConfig", "GPTJForCausalLM", {**GPT, "rotary_dim": 4}), language),
    "granite": decoder("Granite"),
    "llama": decoder("Llama", num_hidden_layers=2),
    "mamba": (hugging_face("MambaConfig", "MambaForCausalLM", {
        "vocab_size": VOCABULARY, "hidden_size": 8, "state_size": 4, "num_hidden_layers": 1, "time_step_rank": 2, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}), language_without_mask),
    "mistral": decoder("Mistral", sliding_window=4),
    "mixtral": decoder("Mixtral", num_local_experts=2, num_experts_per_tok=1, experts_implementation="batched_mm"),
    "olmo": decoder("Olmo"),
    "olmo2": decoder("Olmo2"),
    "opt": (hugging_face("OPTConfig", "OPTForCausalLM", {
        "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 24,
        "max_position_embeddings": 16, "word_embed_proj_dim": 16, "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 2,
        "use_cache": False}), language),
    "phi": decoder("Phi"),
    "phi3": decoder("Phi3"),
    "qwen2": decoder("Qwen2"),
    "qwen3": decoder("Qwen3", head_dim=8),
    "smollm3": decoder("SmolLM3"),
    "stablelm": decoder("StableLm"),
    "starcoder2": decoder("Starcoder2"),
    "bart": (hugging_face("BartConfig", "BartForConditionalGeneration", SEQ2SEQ), translation),
    "marian": (hugging_face("MarianConfig", "MarianMTModel", SEQ2SEQ), translation),
    "t5": (hugging_face("T5Config", "T5ForConditionalGeneration", {
        "vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "pad_token_id": 0, "eos_token_id": 1,
        "decoder_start_token_id": 0, "relative_attention_num_buckets": 8, "use_cache": False}), translation),
    "whisper": (hugging_face("WhisperConfig", "WhisperForConditionalGeneration", {
        **without(SEQ2SEQ, "max_position_embeddings", "forced_eos_token_id"), "num_mel_bins": 8, "max_source_positions": 8,
        "max_target_positions": 16, "suppress_tokens": None, "begin_suppress_tokens": None}), speech),
    "wav2vec2": (hugging_face("Wav2Vec2Config", "Wav2Vec2ForSequenceClassification", {
        **without(ENCODER, "max_position_embeddings"), "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3),
        "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8,
        "apply_spec_augment": False, "layerdrop": 0.0}), waveform),
    "beit": vision("Beit", {**VISION, "drop_path_rate": 0.0}),
    "clip": (hugging_face("CLIPConfig", "CLIPModel", {
        "text_config": {**ENCODER, "bos_token_id": 1, "eos_token_id": 2, "projection_dim": 8}, "projection_dim": 8,
        "vision_config": {**VISION, "projection_dim": 8}}), images_and_text),
    "convnext": vision("ConvNext", {"hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2, "num_labels": CLASSES, "image_size": PIXELS}),
    "deit": vision("DeiT", VISION),
    "dinov2": vision("Dinov2", {**without(VISION, "intermediate_size"), "mlp_ratio": 2}),
    "poolformer": vision("PoolFormer", {"depths": [1, 1, 1, 1], "hidden_sizes": [4, 4, 8, 8], "num_labels": CLASSES, "mlp_ratio": 2.0,
                                        "drop_path_rate": 0.0}),
    "regnet": vision("RegNet", {"embedding_size": 4, "hidden_sizes": [8, 8], "depths": [1, 1], "groups_width": 4, "num_labels": CLASSES}),
    "resnet": vision("ResNet", {"embedding_size": 4, "hidden_sizes": [8, 12], "depths": [1, 1], "num_labels": CLASSES, "layer_type": "basic"}),
    "segformer": vision("Segformer", {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 12],
                                      "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
                                      "num_labels": CLASSES, "drop_path_rate": 0.0}),
    "swin": vision("Swin", {"image_size": PIXELS, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4,
                            "mlp_ratio": 2.0, "drop_path_rate": 0.0, "num_labels": CLASSES}),
    "vit": vision("ViT", VISION),
    "recurrent": (Recurrent, lambda rows: {"input_ids": ids(rows)}),
    "unet": (UNet, features),
    **TORCHVISION,
}

# Remarks on the models, for the table of docs/exported.md.
NOTES = {
    "bloom": "its GeLU is an `autograd.Function`: gradients differ from Python's by 3e-7",
    "clip": "the contrastive loss compares all rows, which fixes the batch",
    "deberta_v2": "exported without `labels`",
    "mixtral": "with `experts_implementation=\"batched_mm\"`",
    "swin": "with `drop_path_rate=0`",
    "torchvision_efficientnet": "with `stochastic_depth_prob=0`",
    "torchvision_lraspp": "segmentation, on a small backbone",
    "torchvision_resnet": "its residual blocks, 8 and 12 channels wide",
    "recurrent": "hand-written: LSTM, GRU and RNN",
    "unet": "hand-written",
    "wav2vec2": "exported without `labels`",
}


def loss_of(model, inputs, target):
    out = model(**inputs)
    if isinstance(out, torch.Tensor):
        return F.cross_entropy(out, target), out
    logits = out["logits"] if "logits" in out else out["logits_per_text"]
    return (F.cross_entropy(logits, target) if out.get("loss") is None else out["loss"]), logits


def shapes_of(inputs, dims):
    def shape(name, value):
        if not isinstance(value, torch.Tensor):
            return None
        return {axis: dim for axis, dim in dims.items() if axis == 0 or (value.dim() == 2 and value.shape[1] == LENGTH)}
    return {name: shape(name, value) for name, value in inputs.items()}


def export(model, inputs):
    """Returns the program with all dynamic sizes that the model allows, and the names of these sizes."""
    batch, length = Dim("batch", min=2, max=64), Dim("length", min=2, max=LENGTH)
    for dims in ({0: batch, 1: length}, {0: batch}, {}):
        if 1 in dims and "input_ids" not in inputs:
            continue
        try:
            program = torch.export.export(model, (), inputs, dynamic_shapes=shapes_of(inputs, dims) if dims else None)
            return program, [dim.__name__ for dim in dims.values()]
        except Exception as error:  # the type of the exception depends on the model
            if not dims:
                raise
            print(f"    not with {[dim.__name__ for dim in dims.values()]}: {str(error).splitlines()[0][:160]}")
    raise AssertionError


def digest(tensor):
    """Returns the sum and the norm of a tensor, which differ if the tensor differs."""
    value = tensor.detach().double()
    return torch.stack([value.sum(), value.norm()])


def generate(name):
    make, inputs_of = MODELS[name]
    torch.manual_seed(0)
    model = make().train()
    if name == "modernbert":
        model.config.reference_compile = False
    torch.manual_seed(1)
    batches = [(inputs_of(ROWS), classes(ROWS)) for _ in range(2)]
    program, dynamic = export(copy.deepcopy(model), batches[0][0])
    torch.export.save(without_origins(program, ORIGINS), str(DATA / f"{name}.pt2"))

    out = {}
    for number, (inputs, target) in enumerate(batches):
        out.update({f"input.{number}.{key}": value for key, value in inputs.items() if isinstance(value, torch.Tensor)})
        out[f"target.{number}"] = target
    trained, final = train(model, batches, STEPS, loss_of)
    save({**out, **trained, **{key: digest(value) for key, value in final.items()}}, DATA / f"{name}.safetensors")
    entry = {"model": make.__name__, "dynamic": dynamic, "parameters": sum(value.numel() for value in model.parameters())}
    return {**entry, "note": NOTES[name]} if name in NOTES else entry


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        return print("\n".join(MODELS))
    DATA.mkdir(parents=True, exist_ok=True)
    index = DATA / "architectures.json"
    entries = json.loads(index.read_text()) if index.exists() else {}
    for name in arguments.names or list(MODELS):
        try:
            entries[name] = generate(name)
            sizes = [(DATA / f"{name}{ending}").stat().st_size for ending in (".pt2", ".safetensors")]
            print(f"{name}: {sizes[0]:,} + {sizes[1]:,} bytes, {entries[name]}", flush=True)
        except Exception as error:
            print(f"{name}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
        index.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
