// Which logical CPUs are worth a thread: Linux's /sys, the affinity mask and the cgroup quota.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/cgroup.h"
#include "base/thread_pool.h"

namespace tern {
namespace {

/// "0-3,8" -> {0,1,2,3,8}; empty when the file is absent.
std::set<int> read_cpu_list(const std::string& path) {
  std::ifstream in(path);
  std::set<int> cpus;
  for (std::string part; std::getline(in, part, ',');) {
    std::istringstream range(part);
    int first = 0, last = 0;
    char dash = 0;
    if (!(range >> first)) continue;
    if (!(range >> dash >> last)) last = first;
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

int read_int(const std::string& path, int otherwise) {
  std::ifstream in(path);
  int value = otherwise;
  return in >> value ? value : otherwise;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// Keeps the performance cores of a hybrid CPU: a phase is as slow as its slowest thread. Intel lists them; elsewhere
/// the kernel states a capacity (1024 = the fastest).
void drop_slow_cores(std::vector<int>& cpus) {
  const std::set<int> performance = read_cpu_list("/sys/devices/cpu_core/cpus");
  const auto capacity = [](int cpu) {
    return read_int("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", 1024);
  };
  int best = 0;
  for (int cpu : cpus) best = std::max(best, capacity(cpu));
  std::vector<int> kept;
  for (int cpu : cpus) {
    if (!performance.empty() ? performance.count(cpu) != 0 : capacity(cpu) * 4 >= best * 3) kept.push_back(cpu);
  }
  if (!kept.empty()) cpus = kept;
}

}  // namespace

int default_threads() {
  std::vector<int> cpus = allowed_cpus();
  if (cpus.empty()) return 1;
  drop_slow_cores(cpus);
  std::set<std::set<int>> cores;  // a core is the set of its hardware threads
  for (int cpu : cpus) {
    std::set<int> core =
        read_cpu_list("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    if (core.empty()) core.insert(cpu);
    cores.insert(std::move(core));
  }
  auto threads = static_cast<double>(cores.size());
  if (const auto quota = cgroup_cpu_quota("/")) threads = std::min(threads, std::floor(*quota));
  return std::max(1, static_cast<int>(threads));
}

}  // namespace tern
