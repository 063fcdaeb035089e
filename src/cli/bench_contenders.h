// The two engines that `tern bench` times, behind one interface.
#pragma once
#include <memory>

#include "cli/libllama.h"
#include "engine/model.h"
#include "measure/contender.h"

namespace tern::cli {

/// `model` outlives it.
std::unique_ptr<measure::Contender> make_contender(Model& model);
/// Reads what fills the cache with `fill_threads`, and everything timed with `threads`. `model` outlives it.
std::unique_ptr<measure::Contender> make_contender(LlamaModel& model, int threads, int fill_threads);

}  // namespace tern::cli
