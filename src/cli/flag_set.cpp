#include "cli/flag_set.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <utility>

#include "cli/usage_error.h"

namespace tern::cli {

struct FlagSet::Impl {
  CLI::App app;
  std::string name, title = "Options";
  CLI::Option* last = nullptr;

  Impl(std::string name_, const std::string& summary) : app(summary, name_), name(std::move(name_)) {
    app.allow_extras();
    app.get_formatter()->column_width(34);
  }
  template <typename T>
  CLI::Option* declare(const std::string& names, T& value, const std::string& help) {
    last = app.add_option(names, value, help)->group(title);
    return last;
  }
};

FlagSet::FlagSet(std::string name, std::string summary) : impl_(std::make_unique<Impl>(std::move(name), summary)) {}
FlagSet::~FlagSet() = default;

FlagSet& FlagSet::option(const std::string& names, std::string& value, const std::string& help) {
  CLI::Option* option = impl_->declare(names, value, help);
  if (!value.empty()) option->capture_default_str();
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, int32_t& value, const std::string& help) {
  impl_->declare(names, value, help)->capture_default_str();
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, int64_t& value, const std::string& help) {
  impl_->declare(names, value, help)->capture_default_str();
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, uint64_t& value, const std::string& help) {
  impl_->declare(names, value, help)->capture_default_str();
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, float& value, const std::string& help) {
  impl_->declare(names, value, help)->default_str(fmt::format("{}", value));
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, double& value, const std::string& help) {
  impl_->declare(names, value, help)->default_str(fmt::format("{}", value));
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, std::vector<int32_t>& values, const std::string& help) {
  impl_->declare(names, values, help)->allow_extra_args(false)->delimiter(',')->capture_default_str();
  return *this;
}

FlagSet& FlagSet::words(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  impl_->declare(name, values, help);
  return *this;
}

FlagSet& FlagSet::flag(const std::string& names, bool& value, const std::string& help) {
  impl_->last = impl_->app.add_flag(names, value, help)->group(impl_->title);
  return *this;
}

FlagSet& FlagSet::between(int64_t low, int64_t high) {
  impl_->last->check(CLI::Range(low, high, fmt::format("{}..{}", low, high)));
  return *this;
}

FlagSet& FlagSet::at_least(int64_t low) {
  impl_->last->check(CLI::Range(low, std::numeric_limits<int64_t>::max(), fmt::format("{} or more", low)));
  return *this;
}

FlagSet& FlagSet::one_of(const std::vector<std::string>& values) {
  impl_->last->check(CLI::IsMember(values));
  return *this;
}

FlagSet& FlagSet::required() {
  impl_->last->required();
  return *this;
}

FlagSet& FlagSet::excludes(const std::string& other) {
  impl_->last->excludes(impl_->app.get_option(other));
  return *this;
}

FlagSet& FlagSet::group(std::string title) {
  impl_->title = std::move(title);
  return *this;
}

FlagSet::Outcome FlagSet::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the back
  try {
    impl_->app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return Outcome::kHelp;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{} (see `{} --help`)", error.what(), impl_->name));
  }
  return Outcome::kRun;
}

std::vector<std::string> FlagSet::leftovers() const {
  return impl_->app.remaining();
}
std::string FlagSet::help() const {
  return impl_->app.help();
}
const std::string& FlagSet::name() const noexcept {
  return impl_->name;
}

std::vector<std::string> FlagSet::spellings() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : std::as_const(impl_->app).get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool FlagSet::takes_value(const std::string& spelling) const {
  const CLI::Option* option = spelling.starts_with('-') ? impl_->app.get_option_no_throw(spelling) : nullptr;
  return option != nullptr && option->get_items_expected_min() > 0;
}

}  // namespace tern::cli
