// How far a backend that rounds otherwise than the golden's engine is from it: distributions, choices, continuations.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "goldens/golden_model.h"

namespace tern::test {

struct Score {
  Differences differences;
  int choices = 0, other_choices = 0;  // argmax against the golden's, ties excepted
};

/// Every position of every case: the distribution of `m` against `reference`'s, and its choice against the golden's.
inline Score score(GoldenModel& reference, GoldenModel& m, const std::string& golden, KvType kv) {
  Score total;
  Stepper r(*reference.backend, reference.plan, {}), s(*m.backend, m.plan, {.kv = kv});
  for (const GoldenCase& c : read_golden(golden)) {
    r.reset();
    s.reset();
    const std::vector<float> wanted = r.run_one(c.tokens), got = s.run_one(c.tokens);
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      total.differences.add(compare(m.row(wanted, i), m.row(got, i)));
      ++total.choices;
      total.other_choices += !same_choice(m.row(got, i), c.argmax[i]);
    }
  }
  const Differences& d = total.differences;
  std::printf("%-28s %lld positions: mean KL %.2e, worst %.2e, mean top-10 overlap %.2f, %d choices differ\n",
              golden.c_str(), static_cast<long long>(d.positions), d.mean_kl(), d.worst_kl, d.mean(d.top10_overlap),
              total.other_choices);
  return total;
}

/// Cases whose greedy continuation leaves the golden's, a tie excepted.
inline int other_continuations(GoldenModel& m, const std::string& golden) {
  int other = 0;
  Stepper s(*m.backend, m.plan, {});
  for (const GoldenCase& c : read_golden(golden)) {
    s.reset();
    std::vector<float> logits = s.run_one(c.tokens);
    logits.erase(logits.begin(), logits.end() - m.plan.n_vocab);
    bool same = true;
    for (const int32_t token : c.greedy) {
      same = same && same_choice(logits, token);
      logits = s.run_one({token});
    }
    other += !same;
  }
  std::printf("%-28s %d greedy continuations differ\n", golden.c_str(), other);
  return other;
}

}  // namespace tern::test
