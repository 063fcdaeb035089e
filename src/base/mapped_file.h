// A read-only memory-mapped file.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace tern {

class MappedFile {
 public:
  MappedFile() = default;
  /// Maps the whole of `path`. Throws kNotFound / kIo with the path and the reason; a directory or an empty file is an
  /// error.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  const std::string& path() const noexcept { return path_; }
  /// Copies [offset, offset + to.size()) without making its pages part of this process. False when the file can no
  /// longer be read there.
  bool copy(size_t offset, std::span<std::byte> to) const noexcept;
  /// Tells the system that [offset, offset+size) will not be read again soon (after a repack). All pages that it
  /// touches leave this process, so that nothing of neighbours that are dropped one by one stays.
  void drop(size_t offset, size_t size) const noexcept;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
};

}  // namespace tern
