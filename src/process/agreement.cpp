#include "process/agreement.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/ask_all.h"
#include "process/unlike.h"

namespace hasten {
namespace {

// In each round a rank passes on the least and the greatest number that it knows. After round j,
// from 0, each rank knows those of 2^(j+1) ranks.
class ByMessages : public Comparison {
 public:
  explicit ByMessages(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  bool same(std::uint64_t number) override {
    const int size = backend_->getSize(), rank = backend_->getRank();
    auto least = static_cast<std::int64_t>(number), greatest = least;
    for (int distance = 1; distance < size; distance *= 2) {
      std::vector<at::Tensor> sent = {at::tensor({least, greatest}, at::kLong)},
                              received = {at::empty({2}, at::kLong)};
      const auto arrives = backend_->recv(received, (rank + size - distance) % size, distance);
      const auto leaves = backend_->send(sent, (rank + distance) % size, distance);
      arrives->wait();
      leaves->wait();
      const auto* const other = received[0].const_data_ptr<std::int64_t>();
      least = std::min(least, other[0]);
      greatest = std::max(greatest, other[1]);
    }
    return least == greatest;
  }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::unique_ptr<Comparison> comparison_by_messages(c10::intrusive_ptr<c10d::Backend> backend) {
  return std::make_unique<ByMessages>(std::move(backend));
}

Agreement::Agreement(std::unique_ptr<Comparison> comparison, c10::intrusive_ptr<c10d::Store> store,
                     const RankOptions& options)
    : comparison_(std::move(comparison)), store_(std::move(store)), options_(options) {}

void Agreement::check(const Call& call) {
  ++checked_;
  if (!comparison_->same(call.fingerprint)) tell_difference(call);
}

void Agreement::tell_difference(const Call& call) {
  const auto texts =
      texts_of_all(*store_, str("agreement/", checked_), options_.rank, options_.size, call.text());
  const std::vector<std::optional<std::string>> said(texts.begin(), texts.end());
  Unlike unlike = unlike_most(said);
  if (unlike.others.empty()) {  // the texts are equal, so tensors that they do not show differ
    unlike.right = "tensors of the same types and shapes on every rank";
    unlike.first_other = call.text();
    unlike.most = {};
  }
  const std::string where =
      unlike.others.empty() ? "between ranks" : "on " + ranks_text(unlike.others);
  throw UsageError(
      "process.calls-differ",
      {.what = str("the group's ", ordinal(checked_), " collective differs ", where),
       .got = unlike.first_other,
       .expected = unlike.most.empty() ? unlike.right
                                       : str(unlike.right, ", as on ", ranks_text(unlike.most)),
       .hint = "make every rank call the same collectives in the same order, with the same types "
               "and shapes; pad_across_processes makes shapes equal"});
}

}  // namespace hasten
