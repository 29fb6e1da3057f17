#include "data/dispatch.h"

#include <ATen/ATen.h>

#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/carry.h"

namespace hasten::detail {
namespace {

constexpr int kHead = 0, kBody = 1;  // tags

// The first message of a step; the second has `bytes` bytes.
struct Head {
  DispatchPlace place;
  std::int64_t step_rows = 0, rows = 0, real_rows = 0;
  std::int64_t failed = 0;
  std::int64_t bytes = 0;
};
constexpr std::int64_t kNumbers = sizeof(Head) / sizeof(std::int64_t);
static_assert(sizeof(Head) == kNumbers * sizeof(std::int64_t));

// What was thrown on rank 0, as text.
struct Failure {
  std::int64_t kind = 0;
  std::string code, what, got, expected, hint;
};
template <class F>
void visit_parts(Failure& failure, F&& f) {
  f(failure.kind);
  for (std::string* each :
       {&failure.code, &failure.what, &failure.got, &failure.expected, &failure.hint})
    f(*each);
}

template <class... Kinds>
struct KindList {
  // From 1; 0: none of them.
  static std::int64_t number_of(const Error& error) {
    std::int64_t number = 0, at = 0;
    ((++at, number = number == 0 && dynamic_cast<const Kinds*>(&error) ? at : number), ...);
    return number;
  }
  static std::exception_ptr made(std::int64_t number, const std::string& code, ErrorText text) {
    std::exception_ptr error;
    std::int64_t at = 0;
    ((++at == number ? void(error = std::make_exception_ptr(Kinds(code, text))) : void()), ...);
    return error;
  }
};
using Kinds = KindList<UsageError, ConfigError, DataError, IoError, MemoryError>;

Failure failure_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const ErrorText& text = error.text();
    return {Kinds::number_of(error), error.code(), text.what, text.got, text.expected, text.hint};
  } catch (const std::exception& error) {
    return {.what = error.what()};
  } catch (...) {
    return {.what = "something that is no exception"};
  }
}

std::exception_ptr thrown_by(const Failure& failure) {
  if (failure.kind > 0) {
    return Kinds::made(failure.kind, failure.code,
                       {failure.what, failure.got, failure.expected, failure.hint});
  }
  return std::make_exception_ptr(DataError(
      "data.batch", {.what = "rank 0 could not make the next batches", .got = failure.what}));
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

void Dispatch::send(const DispatchPlace& place, const std::vector<Made>& parts) const {
  std::vector<at::Tensor> kept;  // until they are sent
  std::vector<WorkOfGroup> under_way;
  for (std::int64_t to = 1; to < group_.size(); ++to) {
    const Made& made = parts[static_cast<std::size_t>(to)];
    at::Tensor body;
    if (made.error) body = pack(failure_of(made.error));
    if (made.batch) body = pack_(made.batch);
    const Head head{.place = place,
                    .step_rows = made.step_rows,
                    .rows = made.rows,
                    .real_rows = made.real_rows,
                    .failed = made.error ? 1 : 0,
                    .bytes = body.defined() ? body.numel() : 0};
    at::Tensor numbers = at::empty({kNumbers}, at::kLong);
    std::memcpy(numbers.data_ptr(), &head, sizeof head);
    kept.push_back(numbers);
    under_way.push_back(detail::send(group_, numbers, to, kHead));
    if (!body.defined()) continue;
    kept.push_back(body);
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
    if (head.place.pass < place.pass) continue;  // of a pass that was left earlier here
    if (head.failed != 0) return {.error = thrown_by(unpack<Failure>(body))};
    if (head.place != place) {
      throw UsageError("data.dispatch-order",
                       {.what = str("rank ", group_.rank(),
                                    " and rank 0, which reads for it, are "
                                    "at different places of a loader"),
                        .got = text_of(place),
                        .expected = text_of(head.place) + ", as on rank 0",
                        .hint = "iterate over the loader in every process alike: the same passes, "
                                "left at the same batch; set_epoch and load_state everywhere"});
    }
    Made made{.step_rows = head.step_rows, .rows = head.rows, .real_rows = head.real_rows};
    if (body.defined()) made.batch = unpack_(body);
    return made;
  }
}

}  // namespace hasten::detail
