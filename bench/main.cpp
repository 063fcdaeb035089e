// The main of a benchmark that registers what it measures itself.
#include <benchmark/benchmark.h>

namespace tern::cpu {
void register_all();
}

int main(int argc, char** argv) {
  tern::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
