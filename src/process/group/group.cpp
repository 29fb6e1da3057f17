#include "hasten/process/group.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/consensus/arrival.h"
#include "process/consensus/comparison.h"
#include "process/fork/fork_safety.h"
#include "process/group/native_group.h"
#include "process/group/store_setup.h"
#include "process/watch/call_log.h"
#include "process/watch/watchdog.h"

namespace hasten {
namespace {

// Gloo's limit in a group with a watchdog. The watchdog alone decides that a collective takes too
// long, because its report names the late rank; Gloo's limit would end the job before that. NCCL
// keeps its limit, because the watchdog does not see work that hangs on a GPU.
constexpr std::chrono::hours kGlooLimitWithWatchdog{24 * 365};

}  // namespace

struct Group::Shared {
  Shared(StoreSetup store_setup, std::int64_t rank, std::int64_t size,
         const GroupOptions& group_options)
      : setup(std::move(store_setup)),
        options(group_options),
        group(native_group(setup, static_cast<int>(rank), static_cast<int>(size), options, calls)) {
  }

  void watch() {
    const RankOptions watched{
        .rank = group->getRank(), .size = group->getSize(), .limit = options.timeout};
    watchdog = std::make_unique<Watchdog>(setup.store, calls, watched);
    group->getBackend(c10::DeviceType::CPU)->setTimeout(kGlooLimitWithWatchdog);
  }

  StoreSetup setup;  // destroyed after the group, which may use the store while it ends
  GroupOptions options;
  std::shared_ptr<CallLog> calls = std::make_shared<CallLog>();
  // Destroyed after the group, whose destructor waits for collectives in progress.
  std::unique_ptr<Watchdog> watchdog;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::int64_t duplicates = 0;
  ScopedForkHazard fork_hazard{ForkHazard::group};
};

namespace {

constexpr std::int64_t kMaxObjectBytes = std::int64_t{1} << 30;

// Returns a contiguous tensor, as bytes if it is boolean, because Gloo does not support booleans.
at::Tensor bool_as_bytes(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().contiguous();
  return whole.scalar_type() == at::kBool ? whole.view(at::kByte) : whole;
}
// Returns the result of bool_as_bytes() as boolean if the original tensor was boolean.
at::Tensor restore_bool(const at::Tensor& result, const at::Tensor& original) {
  return original.scalar_type() == at::kBool ? result.view(at::kBool) : result;
}

// LibTorch 2.15 renames _allgather_base to all_gather_single.
template <class Native>
auto gather_into(Native& group, at::Tensor& all, at::Tensor& own) {
  if constexpr (requires { group.all_gather_single(all, own); }) {
    return group.all_gather_single(all, own);
  } else {
    return group._allgather_base(all, own);
  }
}

at::Tensor number(std::int64_t value) { return at::full({1}, value, at::kLong); }

void check_object(std::int64_t bytes, const char* what) {
  if (bytes <= kMaxObjectBytes) return;
  throw UsageError("process.object-too-large",
                   {.what = what,
                    .got = human_bytes(bytes),
                    .expected = "at most " + human_bytes(kMaxObjectBytes),
                    .hint = "exchange large data as tensors or files"});
}

// Describes what pad_across_processes() leaves unchanged, which must be the same on every rank.
std::string unpadded_text(const at::Tensor& tensor, std::int64_t padded_dim) {
  std::string sizes;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (dim > 0) sizes += ", ";
    sizes += dim == padded_dim ? "any" : str(tensor.size(dim));
  }
  return str(c10::toString(tensor.scalar_type()), " [", sizes, "]");
}

c10d::ReduceOp operation(Reduction reduction) {
  return reduction == Reduction::max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
}

}  // namespace

