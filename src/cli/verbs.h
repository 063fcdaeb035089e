// The verbs of the command line: one file each declares its flags and does its work.
#pragma once
#include <CLI/CLI.hpp>

#include <functional>
#include <span>
#include <string_view>

namespace tern::cli {

/// What a verb does once its flags are parsed; returns the exit code. May throw tern::Error.
using Action = std::function<int()>;

struct Verb {
  std::string_view name, summary;
  Action (*setup)(CLI::App& app);  // declares the flags on `app`
};

/// In the order of `tern help`.
std::span<const Verb> verbs() noexcept;

Action setup_run(CLI::App& app);
Action setup_show(CLI::App& app);
Action setup_plan(CLI::App& app);
Action setup_tokenize(CLI::App& app);
Action setup_logits(CLI::App& app);
Action setup_perplexity(CLI::App& app);
Action setup_bench(CLI::App& app);
Action setup_parity(CLI::App& app);
Action setup_transcode(CLI::App& app);
Action setup_synth(CLI::App& app);
Action setup_version(CLI::App& app);

/// Runs `tern` with its arguments (without the program's name) and returns the exit code: 0 done, 1 failed, 2 usage,
/// 130 interrupted. Nothing escapes: an error is one clear line on stderr.
int run_command_line(std::span<const std::string_view> arguments);

/// "0.1.0".
std::string_view version() noexcept;

}  // namespace tern::cli
