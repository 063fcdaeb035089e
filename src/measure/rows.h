// Rows of a benchmark: what is timed, how engines take turns, and what the samples say.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "measure/contender.h"

namespace tern::measure {

/// "pp512", "tg128 @ d4096": a prompt, or tokens one by one, behind `depth` tokens.
struct Test {
  int32_t prompt = 0, generate = 0;  // one of them is 0
  int32_t depth = 0;
  int32_t busy = 0;  // other processes that keep a core each busy meanwhile
  std::string name() const;
  int32_t tokens() const noexcept { return prompt + generate; }
};

/// One timed repetition. `cpu_seconds`: of all threads of this process.
struct Sample {
  double seconds = 0, cpu_seconds = 0;
};
using Series = std::vector<Sample>;

/// Time, and the wait for an idle process before each sample: an engine whose threads still spin after its turn would
/// take cores from the next one. A test seam.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double wall() = 0;  // seconds
  virtual double cpu() = 0;   // seconds, all threads of the process
  virtual void settle() = 0;
};
Clock& system_clock();

/// A warm-up of each contender that is not kept, then `repeats` rounds in which each has its turn: A B A B. All read
/// the same random tokens below `n_vocab`. One Series a contender.
std::vector<Series> take_turns(std::span<Contender* const> contenders, const Test& test, int32_t repeats,
                               int32_t n_vocab, Clock& clock);

struct Summary {
  double median = 0, low = 0, high = 0;
};
/// Of at least one value.
Summary summarize(std::span<const double> values);

/// Tokens a second, one a sample.
std::vector<double> rates(const Series& series, int32_t tokens);
/// How many times faster `ours` is: the median over the rounds, whose two samples saw the same state of the machine.
double paired_ratio(const Series& ours, const Series& theirs);
/// CPU time over wall time of `threads` threads, the median. Both engines spin while they wait for one another's
/// threads, so what is missing from 1 went to other processes.
double cpu_share(const Series& series, int threads);
inline constexpr double kContendedShare = 0.95;

}  // namespace tern::measure