ProcessState ProcessState::of(const Worker& worker, bool cpu) {
  const DeviceRequest request = {.cpu = cpu, .only_built_in = true};
  const Device& device = choose_device(request);
  return {.process_index = worker.rank,
          .num_processes = worker.world_size,
          .local_process_index = worker.local_rank,
          .device = device.place(worker, CollectiveChoice::automatic).device};
}

Group Group::form(const Worker& worker, const GroupOptions& options) {
  Group group;
  if (worker.world_size == 1) return group;
  group.rank_ = worker.rank;
  group.size_ = worker.world_size;
  StoreSetup setup =
      set_up_store(worker, config::whole_environment(), options.timeout, options.encrypt);
  wait_for_all_ranks(*setup.store, worker.rank, worker.world_size, options.timeout);
  group.shared_ =
      std::make_shared<Shared>(std::move(setup), worker.rank, worker.world_size, options);
  if (options.watchdog) group.shared_->watch();
  return group;
}

// The duplicate has no watchdog, because a thread other than the training thread may wait long for
// something that is not needed yet.
Group Group::duplicate() const {
  if (size_ == 1) return *this;
  StoreSetup setup = shared_->setup;
  setup.store =
      c10::make_intrusive<c10d::PrefixStore>(str("duplicate ", ++shared_->duplicates), setup.store);
  GroupOptions options = shared_->options;
  options.shared_memory = false;  // for sends and receives, which do not use it
  // With two threads the order of compiled collectives may differ between ranks, so Gloo replaces
  // them.
  if (device_of(options.device).traits().compiles_collectives)
    options.backend = ProcessGroupBackend::gloo;
  Group group = *this;
  group.shared_ = std::make_shared<Shared>(std::move(setup), rank_, size_, options);
  return group;
}

bool Group::compares_calls() const { return shared_ && shared_->options.debug; }

c10d::ProcessGroup* Group::native() const { return shared_ ? shared_->group.get() : nullptr; }

at::Tensor Group::gather(const at::Tensor& tensor) const {
  const at::Tensor rows = tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
  if (size_ == 1) return rows;
  at::Tensor sent = bool_as_bytes(rows);
  auto sizes = sent.sizes().vec();
  sizes[0] *= size_;
  at::Tensor all = at::empty(sizes, sent.options());
  gather_into(*native(), all, sent)->wait();
  return restore_bool(all, rows);
}

at::Tensor Group::reduce(const at::Tensor& tensor, Reduction reduction, double scale) const {
  const auto scaled = [&](const at::Tensor& whole) { return scale == 1.0 ? whole : whole * scale; };
  if (size_ == 1 || reduction == Reduction::none) return scaled(tensor);
  std::vector<at::Tensor> in_out = {tensor.detach().clone(at::MemoryFormat::Contiguous)};
  c10d::AllreduceOptions options;
  options.reduceOp = operation(reduction);
  native()->allreduce(in_out, options)->wait();
  return scaled(reduction == Reduction::mean ? in_out[0] / static_cast<double>(size_) : in_out[0]);
}

at::Tensor Group::broadcast(const at::Tensor& tensor, std::int64_t from) const {
  TORCH_CHECK(from >= 0 && from < size_, "broadcast: got rank ", from, ", expected 0 to ",
              size_ - 1);
  if (size_ == 1) return tensor;
  std::vector<at::Tensor> in_out = {bool_as_bytes(tensor)};
  // The operations that produce the tensor are part of a compiled collective, which must be the
  // same program on all ranks, so all ranks clone.
  if (device_of(in_out[0].device()).traits().compiles_collectives) {
    in_out[0] = in_out[0].clone();
  } else if (rank_ != from) {
    in_out[0] = at::empty_like(in_out[0]);
  }
  c10d::BroadcastOptions options;
  options.rootRank = from;
  native()->broadcast(in_out, options)->wait();
  return restore_bool(in_out[0], tensor);
}

