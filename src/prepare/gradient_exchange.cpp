#include "prepare/gradient_exchange.h"

#include <torch/torch.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "prepare/power_sgd.h"

namespace hasten {
namespace {

// Moves buckets into memory that the backend allocates. With Gloo the ranks of a machine share this
// memory and add up in place. c10d's reducer does this itself if DDP_DISABLE_COMM_MEM is 0, but not
// by default in LibTorch 2.11.
class BucketMover {
 public:
  explicit BucketMover(const NativeGroup& group) : backend_(group->getDefaultBackend()) {}

  // Replaces the storage of the bucket and of every view of it. It waits until it sees a bucket a
  // second time, because the reducer replaces the buckets of the first pass.
  void move(const c10d::GradBucket& bucket) {
    const at::Tensor& buffer = bucket.getBuffer();
    if (!buffer.is_cpu() || !backend_->supportsTensorAlloc(buffer.device().index())) return;
    const c10::Storage& storage = buffer.storage();
    SeenBucket& seen = seen_[bucket.getIndex()];
    if (seen.storage.lock().get() != storage.unsafeGetStorageImpl()) {
      seen = {.storage = storage.getWeakStorageImpl()};
    } else if (!std::exchange(seen.moved, true)) {
      const at::Tensor copy = backend_->allocateTensor(buffer.numel(), buffer.options());
      copy.copy_(buffer);
      storage.set_data_ptr(copy.storage().set_data_ptr({nullptr, at::kCPU}));
    }
  }

 private:
  struct SeenBucket {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage{
        c10::intrusive_ptr<c10::StorageImpl>()};  // empty
    bool moved = false;
  };

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::unordered_map<std::size_t, SeenBucket> seen_;  // key: bucket index
};

// Multiplies each rank's tensor by the factor before the sum. The name of c10d's function for this
// depends on the version of LibTorch.
c10d::ReduceOp sum_of_products(double factor) {
  c10d::ReduceOp operation;
  operation.op_ = c10d::ReduceOp::PREMUL_SUM;
  operation.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return operation;
}

class AllReduce : public GradientExchange {
 public:
  explicit AllReduce(NativeGroup group) : group_(std::move(group)), mover_(group_) {}

  ReductionFuture sum(c10d::GradBucket& bucket, double factor) override {
    mover_.move(bucket);
    std::vector<at::Tensor> tensors = {bucket.getBuffer()};
    c10d::AllreduceOptions options;
    // hasten's Gloo multiplies while it reads.
    if (tensors[0].is_cpu()) {
      options.reduceOp = sum_of_products(factor);
    } else if (factor != 1.0) {
      tensors[0].mul_(factor);
    }
    return group_->allreduce(tensors, options)->getFuture();
  }

 private:
  NativeGroup group_;
  BucketMover mover_;
};

// Converts buckets to a different type, and passes them to another exchange.
class CastingExchange : public GradientExchange {
 public:
  CastingExchange(at::ScalarType type, std::shared_ptr<GradientExchange> inner)
      : type_(type), inner_(std::move(inner)) {}

  ReductionFuture sum(c10d::GradBucket& bucket, double factor) override {
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

}  // namespace

bool is_power_sgd(CommunicationHook hook) {
  return hook == CommunicationHook::power_sgd || hook == CommunicationHook::batched_power_sgd;
}

std::optional<at::ScalarType> wire_type(const DistributedDataParallelKwargs& options) {
  if (options.comm_hook == CommunicationHook::fp16 ||
      options.comm_wrapper == CommunicationWrapper::fp16)
    return at::kHalf;
  if (options.comm_hook == CommunicationHook::bf16 ||
      options.comm_wrapper == CommunicationWrapper::bf16)
    return at::kBFloat16;
  return std::nullopt;
}

std::shared_ptr<GradientExchange> make_gradient_exchange(
    const DistributedDataParallelKwargs& options, const NativeGroup& group) {
  std::shared_ptr<GradientExchange> exchange = std::make_shared<AllReduce>(group);
  if (is_power_sgd(options.comm_hook)) {
    exchange =
        power_sgd(options.comm_state_option,
                  options.comm_hook == CommunicationHook::batched_power_sgd, group, exchange);
  }
  if (const auto type = wire_type(options))
    exchange = std::make_shared<CastingExchange>(*type, std::move(exchange));
  return exchange;
}

}  // namespace hasten
