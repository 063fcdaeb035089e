// The flags of one verb: a declaration each gives its spellings, where the value goes, its limits and its help. Hides
// the parser library, whose templates would otherwise be compiled in every verb.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tern::cli {

class FlagSet {
 public:
  /// `name` as usage shows it ("tern run"), `summary` the first line of help.
  FlagSet(std::string name, const std::string& summary);
  ~FlagSet();
  FlagSet(const FlagSet&) = delete;
  FlagSet& operator=(const FlagSet&) = delete;

  // `names`: "-n,--predict"; a name without dashes is a positional argument. The value there is the default, and help
  // shows it. Variables must live until the verb has run.
  FlagSet& option(const std::string& names, std::string& value, const std::string& help);
  FlagSet& option(const std::string& names, int32_t& value, const std::string& help);
  FlagSet& option(const std::string& names, int64_t& value, const std::string& help);
  FlagSet& option(const std::string& names, uint64_t& value, const std::string& help);
  FlagSet& option(const std::string& names, float& value, const std::string& help);
  FlagSet& option(const std::string& names, double& value, const std::string& help);
  FlagSet& option(const std::string& names, std::vector<int32_t>& values, const std::string& help);    // "1,2,3"
  FlagSet& words(const std::string& name, std::vector<std::string>& values, const std::string& help);  // positionals
  FlagSet& flag(const std::string& names, bool& value, const std::string& help);

  // About the option declared last.
  FlagSet& between(double low, double high);  // both included
  FlagSet& at_least(double low);
  FlagSet& one_of(const std::vector<std::string>& values);
  /// Where its value comes from when no argument gives one; a bad value there is an error that names the variable.
  FlagSet& environment(std::string_view variable);
  FlagSet& required();
  FlagSet& excludes(const std::string& other);

  /// The heading in help of what is declared from here on.
  FlagSet& group(std::string title);

  enum class Outcome : uint8_t { kRun, kHelp };
  /// Fills the variables; kHelp when `--help` asks for it. UsageError for what does not fit the declarations; arguments
  /// that fit none are left over.
  Outcome parse(std::vector<std::string> arguments);
  /// Gives one option (with its dashes; takes_value says that there is one) a value, as an argument would. UsageError.
  void assign(const std::string& spelling, const std::string& text);
  /// After parse: an argument or the environment gave the option its value.
  bool given(const std::string& spelling) const;
  std::vector<std::string> leftovers() const;
  std::string help() const;
  const std::string& name() const noexcept;
  /// Every spelling, with its dashes.
  std::vector<std::string> spellings() const;
  /// `spelling` is an option's, and the argument after it is its value.
  bool takes_value(const std::string& spelling) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::cli
