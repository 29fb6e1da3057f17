#include "process/shared_collectives.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// A slot has two halves, used in turn: a rank may write its next piece while another still reads
// this one.
constexpr std::int64_t kHalf = std::int64_t{1} << 19;
// Less than this every rank adds up whole: one meeting instead of two.
constexpr std::int64_t kWhole = std::int64_t{1} << 14;
static_assert(kWhole <= kHalf);

constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                               at::kChar,  at::kShort,  at::kInt,  at::kLong};

// out[i] = the sum of every source's i-th, of the own one times the factor, as it is rounded where
// another rank reads it. `out` may be one of the sources.
template <class T>
void add_up(T* out, const std::vector<const T*>& sources, std::size_t own,
            at::opmath_type<T> factor, std::int64_t count) {
  using Sum = at::opmath_type<T>;
  constexpr std::int64_t kBlock = 2048;
  std::array<Sum, kBlock> sums;
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t here = std::min(kBlock, count - at);
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const T* const source = sources[s] + at;
      const auto value = [&](std::int64_t i) -> Sum {
        if (s != own) return static_cast<Sum>(source[i]);
        return static_cast<Sum>(static_cast<T>(static_cast<Sum>(source[i]) * factor));
      };
      if (s == 0) {
        for (std::int64_t i = 0; i < here; ++i) sums[i] = value(i);
      } else {
        for (std::int64_t i = 0; i < here; ++i) sums[i] += value(i);
      }
    }
    for (std::int64_t i = 0; i < here; ++i) out[at + i] = static_cast<T>(sums[i]);
  }
}

template <class T>
void scale(T* out, const T* in, at::opmath_type<T> factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(static_cast<at::opmath_type<T>>(in[i]) * factor);
}

void add_up(at::ScalarType type, std::byte* out, const std::vector<const std::byte*>& sources,
            std::size_t own, double factor, std::int64_t count) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "hasten::SharedCollectives", [&] {
    std::vector<const scalar_t*> typed;
    for (const std::byte* source : sources)
      typed.push_back(reinterpret_cast<const scalar_t*>(source));
    add_up(reinterpret_cast<scalar_t*>(out), typed, own,
           static_cast<at::opmath_type<scalar_t>>(factor), count);
  });
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Times the factor.
void copy_scaled(at::ScalarType type, std::byte* to, const std::byte* from, double factor,
                 std::int64_t bytes) {
  if (factor == 1.0) return copy_bytes(to, from, bytes);
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "hasten::SharedCollectives", [&] {
    scale(reinterpret_cast<scalar_t*>(to), reinterpret_cast<const scalar_t*>(from),
          static_cast<at::opmath_type<scalar_t>>(factor),
          bytes / static_cast<std::int64_t>(sizeof(scalar_t)));
  });
}

// f(at, count, left) for pieces of at most `at_once`; once for nothing too, as the others may have
// something.
template <class F>
void by_pieces(std::int64_t all, std::int64_t at_once, const F& f) {
  std::int64_t at = 0;
  do {
    const std::int64_t left = all - at, count = std::min(at_once, left);
    f(at, count, left);
    at += count;
  } while (at < all);
}

std::byte* bytes_in(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

}  // namespace

// What of a tensor fits into half a slot.
struct SharedCollectives::Piece {
  enum class Call : std::int64_t { sum, gather, broadcast };
  Call call;
  std::byte* data;
  std::int64_t count, left;  // with those of later pieces
  std::int64_t element_bytes;
  at::ScalarType type;

  std::int64_t bytes() const { return count * element_bytes; }
  // In bytes, where the share of a rank begins; of the rank behind the last one: the end.
  std::int64_t begin(std::int64_t rank, std::int64_t ranks) const {
    return count * rank / ranks * element_bytes;
  }
};

// Which piece a rank is at, in lines of the cache of its own.
struct alignas(128) SharedCollectives::Ticket {
  Piece::Call call;
  std::int64_t left;
  at::ScalarType type;

  bool operator==(const Ticket&) const = default;
  std::string words() const {
    constexpr std::array kNames = {"all_reduce", "all_gather", "broadcast"};
    return str(kNames[static_cast<std::size_t>(call)], " of ", left, " ", c10::toString(type));
  }
};

std::shared_ptr<SharedCollectives> SharedCollectives::over(c10d::Store& store,
                                                           const RankOptions& options) {
  const auto ranks = static_cast<std::size_t>(options.size);
  const std::size_t slots = 2 * ranks;
  auto memory = shared_memory(
      store, "collectives", options,
      Seats::bytes_for(options.size) + slots * (sizeof(Ticket) + static_cast<std::size_t>(kHalf)));
  if (!memory) return nullptr;
  return std::shared_ptr<SharedCollectives>(new SharedCollectives(std::move(memory), options));
}

SharedCollectives::SharedCollectives(std::unique_ptr<SharedMemory> memory,
                                     const RankOptions& options)
    : memory_(std::move(memory)),
      options_(options),
      seats_(memory_->data(), "a collective in shared memory", options),
      tickets_(reinterpret_cast<Ticket*>(memory_->data() + Seats::bytes_for(options.size))),
      slots_(reinterpret_cast<std::byte*>(tickets_ + 2 * options.size)) {}

bool SharedCollectives::takes(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided;
}

bool SharedCollectives::adds(const at::Tensor& tensor) {
  return takes(tensor) &&
         std::find(kTypes.begin(), kTypes.end(), tensor.scalar_type()) != kTypes.end();
}

