#include "measure/host.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace tern::measure {
namespace {

/// What stands behind `key` and a separator in a file of such lines; empty when there is none.
std::string field(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find_first_not_of(" \t:", key.size());
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

uint64_t kilobytes(const char* path, const std::string& key) {
  unsigned long long kb = 0;
  return std::sscanf(field(path, key).c_str(), "%llu", &kb) == 1 ? uint64_t{kb} << 10 : 0;
}

/// "always [madvise] never" -> "madvise".
std::string chosen(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

/// Seconds that processors were not idle since the start, all together; the last columns are those of guests, which
/// are counted as user time already.
double busy_seconds() {
  std::istringstream in(field("/proc/stat", "cpu "));
  enum Column : size_t { kIdle = 3, kIoWait = 4, kColumns = 8 };
  double ticks = 0, value = 0;
  for (size_t i = 0; i < kColumns && in >> value; ++i)
    if (i != kIdle && i != kIoWait) ticks += value;
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

Host this_host() {
  Host host;
  host.cpu = field("/proc/cpuinfo", "model name");
  host.cores = static_cast<int>(std::thread::hardware_concurrency());
  host.memory = kilobytes("/proc/meminfo", "MemTotal");
  utsname name{};
  if (::uname(&name) == 0) host.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  host.huge_pages = chosen("/sys/kernel/mm/transparent_hugepage/enabled");
  return host;
}

Load host_load(double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const double before = busy_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double busy = busy_seconds() - before;
  const std::chrono::duration<double> slept = std::chrono::steady_clock::now() - start;
  Load load{.busy = busy / slept.count()};
  std::ifstream("/proc/loadavg") >> load.average;
  return load;
}

uint64_t peak_resident() {
  return kilobytes("/proc/self/status", "VmHWM");
}

bool reset_peak_resident() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  return out.good();
}

void read_through(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> buffer(size_t{4} << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
  }
}

BusyNeighbours::BusyNeighbours(int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const pid_t parent = ::getpid(), child = ::fork();
    if (child < 0) fail(ErrorCode::kIo, "cannot start a busy process beside the measurement");
    if (child == 0) {  // of a process with threads: nothing here may allocate or lock
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(0);
      for (volatile bool forever = true; forever;) {
      }
      ::_exit(0);
    }
    children_.push_back(child);
  }
}

BusyNeighbours::~BusyNeighbours() {
  for (const pid_t child : children_) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

}  // namespace tern::measure
