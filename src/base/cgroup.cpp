#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace tern {
namespace {

/// A v1 "no limit" is 2^63 rounded down to a page; anything near it is no limit.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<uint64_t> read_number(const std::string& path) {
  const auto line = first_line(path);
  if (!line || line->empty() || line->find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  if (line->size() > 19) return UINT64_MAX;
  return std::stoull(*line);
}

/// The number after `key` in a "key value" file such as memory.stat; 0 when absent.
uint64_t stat_field(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string name;
  for (uint64_t value = 0; in >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

/// The directories of the process's group and of all its ancestors, for v2 ("" controller) or a v1 controller.
std::vector<std::string> group_dirs(const std::string& root, const std::string& controller) {
  std::vector<std::string> dirs;
  const std::string mount = root + (controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller);
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    std::istringstream names(line.substr(a + 1, b - a - 1));
    bool wanted = controller.empty() && b == a + 1;
    for (std::string name; std::getline(names, name, ',');) wanted |= !controller.empty() && name == controller;
    if (!wanted) continue;
    // Inside a container the path may name a directory of the host; the mount itself is then the group.
    for (std::string path = line.substr(b + 1); path.size() > 1; path.resize(path.rfind('/'))) {
      dirs.push_back(mount + path);
    }
    dirs.push_back(mount);
  }
  return dirs;
}

struct MemoryFiles {
  const char *controller, *limit, *used, *reclaimable;
};
constexpr MemoryFiles kMemoryFiles[] = {
    {"", "/memory.max", "/memory.current", "inactive_file"},
    {"memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"},
};

}  // namespace

std::optional<uint64_t> cgroup_memory_left(const std::string& root) {
  std::optional<uint64_t> left;
  for (const MemoryFiles& files : kMemoryFiles) {
    for (const std::string& dir : group_dirs(root, files.controller)) {
      const auto limit = read_number(dir + files.limit), used = read_number(dir + files.used);
      if (!limit || !used || *limit >= kNoLimit) continue;
      const uint64_t cache = stat_field(dir + "/memory.stat", files.reclaimable);
      const uint64_t busy = *used - std::min(*used, cache);
      const uint64_t here = *limit - std::min(*limit, busy);
      left = std::min(left.value_or(here), here);
    }
  }
  return left;
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> quota;
  const auto take = [&](double micros, double period) {
    if (micros <= 0 || period <= 0) return;
    quota = std::min(quota.value_or(micros / period), micros / period);
  };
  for (const std::string& dir : group_dirs(root, "")) {
    std::istringstream line(first_line(dir + "/cpu.max").value_or(""));  // "max 100000" or "150000 100000"
    double micros = 0, period = 0;
    if (line >> micros >> period) take(micros, period);
  }
  for (const std::string& dir : group_dirs(root, "cpu")) {
    const auto micros = read_number(dir + "/cpu.cfs_quota_us"), period = read_number(dir + "/cpu.cfs_period_us");
    if (micros && period) take(static_cast<double>(*micros), static_cast<double>(*period));
  }
  return quota;
}

}  // namespace tern
