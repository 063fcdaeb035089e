// Limits that a control group (a container, a systemd unit) puts on this process; v1 and v2.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tern {

/// Bytes the process may still allocate under the tightest group above it, page cache that would be reclaimed counted
/// as free; nullopt when nothing limits it. `root` is "/" (tests give a directory with the same files).
std::optional<uint64_t> cgroup_memory_left(const std::string& root);

/// CPUs' worth of time the tightest group grants, e.g. 1.5; nullopt when nothing limits it.
std::optional<double> cgroup_cpu_quota(const std::string& root);

}  // namespace tern