void SharedCollectives::run(std::int64_t place, c10::function_ref<void()> call) {
  std::unique_lock lock(mutex_);
  next_.wait(lock, [&] { return turn_ == place; });
  std::exception_ptr failure = failure_;
  lock.unlock();  // nobody else runs: it is this one's turn
  try {
    const torch::NoGradGuard no_grad;
    if (!failure) call();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  failure_ = failure;
  ++turn_;
  next_.notify_all();
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

void SharedCollectives::sum(const at::Tensor& tensor, double factor) {
  const at::Tensor all = tensor.contiguous();
  const std::int64_t element_bytes = all.element_size();
  by_pieces(all.numel(), kHalf / element_bytes, [&](std::int64_t at, auto count, auto left) {
    const Piece piece{.call = Piece::Call::sum,
                      .data = bytes_in(all) + at * element_bytes,
                      .count = count,
                      .left = left,
                      .element_bytes = element_bytes,
                      .type = all.scalar_type()};
    ++piece_;
    if (piece.bytes() <= kWhole) {
      sum_whole(piece, factor);
    } else {
      sum_divided(piece, factor);
    }
  });
  if (!all.is_same(tensor)) tensor.copy_(all);
}

void SharedCollectives::sum_whole(const Piece& piece, double factor) {
  copy_scaled(piece.type, slot(options_.rank), piece.data, factor, piece.bytes());
  meet(piece);
  std::vector<const std::byte*> sources;
  for (std::int64_t rank = 0; rank < options_.size; ++rank) sources.push_back(slot(rank));
  add_up(piece.type, piece.data, sources, static_cast<std::size_t>(options_.rank), 1.0,
         piece.count);
}

void SharedCollectives::sum_divided(const Piece& piece, double factor) {
  const std::int64_t ranks = options_.size, own = options_.rank;
  const auto begin = [&](std::int64_t rank) { return piece.begin(rank, ranks); };
  const auto give = [&](std::int64_t from, std::int64_t to) {
    copy_scaled(piece.type, slot(own) + from, piece.data + from, factor, to - from);
  };
  give(0, begin(own));
  give(begin(own + 1), piece.bytes());
  meet(piece);
  std::vector<const std::byte*> sources;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    sources.push_back((rank == own ? piece.data : slot(rank)) + begin(own));
  const std::int64_t share = begin(own + 1) - begin(own);
  std::byte* const result = piece.data + begin(own);
  add_up(piece.type, result, sources, static_cast<std::size_t>(own), factor,
         share / piece.element_bytes);
  copy_bytes(slot(own) + begin(own), result, share);
  seats_.reach(++step_);
  for (std::int64_t next = 1; next < ranks; ++next) {  // not all of the same rank at once
    const std::int64_t rank = (own + next) % ranks;
    seats_.await(rank, step_);
    copy_bytes(piece.data + begin(rank), slot(rank) + begin(rank), begin(rank + 1) - begin(rank));
  }
}

void SharedCollectives::gather(const at::Tensor& own, const at::Tensor& all) {
  const at::Tensor sent = own.contiguous(), received = all.contiguous();
  const std::int64_t bytes = static_cast<std::int64_t>(sent.nbytes());
  by_pieces(bytes, kHalf, [&](std::int64_t at, auto count, auto left) {
    const Piece piece{.call = Piece::Call::gather,
                      .data = bytes_in(sent) + at,
                      .count = count,
                      .left = left,
                      .element_bytes = 1,
                      .type = at::kByte};
    ++piece_;
    copy_bytes(slot(options_.rank), piece.data, count);
    meet(piece);
    for (std::int64_t rank = 0; rank < options_.size; ++rank)
      copy_bytes(bytes_in(received) + rank * bytes + at, slot(rank), count);
  });
  if (!received.is_same(all)) all.copy_(received);
}

void SharedCollectives::broadcast(const at::Tensor& tensor, std::int64_t from) {
  const at::Tensor all = tensor.contiguous();
  const bool sends = options_.rank == from;
  by_pieces(static_cast<std::int64_t>(all.nbytes()), kHalf,
            [&](std::int64_t at, auto count, auto left) {
              const Piece piece{.call = Piece::Call::broadcast,
                                .data = bytes_in(all) + at,
                                .count = count,
                                .left = left,
                                .element_bytes = 1,
                                .type = at::kByte};
              ++piece_;
              if (sends) copy_bytes(slot(from), piece.data, count);
              meet(piece);
              if (!sends) copy_bytes(piece.data, slot(from), count);
            });
  if (!all.is_same(tensor)) tensor.copy_(all);
}

void SharedCollectives::meet(const Piece& piece) {
  Ticket& own = ticket(options_.rank);
  own = {.call = piece.call, .left = piece.left, .type = piece.type};
  seats_.reach(++step_);
  seats_.await_all(step_);
  for (std::int64_t rank = 0; rank < options_.size; ++rank) {
    if (!(ticket(rank) == own)) tell_difference(rank);
  }
}

void SharedCollectives::tell_difference(std::int64_t rank) const {
  throw UsageError(
      "process.calls-differ",
      {.what = str("a collective of ranks that do not call the same, on rank ", options_.rank),
       .got = ticket(options_.rank).words(),
       .expected = str(ticket(rank).words(), ", as on rank ", rank),
       .hint = "pad_across_processes() makes shapes equal; GroupOptions{.debug = true} compares "
               "every call before it is made"});
}

std::byte* SharedCollectives::slot(std::int64_t rank) const {
  return slots_ + (2 * rank + piece_ % 2) * kHalf;
}

SharedCollectives::Ticket& SharedCollectives::ticket(std::int64_t rank) const {
  return tickets_[2 * rank + piece_ % 2];
}

}  // namespace hasten
