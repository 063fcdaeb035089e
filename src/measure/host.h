// The machine a measurement was made on, and what else went on there.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tern::measure {

struct Host {
  std::string cpu;         // "AMD EPYC"
  int cores = 0;           // this process may run on
  uint64_t memory = 0;     // bytes
  std::string system;      // "Linux 6.1.0 x86_64"
  std::string huge_pages;  // transparent ones: "always", "madvise", "never"; empty where unknown
};
Host this_host();

struct Load {
  double busy = 0;     // cores that others used, or that the hypervisor withheld, while this process slept
  double average = 0;  // the system's load average over a minute, which includes this process
};
/// Sleeps for `seconds`; the kernel counts in hundredths.
Load host_load(double seconds);

/// The most memory this process had resident since it started or since the reset; 0 where unknown.
uint64_t peak_resident();
/// False where the system has no such thing.
bool reset_peak_resident();

/// Reads a file once, so that it lies in the page cache as far as there is room.
void read_through(const std::string& path);

/// Processes that keep a core each busy for the lifetime of the object.
class BusyNeighbours {
 public:
  explicit BusyNeighbours(int32_t count);
  ~BusyNeighbours();
  BusyNeighbours(const BusyNeighbours&) = delete;
  BusyNeighbours& operator=(const BusyNeighbours&) = delete;

 private:
  std::vector<pid_t> children_;
};

}  // namespace tern::measure
