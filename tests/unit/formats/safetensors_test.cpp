#include "hasten/formats/safetensors.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>

#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace formats_safetensors_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

const fs::path data = fs::path(HASTEN_TEST_DATA) / "unit/formats/data";

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || std::memcmp(a.contiguous().const_data_ptr(),
                                        b.contiguous().const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace

TEST_CASE("safetensors: files of Python are read, and written again byte for byte") {
  TemporaryDirectory scratch;
  for (const char* name : {"dtypes.safetensors", "names.safetensors", "no_metadata.safetensors",
                           "nothing.safetensors"}) {
    CAPTURE(name);
    const SafetensorsFile file(data / name);
    save_safetensors(scratch.path() / name, load_safetensors(data / name), file.metadata());
    CHECK(read_file(scratch.path() / name) == read_file(data / name));
  }
}

TEST_CASE("safetensors: every dtype has the values that Python wrote") {
  const SafetensorsFile file(data / "dtypes.safetensors");
  CHECK(file.names().size() == 20);
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}});
  const at::Tensor raw = at::arange(16, at::kByte);
  for (const std::string& name : file.names()) {
    CAPTURE(name);
    const at::Tensor tensor = file.tensor(name);
    CHECK(tensor.dim() == 2);
    CHECK(tensor.size(0) == 2);
    CHECK((tensor.scalar_type() == file.info(name).dtype));
    CHECK(file.info(name).bytes == 16);
    CHECK(file.info(name).shape == tensor.sizes().vec());
    const at::Tensor expected = name.ends_with("bool") ? raw.remainder(2) : raw;
    CHECK(std::memcmp(tensor.const_data_ptr(), expected.const_data_ptr(), 16) == 0);
  }
  CHECK(file.info("13.float4_e2m1fn_x2").shape == std::vector<std::int64_t>{2, 8});
}

TEST_CASE("safetensors: scalars, empty tensors and names with any characters survive") {
  const TensorDict tensors = load_safetensors(data / "names.safetensors");
  CHECK(tensors.size() == 8);
  CHECK(tensor_at(tensors, "scalar").dim() == 0);
  CHECK(tensor_at(tensors, "scalar").item<float>() == 3.5f);
  CHECK(tensor_at(tensors, "empty.rows").sizes() == at::IntArrayRef{0, 3});
  CHECK(tensor_at(tensors, "empty.columns").sizes() == at::IntArrayRef{3, 0});
  CHECK(tensor_at(tensors, "").sizes() == at::IntArrayRef{3});
  CHECK(tensors.contains("quote \" backslash \\ slash / newline \n tab \t bell \a delete \x7f"));
  CHECK(tensors.contains("é ü 漢字 \U0001f600 \u2028"));
}

TEST_CASE("safetensors: saved tensors load equal") {
  TemporaryDirectory scratch;
  const at::Tensor base = at::randn({6, 5});
  const TensorDict tensors = {{"plain", at::randn({3, 4})},
                              {"transposed", at::randn({3, 4}).t()},
                              {"every other", at::arange(10).slice(0, 0, 10, 2)},
                              {"columns 0", base.slice(1, 0, 2)},
                              {"columns 2", base.slice(1, 2, 5)},
                              {"expanded", at::ones({1, 3}).expand({4, 3})},
                              {"gradient", at::randn({2}).requires_grad_()},
                              {"conjugate", at::randn({2}, at::kComplexFloat).conj()},
                              {"flag", at::rand({9}).gt(0.5)},
                              {"half", at::randn({7}).to(at::kBFloat16)}};
  save_safetensors(scratch.path() / "x", tensors, {{"a", "1"}, {"b", "zwei\n"}});
  const SafetensorsFile file(scratch.path() / "x");
  CHECK(file.metadata() == SafetensorsMetadata{{"a", "1"}, {"b", "zwei\n"}});
  CHECK(file.names().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    CHECK(same(file.tensor(name), tensor.detach().resolve_conj()));
    CHECK_FALSE(file.tensor(name).requires_grad());
  }
}

TEST_CASE("safetensors: tensors use the file's pages, outlive the file, and never write to it") {
  TemporaryDirectory scratch;
  const fs::path path = scratch.path() / "x";
  save_safetensors(path, {{"a", at::arange(8, at::kFloat)}, {"b", at::ones({2})}});
  const std::string before = read_file(path);
  at::Tensor a;
  {
    const SafetensorsFile file(path);
    a = file.tensor("a");
    CHECK(a.const_data_ptr() == file.tensor("a").const_data_ptr());
  }
  a.add_(1);
  CHECK(a.sum().item<float>() == 36);
  CHECK(read_file(path) == before);
  save_safetensors(path, {{"a", a}});  // overwrites the file that holds the tensor
  CHECK(load_safetensors(path).at("a").sum().item<float>() == 36);
  fs::remove(path);
  CHECK(a.sum().item<float>() == 36);
}

