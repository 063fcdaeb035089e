#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tern {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer would wait for ever
  if (fd_ < 0) {
    const int e = errno;
    fail(e == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open '{}': {}", path, std::strerror(e));
  }
  struct stat st {};
  if (::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd_);
    fail(ErrorCode::kIo, "'{}' is not a regular file", path);
  }
  size_ = static_cast<size_t>(st.st_size);
  if (size_ == 0) {
    ::close(fd_);
    fail(ErrorCode::kBadFile, "'{}' is empty (0 bytes)", path);
  }
  void* p = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
  if (p == MAP_FAILED) {
    const int e = errno;
    ::close(fd_);
    fail(ErrorCode::kIo, "cannot map '{}' ({} bytes): {}", path, size_, std::strerror(e));
  }
  data_ = static_cast<const std::byte*>(p);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

bool MappedFile::copy(size_t offset, std::span<std::byte> to) const noexcept {
  for (size_t done = 0; done < to.size();) {
    const ssize_t n = ::pread(fd_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

void MappedFile::drop(size_t offset, size_t size) const noexcept {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(data_) + begin, offset + size - begin, MADV_DONTNEED);
}

}  // namespace tern
