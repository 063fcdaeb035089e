// probe ARCHITECTURE...: what this build says to a file of each architecture. Prints the families, then a line each.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "gguf/writer.h"
#include "models/registry.h"

int main(int argc, char** argv) {
  for (const tern::Family& f : tern::families()) fmt::print("family {}\n", f.architecture);
  const std::string path = std::filesystem::current_path() / "probe.gguf";
  for (int i = 1; i < argc; ++i) {
    tern::gguf::Metadata keys;
    keys.set_string("general.architecture", argv[i]);
    tern::gguf::Writer(path, keys).finish();
    try {
      tern::build_plan(tern::gguf::File::open(path));
    } catch (const tern::Error& e) {
      fmt::print("{}: {}\n", argv[i], e.what());
    }
  }
  std::filesystem::remove(path);
  return 0;
}
