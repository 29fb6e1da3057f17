// The steps of quantized_moments.h on devices for which hasten has no kernels.
#include <cmath>

#include "ops/codebook.h"
#include "optim/quantized_moments.h"

namespace hasten {
namespace {

constexpr std::int64_t kChunkSize = std::int64_t{1} << 22;
constexpr std::int64_t kBlock = ops::kMomentBlock;

at::Tensor copy_to_device(at::Device device, const float* numbers, std::int64_t count) {
  return at::from_blob(const_cast<float*>(numbers), {count}, at::kFloat).clone().to(device);
}

// Sets the parameter to parameter * decay + size * update, and rounds once.
void step_parameter(const at::Tensor& parameter, double decay, const at::Tensor& update,
                    double size) {
  const at::Tensor numbers = parameter.to(at::kFloat);
  numbers.mul_(decay).add_(update, size);
  if (!numbers.is_same(parameter)) parameter.copy_(numbers);
}

// Calls body(rows of whole blocks, their scales), and then again for a last block that is shorter.
template <class Body>
void for_block_rows(const at::Tensor& numbers, const at::Tensor& scales, Body body) {
  const std::int64_t count = numbers.numel(), whole = count / kBlock;
  if (whole > 0)
    body(numbers.narrow(0, 0, whole * kBlock).view({whole, kBlock}),
         scales.narrow(0, 0, whole).unsqueeze(1));
  if (count > whole * kBlock)
    body(numbers.narrow(0, whole * kBlock, count - whole * kBlock).unsqueeze(0),
         scales.narrow(0, whole, 1).unsqueeze(1));
}

bool has_codes(const ops::Moments& moment) { return moment.numbers[0].scalar_type() == at::kByte; }

at::Tensor chunk_of(const at::Tensor& x, std::int64_t first, std::int64_t count) {
  return x.view({-1}).narrow(0, first, count);
}

// Returns a gradient in float, multiplied by the factor.
at::Tensor scaled(const at::Tensor& gradient, const GradientScale& scale) {
  const at::Tensor numbers = gradient.to(at::kFloat);
  if (scale.on_device.defined()) return numbers * scale.on_device.to(numbers.device());
  return scale.number == 1 ? numbers : numbers * scale.number;
}

at::Tensor scales_of(const ops::Moments& moment, std::int64_t first, std::int64_t count) {
  return moment.scales[0].narrow(0, first / kBlock, ops::scale_count(count));
}

template <class Body>
void for_each_chunk(std::int64_t count, Body body) {
  for (std::int64_t first = 0; first < count; first += kChunkSize)
    body(first, std::min(kChunkSize, count - first));
}

}  // namespace

const MomentsOnDevice::Map& MomentsOnDevice::map_on(at::Device device, bool has_sign) {
  Map& map = (has_sign ? signed_maps_ : unsigned_maps_)[device];
  if (!map.value.defined()) {
    const ops::Codebook& book = has_sign ? ops::signed_codebook() : ops::unsigned_codebook();
    map = {.value = copy_to_device(device, book.value, 256),
           .next = copy_to_device(device, book.next, 255)};
  }
  return map;
}

// Returns numbers that the step can change: the moment's own if it is in float, else a copy.
at::Tensor MomentsOnDevice::decode(const ops::Moments& moment, std::int64_t first,
                                   std::int64_t count, bool has_sign) {
  const at::Tensor given = chunk_of(moment.numbers[0], first, count);
  if (!has_codes(moment)) return given;
  const at::Tensor numbers =
      map_on(given.device(), has_sign).value.index_select(0, given.to(at::kInt));
  for_block_rows(numbers, scales_of(moment, first, count),
                 [](const at::Tensor& block, const at::Tensor& scale) { block.mul_(scale); });
  return numbers;
}

void MomentsOnDevice::encode(const ops::Moments& moment, std::int64_t first,
                             const at::Tensor& numbers, bool has_sign) {
  if (!has_codes(moment)) return;
  const Map& map = map_on(numbers.device(), has_sign);
  for_block_rows(numbers, scales_of(moment, first, numbers.numel()),
                 [](const at::Tensor& block, const at::Tensor& scale) {
                   scale.copy_(block.abs().amax(1, /*keepdim=*/true));
                   block.div_(scale + scale.eq(0));  // a block of zeros is divided by 1
                 });
  chunk_of(moment.numbers[0], first, numbers.numel())
      .copy_(at::bucketize(numbers, map.next, /*out_int32=*/true, /*right=*/true));
}

void MomentsOnDevice::adamw(const MomentEntry& entry, const ops::Moments& exp_avg,
                            const ops::Moments& exp_avg_sq, std::int64_t step,
                            const ops::AdamWStep& settings, const GradientScale& scale) {
  const auto steps = static_cast<double>(step);
  const double correction1 = 1 - std::pow(settings.beta1, steps),
               correction2 = 1 - std::pow(settings.beta2, steps);
  for_each_chunk(entry.values.numel(), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor parameter = chunk_of(entry.values, first, count);
    const at::Tensor gradient = scaled(chunk_of(entry.gradient, first, count), scale);
    const at::Tensor mean = decode(exp_avg, first, count, true),
                     square = decode(exp_avg_sq, first, count, false);
    mean.mul_(settings.beta1).add_(gradient, 1 - settings.beta1);
    square.mul_(settings.beta2).addcmul_(gradient, gradient, 1 - settings.beta2);
    at::Tensor update = square.sqrt().div_(std::sqrt(correction2)).add_(settings.epsilon);
    at::div_out(update, mean, update);
    step_parameter(parameter, 1 - settings.learning_rate * settings.weight_decay, update,
                   -settings.learning_rate / correction1);
    encode(exp_avg, first, mean, true);
    encode(exp_avg_sq, first, square, false);
  });
}

void MomentsOnDevice::lion(const MomentEntry& entry, const ops::Moments& exp_avg,
                           const ops::LionStep& settings) {
  for_each_chunk(entry.values.numel(), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor parameter = chunk_of(entry.values, first, count);
    const at::Tensor gradient = chunk_of(entry.gradient, first, count).to(at::kFloat);
    const at::Tensor mean = decode(exp_avg, first, count, true);
    const at::Tensor update = mean.mul(settings.beta1).add_(gradient, 1 - settings.beta1).sign_();
    step_parameter(parameter, 1 - settings.learning_rate * settings.weight_decay, update,
                   -settings.learning_rate);
    mean.mul_(settings.beta2).add_(gradient, 1 - settings.beta2);
    encode(exp_avg, first, mean, true);
  });
}

}  // namespace hasten
