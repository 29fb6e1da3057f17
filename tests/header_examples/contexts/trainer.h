// Names that the examples of hasten/trainer use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_trainer {

extern hasten::Trainer trainer;
extern std::shared_ptr<hasten::Tracker> own_tracker;
extern hasten::TrainOptions options;
extern hasten::TrainingArguments arguments;
extern std::shared_ptr<hasten::PreTrainedModel> model;
extern hasten::TrainerDataset train_rows, eval_rows;
extern hasten::TokenDataset tokens;
extern hasten::TensorDict columns;
std::shared_ptr<hasten::PreTrainedModel> new_model();

}  // namespace context_of_trainer
