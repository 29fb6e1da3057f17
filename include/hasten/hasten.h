// File: hasten/hasten.h
// Includes the headers that most programs need.
//
//   #include <hasten/hasten.h>
//
// A file that must compile fast includes only the headers that it uses.
#pragma once

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/collator.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/language_modeling.h"
#include "hasten/data/loader.h"
#include "hasten/data/row_lengths.h"
#include "hasten/data/row_random.h"
#include "hasten/data/streams.h"
#include "hasten/data/task_collators.h"
#include "hasten/data/text_reader.h"
#include "hasten/data/token_dataset.h"
#include "hasten/data/views.h"
#include "hasten/device/memory.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"
#include "hasten/metrics/classification.h"
#include "hasten/metrics/regression.h"
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
