// Names that the examples of several headers use without declaring them.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>

#include "hasten/hasten.h"

namespace example_names {

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x);
};

at::Tensor loss_of(const at::Tensor& logits);
at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& target);
template <class Batch>
void train_on(const Batch& batch);

extern hasten::Accelerator accelerator;
extern std::shared_ptr<Net> net;
extern hasten::AdamW adamw;
extern std::vector<torch::data::Example<>> batches;
extern hasten::Group group;
extern at::Tensor ids, mask, labels, logits, loss, images, digits;
extern std::vector<std::string> texts;
extern std::filesystem::path path, folder;
extern hasten::config::Environment environment;

}  // namespace example_names
