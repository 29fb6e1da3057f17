#include "process/shared/shared_collectives.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// The bytes of half a slot. The halves are used in turn, so that a rank can write its next chunk
// while another still reads the current one.
constexpr std::int64_t kHalfSlotBytes = std::int64_t{1} << 19;
// Up to this size every rank adds up the whole chunk, so ranks wait for each other only once.
constexpr std::int64_t kReplicatedSumBytes = std::int64_t{1} << 14;
static_assert(kReplicatedSumBytes <= kHalfSlotBytes);

constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                               at::kByte,  at::kChar,   at::kInt,  at::kLong};

// The data that a rank adds to a sum, and the factor by which it is multiplied before.
struct Term {
  const std::byte* data;
  double factor = 1.0;
};

constexpr std::int64_t kBlock = 2048;  // numbers that are summed at once

// Writes the sum of the terms' numbers from `at` on to `sums`. It adds the sums of the first and
// the second half of the terms. The first half is the larger one if the number of terms is odd. If
// that number is a power of two, this adds neighbours first. `scratch` has a block for each further
// level of the tree. Products are rounded to T, as they are when a rank writes them for another one
// to read.
template <class T, class Sum>
void add_block(std::span<const Term> terms, std::int64_t at, std::int64_t count, Sum* sums,
               Sum* scratch, bool adds = false) {
  if (terms.size() == 1) {
    const T* const term = reinterpret_cast<const T*>(terms[0].data) + at;
    const Sum factor = static_cast<Sum>(terms[0].factor);
    const auto value = [&](std::int64_t i) {
      return static_cast<Sum>(static_cast<T>(static_cast<Sum>(term[i]) * factor));
    };
    if (adds) {
      for (std::int64_t i = 0; i < count; ++i) sums[i] += value(i);
    } else {
      for (std::int64_t i = 0; i < count; ++i) sums[i] = value(i);
    }
    return;
  }
  if (adds) {
    add_block<T>(terms, at, count, scratch, scratch + kBlock);
    for (std::int64_t i = 0; i < count; ++i) sums[i] += scratch[i];
    return;
  }
  const std::size_t half = (terms.size() + 1) / 2;
  add_block<T>(terms.first(half), at, count, sums, scratch);
  add_block<T>(terms.subspan(half), at, count, sums, scratch, /*adds=*/true);
}

// Writes the sum of all terms to each of `outs`, which may be the data of terms.
template <class T>
void add_up(const std::vector<std::byte*>& outs, const std::vector<Term>& terms,
            std::int64_t count) {
  using Sum = at::opmath_type<T>;
  std::array<Sum, kBlock> sums;
  // With fewer than four terms, no second half needs a sum of its own.
  const std::size_t levels = terms.size() < 4 ? 0 : std::bit_width(terms.size());
  std::vector<Sum> scratch(levels * static_cast<std::size_t>(kBlock));
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t here = std::min(kBlock, count - at);
    add_block<T>(std::span<const Term>(terms), at, here, sums.data(), scratch.data());
    T* const first = reinterpret_cast<T*>(outs[0]) + at;
    for (std::int64_t i = 0; i < here; ++i) first[i] = static_cast<T>(sums[i]);
    for (std::size_t o = 1; o < outs.size(); ++o)
      std::memcpy(reinterpret_cast<T*>(outs[o]) + at, first,
                  static_cast<std::size_t>(here) * sizeof(T));
  }
}

template <class T>
void scale(T* out, const T* in, at::opmath_type<T> factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(static_cast<at::opmath_type<T>>(in[i]) * factor);
}

void add_up(at::ScalarType type, const std::vector<std::byte*>& outs,
            const std::vector<Term>& terms, std::int64_t count) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "hasten::SharedCollectives",
                             [&] { add_up<scalar_t>(outs, terms, count); });
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Copies `bytes` bytes of elements and multiplies them by the factor.
void copy_scaled(at::ScalarType type, std::byte* to, const std::byte* from, double factor,
                 std::int64_t bytes) {
  if (factor == 1.0) return copy_bytes(to, from, bytes);
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "hasten::SharedCollectives", [&] {
    scale(reinterpret_cast<scalar_t*>(to), reinterpret_cast<const scalar_t*>(from),
          static_cast<at::opmath_type<scalar_t>>(factor),
          bytes / static_cast<std::int64_t>(sizeof(scalar_t)));
  });
}

// Returns the byte at which the share of a rank begins. If `rank` equals `ranks`, it is the end of
// the last share.
std::int64_t begin_of_share(std::int64_t rank, std::int64_t ranks, std::int64_t elements,
                            std::int64_t element_bytes) {
  return elements * rank / ranks * element_bytes;
}

// Returns the tensor, or a copy if the tensor is not contiguous or has a lazy negative sign.
at::Tensor materialize(const at::Tensor& tensor) { return tensor.contiguous().resolve_neg(); }

std::byte* bytes_in(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

}  // namespace

