#!/usr/bin/env python3
"""Runs the Hugging Face Trainer on images, and records how Pillow and PyTorch decode and resize some.

    python generate_images.py     # also needs pillow and scikit-learn

It writes these files, which README.md describes:
- data/tasks/digits.tsv: scikit-learn's digits, each with a label and 64 values of 0 to 16 as characters of "0123456789abcdefg"
- data/tasks/vit, data/tasks/resnet and data/tasks/resnet_basic: the model folder, final.safetensors and expected.json
- data/images: small files, and their pixels in expected.safetensors
"""
import json
import pathlib
import shutil
import tempfile

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from transformers import (ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification,
                          default_data_collator, set_seed)
from transformers.trainer_callback import PrinterCallback

from generate import QUIET, versions, without_clock, write_json
from generate_tasks import ARGUMENTS, DATA, EVAL_ROWS, TRAIN_ROWS

IMAGES = pathlib.Path(__file__).resolve().parent / "data" / "images"
CHARACTERS = "0123456789abcdefg"
IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])


def digits():
    """Writes the data set, and returns the images as bytes [rows, 8, 8] and the labels."""
    found = load_digits()
    values, labels = found.images.astype(int), found.target.astype(int)
    lines = ["\t".join([str(label), "".join(CHARACTERS[value] for value in image.flatten())]) for image, label in zip(values, labels)]
    (DATA / "digits.tsv").write_text("\n".join(lines) + "\n")
    return torch.tensor((values * 255 + 8) // 16, dtype=torch.uint8), torch.tensor(labels)


def normalized(images, mean, std):
    images = images.to(torch.float32)
    return (images - (torch.tensor(mean) * 255).view(-1, 1, 1)) / (torch.tensor(std) * 255).view(-1, 1, 1)


def gray(images):
    return normalized(images.unsqueeze(1), [0.5], [0.5])


def resized(images):
    """Returns the images in colour, 32 x 32 pixels."""
    coloured = images.unsqueeze(1).expand(-1, 3, -1, -1).contiguous()
    large = torch.cat([torch.nn.functional.interpolate(image.unsqueeze(0), (32, 32), mode="bilinear", antialias=True) for image in coloured])
    return normalized(large, IMAGENET["image_mean"], IMAGENET["image_std"])


def accuracy(prediction):
    return dict(accuracy=float((prediction.predictions.argmax(-1) == prediction.label_ids).mean()))


def train(name, model, pixels, labels, processor=None):
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")
    rows = [dict(pixel_values=image, labels=label) for image, label in zip(pixels, labels)]
    arguments = dict(ARGUMENTS, weight_decay=0.01)
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(model=model, args=TrainingArguments(out, **QUIET, **arguments), train_dataset=rows[:TRAIN_ROWS],
                          eval_dataset=rows[TRAIN_ROWS:], data_collator=default_data_collator, compute_metrics=accuracy)
        trainer.remove_callback(PrinterCallback)
        output = trainer.train()
        model.save_pretrained(out)
        shutil.copy(pathlib.Path(out) / "model.safetensors", folder / "final.safetensors")  # has the parameter names that files use
    write_json(folder / "expected.json", dict(arguments=arguments, steps=output.global_step, train_loss=output.training_loss,
                                              log_history=[without_clock(entry) for entry in trainer.state.log_history], versions=versions()))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"{name:24s} {output.global_step} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")


def classifiers():
    images, labels = digits()
    images, labels = images[:TRAIN_ROWS + EVAL_ROWS], labels[:TRAIN_ROWS + EVAL_ROWS]
    names = dict(id2label={i: str(i) for i in range(10)}, label2id={str(i): i for i in range(10)})
    set_seed(1234)
    vit = ViTForImageClassification(ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=8,
                                              patch_size=2, num_channels=1, **names))
    train("vit", vit, gray(images), labels)
    processor = dict(image_processor_type="ViTImageProcessor", do_resize=True, size=dict(height=32, width=32), resample=2, **IMAGENET)
    sizes = dict(num_channels=3, embedding_size=8, hidden_sizes=[16, 32], depths=[2, 1])
    for name, changes in dict(resnet=dict(layer_type="bottleneck", downsample_in_first_stage=True), resnet_basic=dict(layer_type="basic")).items():
        set_seed(1234)
        model = ResNetForImageClassification(ResNetConfig(**sizes, **changes, **names))
        train(name, model, resized(images), labels, processor)


def picture(height, width, channels):
    """Returns a smooth picture with edges, [height, width, channels]."""
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [127 + 90 * numpy.sin(x / (3 + c)) * numpy.cos(y / (4 - c)) + 30 * ((x + y) // 5 % 2) for c in range(channels)]
    return numpy.stack(planes, -1).clip(0, 255).astype(numpy.uint8)


def decoding():
    """Writes an image of each file type, and the pixels that Pillow's convert("RGB") and convert("L") return for it."""
    shutil.rmtree(IMAGES, ignore_errors=True)
    IMAGES.mkdir(parents=True)
    rgb, height, width = picture(17, 23, 3), 17, 23
    alpha = numpy.concatenate([rgb, picture(height, width, 1)], -1)
    colour = Image.fromarray(rgb)
    kinds = {
        "rgb.png": (colour, {}),
        "rgba.png": (Image.fromarray(alpha), {}),
        "gray.png": (colour.convert("L"), {}),
        "gray_alpha.png": (Image.fromarray(alpha).convert("LA"), {}),
        "palette.png": (colour.quantize(12), dict(transparency=3)),
        "bilevel.png": (colour.convert("1"), {}),
        "rgb.jpg": (colour, dict(quality=90)),
        "progressive.jpeg": (colour, dict(quality=80, progressive=True, subsampling=2)),
        "gray.jpg": (colour.convert("L"), {}),
    }
    expected = {}
    for name, (image, options) in kinds.items():
        image.save(IMAGES / name, **options)
        read = Image.open(IMAGES / name)
        expected[name + ".rgb"] = torch.from_numpy(numpy.array(read.convert("RGB"))).permute(2, 0, 1).contiguous()
        if not name.startswith("palette"):
            expected[name + ".gray"] = torch.from_numpy(numpy.array(read.convert("L")).astype(numpy.uint8)).unsqueeze(0)
    colour.convert("CMYK").save(IMAGES / "cmyk.jpg")
    deep = picture(height, width, 1)[:, :, 0].astype(numpy.uint16) * 257 + 100
    Image.fromarray(deep).save(IMAGES / "gray_16.png")
    expected["gray_16.png.gray"] = torch.from_numpy((deep.astype(numpy.int64) * 255 + 32767) // 65535).to(torch.uint8).unsqueeze(0)
    torch_image = torch.from_numpy(rgb).permute(2, 0, 1).contiguous()
    for size in [(8, 11), (40, 31), (17, 9)]:
        for mode, filter in dict(bilinear=Image.Resampling.BILINEAR, bicubic=Image.Resampling.BICUBIC).items():
            key = f"{mode}_{size[0]}_{size[1]}"
            expected[key + ".torch"] = torch.nn.functional.interpolate(torch_image.unsqueeze(0), size, mode=mode, antialias=True)[0]
            expected[key + ".pillow"] = torch.from_numpy(numpy.array(colour.resize(size[::-1], filter))).permute(2, 0, 1).contiguous()
    save_file(expected, IMAGES / "expected.safetensors")


if __name__ == "__main__":
    classifiers()
    decoding()
