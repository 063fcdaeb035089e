// tern version: what this build is.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/verbs.h"
#include "models/registry.h"
#include "quant/format.h"

namespace tern::cli {

Action setup_version(FlagSet& set) {
  const auto json = std::make_shared<bool>(false);
  set.flag("--json", *json, "as one JSON object");
  return [json] {
    nlohmann::ordered_json out{
        {"version", version()}, {"families", nlohmann::json::array()}, {"formats", nlohmann::json::array()}};
    for (const Family& family : families()) out["families"].push_back(family.architecture);
    for (const quant::Format& format : quant::formats()) out["formats"].push_back(type_info(format.type).name);
    if (*json) {
      print_json(out);
      return 0;
    }
    fmt::print("tern {}\n", version());
    for (const char* key : {"families", "formats"}) {
      std::string line;
      for (const auto& name : out[key]) line += " " + name.get<std::string>();
      fmt::print("{:<9}{}\n", std::string(key) + ":", line);
    }
    return 0;
  };
}

}  // namespace tern::cli
