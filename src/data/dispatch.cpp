#include "data/dispatch.h"

#include <ATen/ATen.h>

#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/carried_error.h"

namespace hasten::detail {
namespace {

constexpr int kHead = 0, kBody = 1;  // message tags

// The first message of a step. The second has `bytes` bytes; 0 means that there is none.
struct Head {
  DispatchPlace place;
  std::int64_t step_rows = 0, rows = 0, real_rows = 0;
  std::int64_t failed = 0;
  std::int64_t bytes = 0;
};
constexpr std::int64_t kNumbers = sizeof(Head) / sizeof(std::int64_t);
static_assert(sizeof(Head) == kNumbers * sizeof(std::int64_t));

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

// Returns the exception that rank 0 threw.
std::exception_ptr thrown_by(const at::Tensor& bytes) {
  const std::string letter(static_cast<const char*>(bytes.const_data_ptr()),
                           static_cast<std::size_t>(bytes.numel()));
  const RemoteException carried = deserialize_exception(letter);
  if (carried.error) return carried.error;
  return std::make_exception_ptr(DataError(
      "data.batch", {.what = "making the next batches on rank 0 failed", .got = carried.message}));
}

using WorkOfGroup = c10::intrusive_ptr<c10d::Work>;

WorkOfGroup send(const Group& group, const at::Tensor& tensor, std::int64_t to, int tag) {
  std::vector<at::Tensor> tensors = {tensor};
  return group.native()->send(tensors, static_cast<int>(to), tag);
}

void receive_into(const Group& group, const at::Tensor& tensor, int tag) {
  std::vector<at::Tensor> tensors = {tensor};
  group.native()->recv(tensors, 0, tag)->wait();
}

std::string text_of(const DispatchPlace& place) {
  return str("batch ", place.number, " of epoch ", place.epoch, ", in pass ", place.pass);
}

}  // namespace

Dispatch::Dispatch(const Group& group, Pack pack, Unpack unpack)
    : group_(group.duplicate()), pack_(std::move(pack)), unpack_(std::move(unpack)) {}

at::Tensor Dispatch::body_of(const Made& made) const {
  if (made.error) return bytes_of(serialize_exception(made.error));
  return made.batch ? pack_(made.batch) : at::Tensor();
}

void Dispatch::send(const DispatchPlace& place, const std::vector<Made>& parts) const {
  // Packs all parts before it sends any: if one cannot be packed, every process gets the error
  // instead of its part.
  std::vector<at::Tensor> bodies(parts.size()), heads;  // kept until they are sent
  try {
    for (std::size_t to = 1; to < parts.size(); ++to) bodies[to] = body_of(parts[to]);
  } catch (...) {
    send_to_all(place, {.error = std::current_exception()});
    throw;
  }
  std::vector<WorkOfGroup> under_way;
  for (std::int64_t to = 1; to < group_.size(); ++to) {
    const Made& made = parts[static_cast<std::size_t>(to)];
    const at::Tensor& body = bodies[static_cast<std::size_t>(to)];
    const Head head{.place = place,
                    .step_rows = made.step_rows,
                    .rows = made.rows,
                    .real_rows = made.real_rows,
                    .failed = made.error ? 1 : 0,
                    .bytes = body.defined() ? body.numel() : 0};
    at::Tensor numbers = at::empty({kNumbers}, at::kLong);
    std::memcpy(numbers.data_ptr(), &head, sizeof head);
    heads.push_back(numbers);
    under_way.push_back(detail::send(group_, numbers, to, kHead));
    if (!body.defined()) continue;
    under_way.push_back(detail::send(group_, body, to, kBody));
  }
  for (const WorkOfGroup& work : under_way) work->wait();
}

void Dispatch::send_to_all(const DispatchPlace& place, const Made& made) const {
  send(place, std::vector<Made>(static_cast<std::size_t>(group_.size()), made));
}

Made Dispatch::receive(const DispatchPlace& place) const {
  for (;;) {
    at::Tensor numbers = at::empty({kNumbers}, at::kLong);
    receive_into(group_, numbers, kHead);
    Head head;
    std::memcpy(&head, numbers.const_data_ptr(), sizeof head);
    at::Tensor body;
    if (head.bytes > 0) {
      body = at::empty({head.bytes}, at::kByte);
      receive_into(group_, body, kBody);
    }
    if (head.place.pass < place.pass) continue;  // of a pass that this process left earlier
    if (head.failed != 0) return {.error = thrown_by(body)};
    if (head.place != place) {
      throw UsageError(
          "data.dispatch-order",
          {.what = str("rank ", group_.rank(),
                       " and rank 0, which reads for it, are at different batches of a loader"),
           .got = text_of(place),
           .expected = text_of(head.place) + ", as on rank 0",
           .hint =
               "iterate over the loader in the same way in every process: make the same passes, "
               "leave them at the same batch, and call set_epoch and load_state everywhere"});
    }
    Made made{.step_rows = head.step_rows, .rows = head.rows, .real_rows = head.real_rows};
    if (body.defined()) made.batch = unpack_(body);
    return made;
  }
}

}  // namespace hasten::detail
