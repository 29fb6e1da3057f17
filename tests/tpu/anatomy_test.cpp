// The anatomy on device tpu counts the same computation as on the CPU.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "hasten/optim/adamw.h"
#include "tpu/tiny_bert.h"

namespace tpu_anatomy_test {

using namespace hasten;

namespace {

anatomy::Report measure(const AcceleratorOptions& options) {
  const auto net = tiny_bert(2, 0.1);
  Accelerator accelerator(options);
  hasten::AdamW adamw(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const TensorDict batch = accelerator.to_device({{"input_ids", at::randint(1, 100, {8, 16})},
                                                  {"attention_mask", at::ones({8, 16}, at::kLong)},
                                                  {"labels", at::randint(0, 2, {8})}});
  auto anatomy = accelerator.anatomy({.steps = 2});
  for (int step = 0; step < 2; ++step) {
    accelerator.backward(model(batch).loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  anatomy::Report report = anatomy.report();
  add_roofs(report);  // the CPU's, not the TPU's
  return report;
}

double flops_of_products(const anatomy::Report& report) {
  double flops = 0;
  for (const auto& operation : report.operations) {
    if (operation.group == anatomy::OperationGroup::tensor_contraction) flops += operation.flops;
  }
  return flops;
}

}  // namespace

TEST_CASE(
    "tpu: an anatomy counts as many products as on the CPU, and reports that it knows no memory") {
  const anatomy::Report cpu = measure({.cpu = true}), tpu = measure({.tpu = true});
  CHECK(flops_of_products(cpu) > 0);
  CHECK(flops_of_products(tpu) == doctest::Approx(flops_of_products(cpu)).epsilon(1e-9));
  CHECK(tpu.memory.parameters == cpu.memory.parameters);
  CHECK(cpu.memory.known);
  CHECK(!tpu.memory.known);
  CHECK(tpu.memory.peak == 0);
  CHECK(tpu.roofs.flops_per_second == 0);
  for (const std::string& text : {to_text(tpu), to_json(tpu), to_html(tpu)})
    CHECK(text.find("hasten estimate --tpu predicts it") != std::string::npos);
}

}  // namespace tpu_anatomy_test
