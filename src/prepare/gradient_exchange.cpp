#include "prepare/gradient_exchange.h"

#include <torch/torch.h>

#include <utility>
#include <vector>

#include "prepare/power_sgd.h"

namespace hasten {
namespace {

class AllReduce : public GradientExchange {
 public:
  explicit AllReduce(NativeGroup group) : group_(std::move(group)) {}

  Exchanged sum(c10d::GradBucket& bucket, double factor) override {
    std::vector<at::Tensor> both = {bucket.getBuffer()};
    c10d::AllreduceOptions options;
    if (both[0].is_cpu()) {  // our Gloo multiplies where it reads
      options.reduceOp = c10d::makeNCCLPreMulSum(factor);
    } else if (factor != 1.0) {
      both[0].mul_(factor);
    }
    return group_->allreduce(both, options)->getFuture();
  }

 private:
  NativeGroup group_;
};

// Another exchange, in another type.
class InType : public GradientExchange {
 public:
  InType(at::ScalarType type, std::shared_ptr<GradientExchange> inner)
      : type_(type), inner_(std::move(inner)) {}

  Exchanged sum(c10d::GradBucket& bucket, double factor) override {
    const at::Tensor buffer = bucket.getBuffer();
    if (factor != 1.0) buffer.mul_(factor);
    at::Tensor converted = buffer.to(type_);
    bucket.setBuffer(converted);
    return inner_->sum(bucket, 1.0)
        ->then(
            [buffer](c10::ivalue::Future& done) -> c10::IValue {
              buffer.copy_(c10d::detail::parseCppCommHookResult(done.value()));
              return buffer;
            },
            c10::TensorType::get());
  }

 private:
  at::ScalarType type_;
  std::shared_ptr<GradientExchange> inner_;
};

bool is_power_sgd(CommunicationHook hook) {
  return hook == CommunicationHook::power_sgd || hook == CommunicationHook::batched_power_sgd;
}

}  // namespace

std::optional<at::ScalarType> wire_type(const DistributedDataParallelKwargs& options) {
  if (options.comm_hook == CommunicationHook::fp16 ||
      options.comm_wrapper == CommunicationWrapper::fp16)
    return at::kHalf;
  if (options.comm_hook == CommunicationHook::bf16 ||
      options.comm_wrapper == CommunicationWrapper::bf16)
    return at::kBFloat16;
  return std::nullopt;
}

std::shared_ptr<GradientExchange> exchange_of(const DistributedDataParallelKwargs& options,
                                              const NativeGroup& group) {
  std::shared_ptr<GradientExchange> exchange = std::make_shared<AllReduce>(group);
  if (is_power_sgd(options.comm_hook)) {
    exchange =
        power_sgd(options.comm_state_option,
                  options.comm_hook == CommunicationHook::batched_power_sgd, group, exchange);
  }
  if (const auto type = wire_type(options))
    exchange = std::make_shared<InType>(*type, std::move(exchange));
  return exchange;
}

}  // namespace hasten