// A part of a tensor that fits into half a slot. `at` is the number of its first element.
struct SharedCollectives::Chunk {
  std::byte* data;
  std::int64_t at, count, element_bytes;
  const CallDescription& description;

  std::int64_t bytes() const { return count * element_bytes; }
};

// Describes the call of a rank to the other ranks, in its own cache lines.
struct alignas(128) SharedCollectives::CallDescription {
  enum class Call { sum, gather, broadcast };
  Call call;
  at::ScalarType type;
  std::int64_t elements;
  std::int64_t root = 0;
  // The location at which other ranks can read this rank's tensor, or none. It may differ between
  // ranks.
  SharedHeap::Location location;
  double factor = 1.0;  // may differ between ranks

  bool is_same_call(const CallDescription& other) const {
    return call == other.call && type == other.type && elements == other.elements &&
           root == other.root;
  }
  std::string text() const {
    constexpr std::array kNames = {"all_reduce", "all_gather", "broadcast"};
    return str(kNames[static_cast<std::size_t>(call)], " of ", elements, " ", c10::toString(type),
               call == Call::broadcast ? str(" from rank ", root) : "");
  }
};

std::shared_ptr<SharedCollectives> SharedCollectives::create(c10d::Store& store,
                                                             const RankOptions& options,
                                                             const std::string& required_match) {
  const auto ranks = static_cast<std::size_t>(options.size);
  const std::size_t bytes =
      StepBarrier::bytes_for(options.size) +
      2 * ranks * (sizeof(CallDescription) + static_cast<std::size_t>(kHalfSlotBytes));
  auto memory = shared_memory(store, "collectives", options, bytes, required_match);
  if (!memory) return nullptr;
  return std::shared_ptr<SharedCollectives>(new SharedCollectives(std::move(memory), options));
}

SharedCollectives::SharedCollectives(std::shared_ptr<const SharedMemory> memory,
                                     const RankOptions& options)
    : memory_(std::move(memory)),
      heap_(std::make_shared<SharedHeap>(memory_, options)),
      rank_(options.rank),
      ranks_(options.size),
      barrier_(memory_->data(), "a collective in shared memory", rank_, ranks_),
      descriptions_(
          reinterpret_cast<CallDescription*>(memory_->data() + StepBarrier::bytes_for(ranks_))),
      slots_(reinterpret_cast<std::byte*>(descriptions_ + 2 * ranks_)) {}

bool SharedCollectives::supports(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
         std::find(kTypes.begin(), kTypes.end(), tensor.scalar_type()) != kTypes.end();
}

void SharedCollectives::run(std::int64_t ticket, std::chrono::milliseconds limit,
                            c10::function_ref<void()> call) {
  std::unique_lock lock(mutex_);
  call_ended_.wait(lock, [&] { return running_ticket_ == ticket; });
  std::exception_ptr failure = failure_;
  lock.unlock();  // no other call runs now
  try {
    const torch::NoGradGuard no_grad;
    barrier_.set_limit(limit);
    if (!failure) call();
  } catch (...) {
    failure = std::current_exception();
    barrier_.leave();
  }
  lock.lock();
  failure_ = failure;
  ++running_ticket_;
  call_ended_.notify_all();
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

void SharedCollectives::for_each_chunk(const CallDescription& description, const at::Tensor& tensor,
                                       c10::function_ref<void(const Chunk&)> call) {
  const std::int64_t element_bytes = tensor.element_size(),
                     at_once = kHalfSlotBytes / element_bytes;
  std::int64_t at = 0;
  do {  // runs once for an empty tensor too: other ranks may have elements
    const Chunk chunk{.data = bytes_in(tensor) + at * element_bytes,
                      .at = at,
                      .count = std::min(at_once, tensor.numel() - at),
                      .element_bytes = element_bytes,
                      .description = description};
    ++chunk_;
    call(chunk);
    at += chunk.count;
  } while (at < tensor.numel());
}

void SharedCollectives::sum(const at::Tensor& tensor, double factor) {
  const at::Tensor all = materialize(tensor);
  const CallDescription description{.call = CallDescription::Call::sum,
                                    .type = all.scalar_type(),
                                    .elements = all.numel(),
                                    .location = heap_->find_location(all),
                                    .factor = factor};
  if (static_cast<std::int64_t>(all.nbytes()) > kHalfSlotBytes && sum_in_place(description, all))
    return;
  for_each_chunk(description, all, [&](const Chunk& chunk) {
    if (chunk.bytes() <= kReplicatedSumBytes) {
      sum_replicated(chunk, factor);
    } else {
      sum_in_shares(chunk, factor);
    }
  });
  if (!all.is_same(tensor)) tensor.copy_(all);
}

bool SharedCollectives::sum_in_place(const CallDescription& own, const at::Tensor& tensor) {
  ++chunk_;
  synchronize_calls(own);
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    if (description(rank).location.is_none()) return false;
  }
  std::vector<std::byte*> data;
  std::vector<Term> terms;
  const auto begin = [&](std::int64_t rank) {
    return begin_of_share(rank, ranks_, own.elements, tensor.element_size());
  };
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    const CallDescription& given = description(rank);
    std::byte* const whole = rank == rank_ ? bytes_in(tensor) : heap_->at(rank, given.location);
    data.push_back(whole + begin(rank_));
    terms.push_back({.data = data.back(), .factor = given.factor});
  }
  add_up(own.type, data, terms, (begin(rank_ + 1) - begin(rank_)) / tensor.element_size());
  barrier_.reach(++step_);
  barrier_.await_all(step_);
  return true;
}

