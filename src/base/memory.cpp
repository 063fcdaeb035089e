#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/cgroup.h"
#include "base/checked.h"
#include "base/error.h"

namespace tern {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLine = 64;

[[noreturn]] void refuse(size_t bytes) {
  fail(ErrorCode::kOutOfMemory,
       "the system refuses {} bytes ({} MB) of memory; {} MB are available. Use a smaller model or context, or raise "
       "the "
       "memory limit of this process",
       bytes, bytes >> 20, available_memory() >> 20);
}

/// Maps `bytes` (whole pages) at a 2 MB boundary: over-maps by one huge page and returns what sticks out. What is over
/// the last 2 MB is in small pages: a huge one would take up to 2 MB that nobody uses.
std::byte* map_huge(size_t bytes) {
  void* p =
      ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* const base = static_cast<std::byte*>(p);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  if (before > 0) ::munmap(base, before);
  if (before < kHugePage) ::munmap(base + before + bytes, kHugePage - before);
  ::madvise(base + before, bytes, MADV_HUGEPAGE);  // without huge pages it is slower, not wrong
  return base + before;
}

bool is_huge(size_t bytes) noexcept {
  return bytes >= kHugePage;
}

}  // namespace

Memory::Memory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes > SIZE_MAX / 2) refuse(bytes);
  if (is_huge(bytes)) {
    data_ = map_huge(round_up(bytes, static_cast<size_t>(::sysconf(_SC_PAGESIZE))));
  } else {
    data_ = static_cast<std::byte*>(std::aligned_alloc(kLine, round_up(bytes, kLine)));
    if (data_) std::memset(data_, 0, bytes);
  }
  if (!data_) refuse(bytes);
}

Memory::~Memory() {
  if (!data_) return;
  if (is_huge(size_)) {
    ::munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

size_t huge_page_bytes(const void* data, size_t size) {
  const auto first = reinterpret_cast<uintptr_t>(data), last = first + size;
  std::ifstream smaps("/proc/self/smaps");
  size_t total = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0, end = 0, kb = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin < last && end > first;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kb) == 1) {
      total += size_t{kb} << 10;
    }
  }
  return std::min(total, size);  // a mapping may be larger than the range asked for
}

uint64_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  uint64_t available = UINT64_MAX;
  for (std::string line; std::getline(meminfo, line);) {
    unsigned long long kb = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kb) == 1) available = uint64_t{kb} << 10;
  }
  return std::min(available, cgroup_memory_left("/").value_or(UINT64_MAX));
}

}  // namespace tern
