#include "cli/flag_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <deque>
#include <limits>
#include <utility>

#include "base/error.h"
#include "cli/usage_error.h"

namespace tern::cli {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// One option: how a text becomes its value. (The parser library's own conversions read "010" as eight.)
struct Declared {
  CLI::Option* option = nullptr;
  std::function<void(std::string_view)> set{};
  std::string variable{};  // of the environment; empty: none
  double low = -kUnlimited, high = kUnlimited;
  std::vector<std::string> choices{};
  bool given = false;

  std::string range() const {
    if (high != kUnlimited) return fmt::format(" within {}..{}", low, high);
    return low == -kUnlimited ? "" : fmt::format(", {} or more", low);
  }
};

template <typename T>
T parse_number(const Declared& declared, std::string_view text) {
  std::string_view digits = text;
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const auto number = static_cast<double>(value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !(number >= declared.low) ||
      !(number <= declared.high) || number - number != 0)
    throw UsageError(
        fmt::format("'{}' is not a {}number{}", text, std::is_integral_v<T> ? "whole " : "", declared.range()));
  return value;
}

}  // namespace

struct FlagSet::Impl {
  CLI::App app;
  std::string name, title = "Options";
  std::deque<Declared> options;  // addresses stay
  CLI::Option* last = nullptr;

  Impl(std::string name_, const std::string& summary) : app(summary, name_), name(std::move(name_)) {
    app.allow_extras();
    app.get_formatter()->column_width(34);
  }

  Declared& declare(const std::string& names, const std::string& help, const char* type, const std::string& otherwise) {
    Declared& declared = options.emplace_back();
    const auto take = [this, &declared](const CLI::results_t& words) {
      assign(declared, words.at(0), declared.option->get_name());
      return true;
    };
    last = declared.option = app.add_option(names, take, help)->group(title)->type_name(type)->default_str(otherwise);
    return declared;
  }
  template <typename T>
  void declare_number(const std::string& names, T& value, const std::string& help) {
    Declared& declared = declare(names, help, std::is_integral_v<T> ? "INT" : "FLOAT", fmt::format("{}", value));
    declared.set = [&declared, &value](std::string_view text) { value = parse_number<T>(declared, text); };
  }
  /// `where`: the flag or the variable the text comes from.
  static void assign(Declared& declared, const std::string& text, const std::string& where) {
    try {
      declared.set(text);
      declared.given = true;
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", where, error.what()));
    }
  }
  Declared& latest() { return options.back(); }
  Declared& find(const std::string& spelling) {
    const CLI::Option* option = app.get_option(spelling);
    const auto it = std::find_if(options.begin(), options.end(), [&](const Declared& d) { return d.option == option; });
    CHECK(it != options.end(), "{} takes no value", spelling);
    return *it;
  }
};

FlagSet::FlagSet(std::string name, const std::string& summary) : impl_(std::make_unique<Impl>(std::move(name), summary)) {}
FlagSet::~FlagSet() = default;

FlagSet& FlagSet::option(const std::string& names, std::string& value, const std::string& help) {
  Declared& declared = impl_->declare(names, help, "TEXT", value);
  declared.set = [&declared, &value](std::string_view text) {
    const auto& choices = declared.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
      throw UsageError(fmt::format("'{}' is not one of {}", text, fmt::join(choices, ", ")));
    value = text;
  };
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, int32_t& value, const std::string& help) {
  impl_->declare_number(names, value, help);
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, int64_t& value, const std::string& help) {
  impl_->declare_number(names, value, help);
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, uint64_t& value, const std::string& help) {
  impl_->declare_number(names, value, help);
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, float& value, const std::string& help) {
  impl_->declare_number(names, value, help);
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, double& value, const std::string& help) {
  impl_->declare_number(names, value, help);
  return *this;
}

FlagSet& FlagSet::option(const std::string& names, std::vector<int32_t>& values, const std::string& help) {
  Declared& declared = impl_->declare(names, help, "INT,...", fmt::format("{}", fmt::join(values, ",")));
  declared.set = [&declared, &values](std::string_view text) {
    std::vector<int32_t> numbers;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      numbers.push_back(parse_number<int32_t>(declared, text.substr(begin, comma - begin)));
      begin = comma + 1;
    }
    values = std::move(numbers);
  };
  return *this;
}

FlagSet& FlagSet::words(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  impl_->last = impl_->app.add_option(name, values, help)->group(impl_->title);
  return *this;
}

FlagSet& FlagSet::flag(const std::string& names, bool& value, const std::string& help) {
  impl_->last = impl_->app.add_flag(names, value, help)->group(impl_->title);
  return *this;
}

FlagSet& FlagSet::between(double low, double high) {
  impl_->latest().low = low;
  impl_->latest().high = high;
  return *this;
}

FlagSet& FlagSet::at_least(double low) {
  impl_->latest().low = low;
  return *this;
}

FlagSet& FlagSet::one_of(const std::vector<std::string>& values) {
  impl_->latest().choices = values;
  return *this;
}

FlagSet& FlagSet::environment(std::string_view variable) {
  Declared& declared = impl_->latest();
  declared.variable = variable;
  declared.option->description(fmt::format("{} (env {})", declared.option->get_description(), variable));
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
  const auto see_help = [&](const char* what) {
    return UsageError(fmt::format("{} (see `{} --help`)", what, impl_->name));
  };
  try {
    impl_->app.parse(std::move(arguments));
    for (Declared& declared : impl_->options) {
      const char* value =
          declared.given || declared.variable.empty() ? nullptr : std::getenv(declared.variable.c_str());
      if (value != nullptr && *value != '\0') Impl::assign(declared, value, declared.variable);
    }
  } catch (const CLI::CallForHelp&) {
    return Outcome::kHelp;
  } catch (const CLI::ParseError& error) {
    throw see_help(error.what());
  } catch (const UsageError& error) {
    throw see_help(error.what());
  }
  return Outcome::kRun;
}

void FlagSet::assign(const std::string& spelling, const std::string& text) {
  Impl::assign(impl_->find(spelling), text, spelling);
}

bool FlagSet::given(const std::string& spelling) const {
  return impl_->find(spelling).given;
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