void SharedCollectives::sum_replicated(const Chunk& chunk, double factor) {
  copy_scaled(chunk.description.type, slot(rank_), chunk.data, factor, chunk.bytes());
  synchronize_calls(chunk.description);
  std::vector<Term> terms;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) terms.push_back({.data = slot(rank)});
  add_up(chunk.description.type, {chunk.data}, terms, chunk.count);
}

void SharedCollectives::sum_in_shares(const Chunk& chunk, double factor) {
  const std::int64_t own = rank_;
  const auto begin = [&](std::int64_t rank) {
    return begin_of_share(rank, ranks_, chunk.count, chunk.element_bytes);
  };
  const auto give = [&](std::int64_t from, std::int64_t to) {
    copy_scaled(chunk.description.type, slot(own) + from, chunk.data + from, factor, to - from);
  };
  give(0, begin(own));
  give(begin(own + 1), chunk.bytes());
  synchronize_calls(chunk.description);
  std::byte *const result = chunk.data + begin(own), *const given = slot(own) + begin(own);
  std::vector<Term> terms;
  for (std::int64_t rank = 0; rank < ranks_; ++rank)
    terms.push_back(rank == own ? Term{.data = result, .factor = factor}
                                : Term{.data = slot(rank) + begin(own)});
  add_up(chunk.description.type, {result, given}, terms,
         (begin(own + 1) - begin(own)) / chunk.element_bytes);
  barrier_.reach(++step_);
  for (std::int64_t next = 1; next < ranks_; ++next) {  // each rank starts with a different one
    const std::int64_t rank = (own + next) % ranks_;
    barrier_.await(rank, step_);
    copy_bytes(chunk.data + begin(rank), slot(rank) + begin(rank), begin(rank + 1) - begin(rank));
  }
}

void SharedCollectives::gather(const at::Tensor& own, const at::Tensor& all) {
  const at::Tensor sent = materialize(own), received = all.contiguous();
  const auto bytes = static_cast<std::int64_t>(sent.nbytes());
  for_each_chunk({CallDescription::Call::gather, sent.scalar_type(), sent.numel()}, sent,
                 [&](const Chunk& chunk) {
                   copy_bytes(slot(rank_), chunk.data, chunk.bytes());
                   synchronize_calls(chunk.description);
                   std::byte* const to = bytes_in(received) + chunk.at * chunk.element_bytes;
                   for (std::int64_t rank = 0; rank < ranks_; ++rank)
                     copy_bytes(to + rank * bytes, slot(rank), chunk.bytes());
                 });
  if (!received.is_same(all)) all.copy_(received);
}

void SharedCollectives::broadcast(const at::Tensor& tensor, std::int64_t from) {
  const at::Tensor all = materialize(tensor);
  const bool sends = rank_ == from;
  for_each_chunk({CallDescription::Call::broadcast, all.scalar_type(), all.numel(), from}, all,
                 [&](const Chunk& chunk) {
                   if (sends) copy_bytes(slot(from), chunk.data, chunk.bytes());
                   synchronize_calls(chunk.description);
                   if (!sends) copy_bytes(chunk.data, slot(from), chunk.bytes());
                 });
  if (!sends && !all.is_same(tensor)) tensor.copy_(all);
}

void SharedCollectives::synchronize_calls(const CallDescription& own) {
  description(rank_) = own;
  barrier_.reach(++step_);
  barrier_.await_all(step_);
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    if (!description(rank).is_same_call(own)) throw_calls_differ(rank);
  }
}

void SharedCollectives::throw_calls_differ(std::int64_t rank) const {
  throw UsageError(
      "process.calls-differ",
      {.what = str("a collective that differs between ranks, on rank ", rank_),
       .got = description(rank_).text(),
       .expected = str(description(rank).text(), ", as on rank ", rank),
       .hint = "pad_across_processes() makes shapes equal; GroupOptions{.debug = true} compares "
               "every call before it is made"});
}

std::byte* SharedCollectives::slot(std::int64_t rank) const {
  return slots_ + (2 * rank + chunk_ % 2) * kHalfSlotBytes;
}

SharedCollectives::CallDescription& SharedCollectives::description(std::int64_t rank) const {
  return descriptions_[2 * rank + chunk_ % 2];
}

}  // namespace hasten
