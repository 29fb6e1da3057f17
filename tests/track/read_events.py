#!/usr/bin/env python3
"""TensorBoard reads the event file of TensorBoardTracker with the values that were logged.

    HASTEN_REFERENCE_PYTHON=PYTHON read_events.py WRITE_VALUES      PYTHON has tensorboard and Pillow
"""
import os
import subprocess
import sys
import tempfile

PYTHON = os.environ.get("HASTEN_REFERENCE_PYTHON", "")
READ = """
import io, math, sys
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator, STORE_EVERYTHING_SIZE_GUIDANCE
from tensorboard.plugins.hparams import metadata
events = EventAccumulator(sys.argv[1], size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE)
events.Reload()
tags = events.Tags()
assert sorted(tags["scalars"]) == ["eval/loss", "train/learning_rate", "train/loss"], tags
loss = events.Scalars("train/loss")
assert [each.step for each in loss] == [0, 10, 20, 30, 40], loss
assert all(abs(each.value - 1 / (each.step + 1)) < 1e-7 for each in loss), loss
assert all(each.wall_time > 1.7e9 for each in loss), loss
assert math.isnan(events.Scalars("eval/loss")[0].value)
text = events.Tensors("args/text_summary")[0]
assert text.tensor_proto.string_val[0].decode() == '{"a": "\u00e9"}', text
assert events.SummaryMetadata("args/text_summary").plugin_data.plugin_name == "text"
weights = events.Histograms("weights")[0]
value = weights.histogram_value
assert (weights.step, value.min, value.max, value.num, value.sum, value.sum_squares) == (10, -1, 2, 4, 2, 5.5), weights
assert sum(value.bucket) == 4 and len(value.bucket) == len(value.bucket_limit), weights
image = events.Images("image")[0]
picture = Image.open(io.BytesIO(image.encoded_image_string))
picture.load()
assert (image.width, image.height, picture.size, picture.mode) == (3, 2, (3, 2), "RGB"), picture
assert picture.getpixel((0, 0)) == (255, 0, 0) and picture.getpixel((2, 1)) == (0, 0, 0)
start = metadata.parse_session_start_info_plugin_data(events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content)
values = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
assert values == {"bf16": True, "learning_rate": 2e-5, "model": "bert", "seed": 42.0}, values
experiment = metadata.parse_experiment_plugin_data(events.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content)
assert {info.name: info.type for info in experiment.hparam_infos} == {"bf16": 2, "learning_rate": 3, "model": 1, "seed": 3}, experiment
end = metadata.parse_session_end_info_plugin_data(events.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content)
assert end.status == 1, end
"""


def main():
    if not PYTHON:
        print("skipped: HASTEN_REFERENCE_PYTHON is not set to a Python with tensorboard and Pillow")
        return 0
    if subprocess.run([PYTHON, "-c", "import PIL, tensorboard"], capture_output=True).returncode != 0:
        print("skipped: the Python of HASTEN_REFERENCE_PYTHON lacks tensorboard or Pillow")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        return subprocess.run([PYTHON, "-c", READ, os.path.join(folder, "run")]).returncode


if __name__ == "__main__":
    sys.exit(main())
