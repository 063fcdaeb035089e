#include "quant/ggml.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace tern::test {
namespace {

using TraitsOf = const GgmlTraits* (*)(int type);

TraitsOf load() {
  const std::string path =
      TERN_SOURCE_DIR "/tests/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-base.so";
  if (!std::filesystem::exists(path)) throw std::runtime_error(path + " is not installed: run `make deps`");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(std::string("cannot load ggml: ") + dlerror());
  void* symbol = dlsym(library, "ggml_get_type_traits");
  if (symbol == nullptr) throw std::runtime_error(path + " has no ggml_get_type_traits");
  return reinterpret_cast<TraitsOf>(symbol);
}

}  // namespace

const GgmlTraits& ggml_traits(TensorType type) {
  static const TraitsOf traits_of = load();
  return *traits_of(static_cast<int>(type));
}

}  // namespace tern::test
