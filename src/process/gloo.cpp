#include "process/gloo.h"

#include <cstdlib>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "process/shared_collectives.h"

#ifndef USE_C10D_GLOO
#error "c10d's Gloo header is empty without USE_C10D_GLOO"
#endif

namespace hasten {
namespace {

using c10d::ProcessGroupGloo;

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// In one of Gloo's threads; what it needs lives until then.
class SharedWork : public ProcessGroupGloo::AsyncWork {
 public:
  struct What {
    c10d::OpType type;
    const char* title;
    at::Tensor in, out;
    std::function<void(SharedCollectives&)> call;
  };
  SharedWork(std::shared_ptr<gloo::Context> context, What what, std::uint64_t number,
             std::chrono::milliseconds timeout, std::shared_ptr<SharedCollectives> shared)
      : AsyncWork(std::move(context), {{what.out}}, what.type, number, timeout, what.title,
                  Tensors{what.in}),
        what_(std::move(what)),
        shared_(std::move(shared)),
        place_(shared_->line_up()) {}

  void run() override {
    shared_->run(place_, [&] { what_.call(*shared_); });
  }
  const Tensors getInputTensors() override { return {what_.in}; }
  const Tensors getOutputTensors() override { return {what_.out}; }

 private:
  What what_;
  std::shared_ptr<SharedCollectives> shared_;
  std::int64_t place_;
};

// Of a sum: what each rank's tensor is multiplied with before. None for other operations.
std::optional<double> factor_of(const c10d::ReduceOp& operation) {
  if (operation == c10d::ReduceOp::SUM) return 1.0;
  if (operation != c10d::ReduceOp::PREMUL_SUM) return std::nullopt;
  const auto& with =
      dynamic_cast<const c10d::NCCLPreMulSumSupplement&>(*operation.supplement_.get());
  return with.tensor_factor.defined() ? with.tensor_factor.item<double>() : with.double_factor;
}

class Gloo : public ProcessGroupGloo {
 public:
  Gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
       const c10::intrusive_ptr<Options>& options, std::shared_ptr<SharedCollectives> shared)
      : ProcessGroupGloo(store, rank, size, options), shared_(std::move(shared)) {}

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const auto factor = factor_of(options.reduceOp);
    if (!factor) return ProcessGroupGloo::allreduce(tensors, options);
    const bool adds = tensors.size() == 1 && SharedCollectives::adds(tensors[0]) &&
                      (*factor == 1.0 || tensors[0].is_floating_point());
    if (!shared_ || !adds) return sum_by_messages(tensors, options, *factor);
    return shared({.type = c10d::OpType::ALLREDUCE,
                   .title = "hasten:all_reduce",
                   .in = tensors[0],
                   .out = tensors[0],
                   .call = [tensor = tensors[0], factor = *factor](SharedCollectives& memory) {
                     memory.sum(tensor, factor);
                   }});
  }

  WorkPointer _allgather_base(at::Tensor& all, at::Tensor& own,
                              const c10d::AllgatherOptions& options) override {
    if (!shared_ || !SharedCollectives::takes(own))
      return ProcessGroupGloo::_allgather_base(all, own, options);
    TORCH_CHECK(all.scalar_type() == own.scalar_type() && all.numel() == own.numel() * getSize(),
                "all_gather: got ", all.sizes(), " for ", getSize(), " times ", own.sizes());
    return shared({.type = c10d::OpType::_ALLGATHER_BASE,
                   .title = "hasten:all_gather",
                   .in = own,
                   .out = all,
                   .call = [own, all](SharedCollectives& memory) { memory.gather(own, all); }});
  }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    if (!shared_ || tensors.size() != 1 || !SharedCollectives::takes(tensors[0]))
      return ProcessGroupGloo::broadcast(tensors, options);
    return shared({.type = c10d::OpType::BROADCAST,
                   .title = "hasten:broadcast",
                   .in = tensors[0],
                   .out = tensors[0],
                   .call = [tensor = tensors[0], from = options.rootRank](
                               SharedCollectives& memory) { memory.broadcast(tensor, from); }});
  }

 private:
  // Gloo itself knows no factor.
  WorkPointer sum_by_messages(Tensors& tensors, c10d::AllreduceOptions options, double factor) {
    if (factor != 1.0) {
      for (at::Tensor& tensor : tensors) tensor.mul_(factor);
    }
    options.reduceOp = c10d::ReduceOp::SUM;
    return ProcessGroupGloo::allreduce(tensors, options);
  }

  WorkPointer shared(SharedWork::What what) {
    auto work = c10::make_intrusive<SharedWork>(contexts_[0], std::move(what), ++seq_,
                                                options_->timeout, shared_);
    enqueue(work);
    return work;
  }

  std::shared_ptr<SharedCollectives> shared_;
};

auto device_at(const std::string& address) {
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    return ProcessGroupGloo::createDeviceForInterface(interface);
  return ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const RankOptions& rank,
                                               const GlooSettings& settings) {
  const auto options = ProcessGroupGloo::Options::create(settings.timeout);
  options->devices.push_back(device_at(settings.address));
  const int own = static_cast<int>(rank.rank), size = static_cast<int>(rank.size);
  const auto group = c10::make_intrusive<Gloo>(
      store, own, size, options,
      settings.shared_memory ? SharedCollectives::over(*store, rank) : nullptr);
  group->setTimeout(rank.limit);  // here, as making it waits for the other ranks too
  // A rank that ended now would cut off those that are not connected to each other yet.
  group->barrier()->wait();
  return group;
}

}  // namespace hasten