at::Tensor Group::pad_across_processes(const at::Tensor& tensor, std::int64_t dim, double pad_index,
                                       bool pad_first) const {
  if (size_ == 1) return tensor;
  if (dim < 0 && dim >= -tensor.dim()) dim += tensor.dim();
  const CallScope scope(*this, "pad_across_processes");
  if (compares_calls())
    check_same_text(unpadded_text(tensor, dim), *this,
                    {.code = "process.calls-differ",
                     .what = "the tensor passed to pad_across_processes()",
                     .hint = "only the padded dimension may differ between ranks"});
  if (dim >= tensor.dim() || dim < 0) return tensor;
  const at::Tensor own = at::scalar_tensor(tensor.size(dim), at::kLong);
  const auto longest = gather(own).max().item<std::int64_t>();
  if (longest == tensor.size(dim)) return tensor;
  auto sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = longest;
  at::Tensor padded = at::full(sizes, pad_index, tensor.options());
  const std::int64_t at = pad_first ? longest - tensor.size(dim) : 0;
  padded.narrow(dim, at, tensor.size(dim)).copy_(tensor);
  return padded;
}

std::vector<std::string> Group::gather_object(const std::string& bytes) const {
  if (size_ == 1) return {bytes};
  const CallScope scope(*this, "gather_object");
  const at::Tensor sizes = gather(number(static_cast<std::int64_t>(bytes.size())));
  const auto longest = sizes.max().item<std::int64_t>();
  check_object(longest * size_, "the objects of gather_object, each padded to the longest");
  at::Tensor padded = at::zeros({1, longest}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), padded.data_ptr<std::uint8_t>());
  const at::Tensor all = gather(padded);
  std::vector<std::string> objects;
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    const at::Tensor row = all[rank];
    objects.emplace_back(reinterpret_cast<const char*>(row.data_ptr<std::uint8_t>()),
                         static_cast<std::size_t>(sizes[rank].item<std::int64_t>()));
  }
  return objects;
}

std::string Group::broadcast_object(const std::string& bytes, std::int64_t from) const {
  if (size_ == 1) return bytes;
  const CallScope scope(*this, "broadcast_object");
  const auto size =
      broadcast(number(static_cast<std::int64_t>(bytes.size())), from).item<std::int64_t>();
  check_object(size, "the object of broadcast_object");
  at::Tensor buffer = at::zeros({size}, at::kByte);
  if (rank_ == from) std::copy(bytes.begin(), bytes.end(), buffer.data_ptr<std::uint8_t>());
  const at::Tensor all = broadcast(buffer, from);
  return {reinterpret_cast<const char*>(all.data_ptr<std::uint8_t>()),
          static_cast<std::size_t>(size)};
}

void Group::barrier() const {
  if (size_ > 1) native()->barrier()->wait();
}

void Group::set_step(std::int64_t done) const {
  if (shared_) shared_->calls->set_step(done);
}

CallScope::CallScope(const Group& group, const char* purpose, std::int64_t index)
    : shared_(group.shared_) {
  if (!shared_) return;
  const auto before = shared_->calls->set_purpose({.text = purpose, .index = index});
  purpose_before_ = before.text;
  index_before_ = before.index;
}

CallScope::~CallScope() {
  if (shared_) shared_->calls->set_purpose({.text = purpose_before_, .index = index_before_});
}

MainProcessFirst::MainProcessFirst(const ProcessState& process, const Group& group,
                                   bool of_each_machine)
    : group_(group),
      goes_first_(of_each_machine ? process.is_local_main_process() : process.is_main_process()),
      uncaught_exceptions_(std::uncaught_exceptions()) {
  if (!goes_first_) group_.barrier();
}

MainProcessFirst::~MainProcessFirst() noexcept(false) {
  if (!goes_first_) return;
  const bool unwinds = std::uncaught_exceptions() > uncaught_exceptions_;
  try {
    group_.barrier();
  } catch (...) {
    if (!unwinds) throw;  // the exception in flight is more informative
  }
}

}  // namespace hasten
