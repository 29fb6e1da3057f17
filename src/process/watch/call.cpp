#include "process/watch/call.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "hasten/base/text.h"

namespace hasten {
namespace {

// An FNV-1a hash that takes numbers in units of 16 bits and text in bytes.
class Digest {
 public:
  explicit Digest(std::uint64_t begin = 0xCBF29CE484222325) : value_(begin) {}
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 16) {
      value_ ^= (number >> shift) & 0xFFFF;
      value_ *= kPrime;
    }
  }
  void add(std::string_view text) {
    for (const char letter : text) {
      value_ ^= static_cast<unsigned char>(letter);
      value_ *= kPrime;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001B3;
  std::uint64_t value_;
};

}  // namespace

Call Call::of(const char* operation, at::TensorList tensors) {
  Call call{.operation = operation, .tensors = static_cast<std::int64_t>(tensors.size())};
  Digest digest;
  digest.add(std::string_view(operation));
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    call.elements += tensor.numel();
    digest.add(static_cast<std::uint64_t>(tensor.scalar_type()) + 1);
    for (const std::int64_t size : tensor.sizes()) digest.add(static_cast<std::uint64_t>(size));
  }
  if (!tensors.empty() && tensors.front().defined()) {
    const at::IntArrayRef sizes = tensors.front().sizes();
    call.type = tensors.front().scalar_type();
    call.dimensions = static_cast<std::int64_t>(sizes.size());
    std::copy_n(sizes.begin(), std::min(sizes.size(), kDimensions), call.sizes.begin());
  }
  call.fingerprint = digest.value();
  return call;
}

Call Call::rooted(const char* operation, at::TensorList tensors, std::int64_t root) {
  Call call = of(operation, tensors);
  call.root = root;
  Digest digest(call.fingerprint);
  digest.add(static_cast<std::uint64_t>(root));
  call.fingerprint = digest.value();
  return call;
}

Call Call::reducing(const char* operation, at::TensorList tensors, const char* reduction) {
  Call call = of(operation, tensors);
  call.reduction = reduction;
  Digest digest(call.fingerprint);
  digest.add(std::string_view(reduction));
  call.fingerprint = digest.value();
  return call;
}

std::string Call::tensors_text() const {
  const std::string type_name = lower(at::toString(type));
  if (tensors > 1) return str(" of ", tensors, " tensors, ", elements, " ", type_name, " together");
  if (dimensions == 0) return " of one " + type_name;
  const auto shown = std::min(static_cast<std::size_t>(dimensions), kDimensions);
  std::vector<std::string> lengths;
  for (std::size_t i = 0; i < shown; ++i) lengths.push_back(str(sizes[i]));
  if (static_cast<std::size_t>(dimensions) > shown) lengths.push_back("...");
  return str(" of ", join(lengths, " x "), " ", type_name);
}

std::string Call::text() const {
  std::string text = operation;
  if (*reduction != '\0') text += str(" (", reduction, ")");
  if (tensors > 0) text += tensors_text();
  if (root >= 0) text += str(", root ", root);
  return text;
}

std::string Call::text_with_purpose() const {
  if (purpose == nullptr) return text();
  return str(text(), " (", purpose, index < 0 ? std::string() : str(" ", index), ")");
}

std::string ordinal(std::int64_t number) {
  const std::int64_t tens = number % 100, ones = number % 10;
  const bool teen = tens >= 11 && tens <= 13;
  const char* const ending = teen        ? "th"
                             : ones == 1 ? "st"
                             : ones == 2 ? "nd"
                             : ones == 3 ? "rd"
                                         : "th";
  return str(number, ending);
}

}  // namespace hasten
