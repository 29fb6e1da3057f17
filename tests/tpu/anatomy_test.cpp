// What a step computes, heard on device tpu: as much as on the CPU.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "hasten/optim/adamw.h"
#include "tpu/tiny_bert.h"

namespace tpu_anatomy_test {

using namespace hasten;

namespace {

anatomy::Report report_of(const AcceleratorOptions& options) {
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
  add_roofs(report);  // of a CPU, and not of the TPU beside it
  return report;
}

double products(const anatomy::Report& report) {
  double flops = 0;
  for (const auto& operation : report.operations) {
    if (operation.group == anatomy::OperationGroup::tensor_contraction) flops += operation.flops;
  }
  return flops;
}

}  // namespace

TEST_CASE(
    "tpu: an anatomy hears as many products as on the CPU, and says that of memory it hears "
    "nothing") {
  const anatomy::Report cpu = report_of({.cpu = true}), tpu = report_of({.tpu = true});
  CHECK(products(cpu) > 0);
  CHECK(products(tpu) == doctest::Approx(products(cpu)).epsilon(1e-9));
  CHECK(tpu.memory.parameters == cpu.memory.parameters);
  CHECK(cpu.memory.known);
  CHECK(!tpu.memory.known);
  CHECK(tpu.memory.peak == 0);
  CHECK(tpu.roofs.flops_per_second == 0);
  for (const std::string& form : {to_text(tpu), to_json(tpu), to_html(tpu)})
    CHECK(form.find("hasten estimate --tpu predicts it") != std::string::npos);
}

}  // namespace tpu_anatomy_test