TEST_CASE("safetensors: a file whose tensors are not aligned is read through a copy") {
  TemporaryDirectory scratch;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F64","shape":[2],"data_offsets":[1,17]}} )";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const double values[2] = {1.5, -2};
  bytes += header + "\x07" + std::string(reinterpret_cast<const char*>(values), 16);
  write_file_atomically(scratch.path() / "x", bytes);
  const TensorDict tensors = load_safetensors(scratch.path() / "x");
  CHECK(tensors.at("a").item<int>() == 7);
  CHECK(tensors.at("b")[1].item<double>() == -2);
  CHECK(reinterpret_cast<std::uintptr_t>(tensors.at("b").const_data_ptr()) % 8 == 0);
}

TEST_CASE("safetensors: tensors that share memory are named, and tied weights can be dropped") {
  TemporaryDirectory scratch;
  const at::Tensor weight = at::randn({4, 4});
  TensorDict tied = {{"decoder", weight}, {"embedding", weight}, {"other", at::ones({2})}};
  try {
    save_safetensors(scratch.path() / "x", tied);
    FAIL("expected an error");
  } catch (const UsageError& error) {
    CHECK(error.code() == "safetensors.shared");
    CHECK(std::string(error.what()).find("\"decoder\" and \"embedding\"") != std::string::npos);
  }
  CHECK(drop_shared(tied) == std::map<std::string, std::string>{{"embedding", "decoder"}});
  save_safetensors(scratch.path() / "x", tied);
  CHECK(load_safetensors(scratch.path() / "x").size() == 2);

  const auto code = [&](const TensorDict& tensors) {
    return code_of([&] { save_safetensors(scratch.path() / "x", tensors); });
  };
  CHECK(code({{"a", weight}, {"b", weight.t()}}) == "safetensors.shared");
  CHECK(code({{"a", weight.t()}, {"b", weight.t()}}) == "safetensors.shared");
  CHECK(code({{"a", weight.slice(0, 0, 3)}, {"b", weight.slice(0, 2, 4)}}) == "safetensors.shared");
  CHECK(code({{"a", weight.slice(0, 0, 2)}, {"b", weight.slice(0, 2, 4)}}) == "none");
}

TEST_CASE("safetensors: unsupported tensors are refused before anything is written") {
  TemporaryDirectory scratch;
  const auto code = [&](const TensorDict& tensors, const SafetensorsMetadata& metadata = {}) {
    return code_of([&] { save_safetensors(scratch.path() / "x", tensors, metadata); });
  };
  CHECK(code({{"a", at::Tensor()}}) == "safetensors.unsupported");
  CHECK(code({{"a", at::zeros({2}, at::kComplexDouble)}}) == "safetensors.unsupported");
  CHECK(code({{"a", at::zeros({2}).to_sparse()}}) == "safetensors.unsupported");
  CHECK(code({{"a", at::empty({2}, at::kMeta)}}) == "safetensors.unsupported");
  CHECK(code({{"__metadata__", at::zeros({2})}}) == "safetensors.unsupported");
  CHECK(code({{"\xff", at::zeros({2})}}) == "safetensors.header");
  CHECK(code({{"a", at::zeros({2})}}, {{"k", "\xc3"}}) == "safetensors.header");
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("safetensors: the error for a missing tensor names the nearest name") {
  const SafetensorsFile file(data / "names.safetensors");
  try {
    file.tensor("scalr");
    FAIL("expected an error");
  } catch (const DataError& error) {
    CHECK(error.code() == "safetensors.missing-tensor");
    CHECK(error.hint() == "did you mean \"scalar\"?");
  }
  CHECK(code_of([] { tensor_at({{"labels", at::ones({1})}}, "label"); }) == "data.missing-tensor");
}

TEST_CASE("safetensors: folders, pipes and missing files are errors of the system") {
  TemporaryDirectory scratch;
  const auto code = [](const fs::path& path) {
    return code_of([&] { SafetensorsFile file(path); });
  };
  CHECK(code(scratch.path()) == "io.not-a-file");
  CHECK(code("/dev/zero") == "io.not-a-file");
  CHECK(code(scratch.path() / "none") == "io.open");
  write_file_atomically(scratch.path() / "empty", "");
  CHECK(code(scratch.path() / "empty") == "safetensors.truncated");
}

}  // namespace formats_safetensors_test
