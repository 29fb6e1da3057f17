// File: hasten/optim/optimizers.h
// The optimizers other than AdamW (hasten/optim/adamw.h): Adafactor, Adamax, AdamW and Lion with
// 8-bit moments, AdEMAMix, LAMB, Lion, Muon alone and with AdamW, NAdam, RAdam, the schedule-free
// AdamW and SGD, and StableAdamW.
//
//   hasten::Lion lion(model->parameters(), hasten::LionOptions(1e-4).weight_decay(0.1));
//   loss.backward();
//   lion.step();
//
// The header of each class describes its arithmetic, its source, its defaults and the memory that
// it needs. For errors and the thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/optim/detail/adafactor.h"
#include "hasten/optim/detail/adamax.h"
#include "hasten/optim/detail/adamw_8bit.h"
#include "hasten/optim/detail/ademamix.h"
#include "hasten/optim/detail/lamb.h"
#include "hasten/optim/detail/lion.h"
#include "hasten/optim/detail/lion_8bit.h"
#include "hasten/optim/detail/muon.h"
#include "hasten/optim/detail/muon_adamw.h"
#include "hasten/optim/detail/nadam.h"
#include "hasten/optim/detail/radam.h"
#include "hasten/optim/detail/schedule_free.h"
#include "hasten/optim/detail/stable_adamw.h"
