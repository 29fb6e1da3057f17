#include "process/backend/gloo.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "base/environment_variable.h"
#include "hasten/base/error.h"
#include "process/backend/gloo_transport.h"
#include "process/consensus/store_exchange.h"
#include "process/shared/shared_collectives.h"
#include "rendezvous/secure_context.h"
#include "rendezvous/sockets.h"

#ifndef USE_C10D_GLOO
#error "c10d's Gloo header is empty without USE_C10D_GLOO"
#endif

namespace hasten {
namespace {

using c10d::ProcessGroupGloo;

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// Ignores reports of memory.
struct NullMemoryReporter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return false; }
};

// A collective in shared memory that one of Gloo's threads runs. It keeps alive what it needs.
class SharedWork : public ProcessGroupGloo::AsyncWork {
 public:
  struct Request {
    c10d::OpType type;
    const char* title;
    at::Tensor in, out;
    std::chrono::milliseconds timeout;  // c10d::kUnsetTimeout means the group's timeout
    std::function<void(SharedCollectives&)> call;
  };
  SharedWork(std::shared_ptr<gloo::Context> context, Request request, std::uint64_t number,
             std::shared_ptr<SharedCollectives> collectives)
      : AsyncWork(std::move(context), {{request.out}}, request.type, number, request.timeout,
                  request.title, Tensors{request.in}),
        request_(std::move(request)),
        collectives_(std::move(collectives)),
        ticket_(collectives_->reserve_ticket()) {}

  void run() override {
    // This thread has the calling thread's state. The recorders of the calling thread must not see
    // operators and memory of two threads at once.
    const at::RecordFunctionGuard no_callbacks(/*is_enabled=*/false);
    const c10::DebugInfoGuard no_reports(c10::DebugInfoKind::PROFILER_STATE,
                                         std::make_shared<NullMemoryReporter>());
    collectives_->run(ticket_, timeout_, [&] { request_.call(*collectives_); });
  }
  const Tensors getInputTensors() override { return {request_.in}; }
  const Tensors getOutputTensors() override { return {request_.out}; }

 private:
  Request request_;
  std::shared_ptr<SharedCollectives> collectives_;
  std::int64_t ticket_;
};

// Returns the factor of each rank's tensor in a sum, or nothing if the operation is not a sum.
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
       const c10::intrusive_ptr<Options>& options, std::shared_ptr<SharedCollectives> collectives)
      : ProcessGroupGloo(store, rank, size, options), collectives_(std::move(collectives)) {}

  // hasten's exchange of gradients allocates its buckets here, and c10d's reducer does if
  // DDP_DISABLE_COMM_MEM is 0.
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return collectives_ != nullptr; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    TORCH_CHECK(collectives_, "allocateTensor: these ranks share no memory");
    return collectives_->empty(size, options);
  }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const auto factor = factor_of(options.reduceOp);
    if (!factor) return ProcessGroupGloo::allreduce(tensors, options);
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(options.reduceOp != c10d::ReduceOp::PREMUL_SUM || tensor.is_floating_point(),
                  "all_reduce with PREMUL_SUM: got ", tensor.scalar_type(),
                  ", expected a floating-point type");
    }
    if (!can_use_shared_memory(tensors)) return sum_by_messages(tensors, options, *factor);
    return enqueue_shared(
        {.type = c10d::OpType::ALLREDUCE,
         .title = "hasten:all_reduce",
         .in = tensors[0],
         .out = tensors[0],
         .timeout = options.timeout,
         .call = [tensor = tensors[0], factor = *factor](SharedCollectives& collectives) {
           collectives.sum(tensor, factor);
         }});
  }

  WorkPointer _allgather_base(at::Tensor& all, at::Tensor& own,
                              const c10d::AllgatherOptions& options) override {
    if (!can_use_shared_memory({own, all}, 2))
      return ProcessGroupGloo::_allgather_base(all, own, options);
    TORCH_CHECK(all.scalar_type() == own.scalar_type() && all.numel() == own.numel() * getSize(),
                "all_gather: got an output of ", all.sizes(), ", expected ", getSize(), " times ",
                own.sizes());
    return enqueue_shared(
        {.type = c10d::OpType::_ALLGATHER_BASE,
         .title = "hasten:all_gather",
         .in = own,
         .out = all,
         .timeout = options.timeout,
         .call = [own, all](SharedCollectives& collectives) { collectives.gather(own, all); }});
  }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    if (!can_use_shared_memory(tensors)) return ProcessGroupGloo::broadcast(tensors, options);
    return enqueue_shared(
        {.type = c10d::OpType::BROADCAST,
         .title = "hasten:broadcast",
         .in = tensors[0],
         .out = tensors[0],
         .timeout = options.timeout,
         .call = [tensor = tensors[0], from = options.rootRank](SharedCollectives& collectives) {
           collectives.broadcast(tensor, from);
         }});
  }

 private:
  bool can_use_shared_memory(const Tensors& tensors, std::size_t expected = 1) const {
    return collectives_ && tensors.size() == expected &&
           std::all_of(tensors.begin(), tensors.end(), SharedCollectives::supports);
  }

  // Gloo itself has no sum with a factor.
  WorkPointer sum_by_messages(Tensors& tensors, c10d::AllreduceOptions options, double factor) {
    if (factor != 1.0) {
      for (at::Tensor& tensor : tensors) tensor.mul_(factor);
    }
    options.reduceOp = c10d::ReduceOp::SUM;
    return ProcessGroupGloo::allreduce(tensors, options);
  }

  WorkPointer enqueue_shared(SharedWork::Request request) {
    if (request.timeout == c10d::kUnsetTimeout) request.timeout = options_->timeout;
    auto work =
        c10::make_intrusive<SharedWork>(contexts_[0], std::move(request), ++seq_, collectives_);
    enqueue(work);
    return work;
  }

  std::shared_ptr<SharedCollectives> collectives_;
};

std::string own_address(const std::string& address) {
  const std::string interface = environment_variable("GLOO_SOCKET_IFNAME");
  if (interface.empty()) return address;
  const std::string found = rendezvous::address_of_interface(interface);
  if (!found.empty()) return found;
  throw ConfigError("process.interface", {.what = "GLOO_SOCKET_IFNAME",
                                          .got = interface,
                                          .expected = "an interface of this machine that is up "
                                                      "and has an address"});
}

// Returns the job's token. Without one, rank 0 generates a token for the group, which is as safe as
// the store that distributes it.
std::string secret_of(c10d::Store& store, const RankOptions& rank, const std::string& token) {
  if (!token.empty()) return token;
  const std::string key = "secret";
  if (rank.rank == 0) store.set(key, rendezvous::new_token());
  return text_at(store, key);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const RankOptions& rank,
                                               const GlooSettings& settings) {
  const auto options = ProcessGroupGloo::Options::create(settings.timeout);
  options->devices.push_back(gloo_device({.rank = rank.rank,
                                          .size = rank.size,
                                          .secret = secret_of(*store, rank, settings.token),
                                          .address = own_address(settings.address),
                                          .encrypt = settings.encrypt},
                                         *store, settings.timeout));
  const int own = static_cast<int>(rank.rank), size = static_cast<int>(rank.size);
  auto collectives = settings.shared_memory
                         ? SharedCollectives::create(*store, rank, settings.device_type)
                         : nullptr;
  const auto group = c10::make_intrusive<Gloo>(store, own, size, options, std::move(collectives));
  group->setTimeout(rank.limit);  // set after the constructor has waited for the other ranks
  // If a rank ended now, ranks that are not connected to each other yet would fail.
  group->barrier()->wait();
  return group;
}

}  // namespace hasten
