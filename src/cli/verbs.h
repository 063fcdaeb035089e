// The verbs of the command line: one file each declares its flags and does its work.
#pragma once
#include <functional>
#include <span>
#include <string_view>

#include "cli/flag_set.h"

namespace tern::cli {

/// What a verb does once its flags are parsed; returns the exit code. May throw tern::Error.
using Action = std::function<int()>;

struct Verb {
  std::string_view name, summary;
  Action (*setup)(FlagSet& set);  // declares the flags
};

/// In the order of `tern help`.
std::span<const Verb> verbs() noexcept;

Action setup_run(FlagSet& set);
Action setup_serve(FlagSet& set);
Action setup_show(FlagSet& set);
Action setup_plan(FlagSet& set);
Action setup_tokenize(FlagSet& set);
Action setup_logits(FlagSet& set);
Action setup_perplexity(FlagSet& set);
Action setup_bench(FlagSet& set);
Action setup_parity(FlagSet& set);
Action setup_transcode(FlagSet& set);
Action setup_synth(FlagSet& set);
Action setup_version(FlagSet& set);

/// Runs `tern` with its arguments (without the program's name) and returns the exit code: 0 done, 1 failed, 2 usage,
/// 130 interrupted. Nothing escapes: an error is one clear line on stderr.
int run_command_line(std::span<const std::string_view> arguments);

/// "0.1.0".
std::string_view version() noexcept;

}  // namespace tern::cli
