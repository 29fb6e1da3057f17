// File: hasten/hasten.h
// Everything at once, for programs. A file that wants to compile fast includes what it uses
// instead.
#pragma once

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/collator.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/data/text_reader.h"
#include "hasten/data/token_dataset.h"
#include "hasten/device/memory.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"
#include "hasten/models/bert.h"
#include "hasten/ops/ops.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/scheduler.h"
#include "hasten/process/group.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/tokenizers/bert_tokenizer.h"
#include "hasten/track/progress_bar.h"
#include "hasten/trainer/progress_callback.h"
#include "hasten/trainer/stop_on_signal.h"
#include "hasten/trainer/trainer.h"
