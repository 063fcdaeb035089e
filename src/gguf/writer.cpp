#include "gguf/writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/encode.h"
#include "gguf/wire.h"

namespace tern::gguf {

struct Writer::Impl {
  std::string path, partial;
  Metadata metadata;
  uint32_t version;
  uint32_t alignment;
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string> names;
  uint64_t data_end = 0;  // of the announced tensors, padded
  std::FILE* file = nullptr;
  bool named = false;    // `partial` is ours; before that the file has no name and is gone with the process
  size_t current = 0;    // tensor being written
  uint64_t written = 0;  // bytes of it

  [[noreturn]] void io_failed(std::string_view doing) const {
    fail(ErrorCode::kIo, "cannot {} '{}': {}", doing, partial, std::strerror(errno));
  }

  void append(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;  // fwrite must not see the null pointer of an empty vector
    if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) io_failed("write");
  }

  void open() {
    if (file) return;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    int fd = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0) {  // a file system that cannot
      ::unlink(partial.c_str());
      fd = ::open(partial.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
      named = fd >= 0;
    }
    if (fd < 0 || (file = ::fdopen(fd, "wb")) == nullptr) io_failed("create");
    const std::string header = encode_header(version, alignment, metadata, tensors);
    append(std::as_bytes(std::span(header)));
  }

  /// Pads the current tensor once it is complete and goes on to the next.
  void close_tensor() {
    const std::vector<std::byte> zeros(round_up<uint64_t>(written, alignment) - written);
    append(zeros);
    ++current;
    written = 0;
  }

  /// Names and closes the file; the error of an earlier write may surface only here.
  void close() {
    if (std::fflush(file) != 0 || ::fsync(::fileno(file)) != 0) io_failed("write");
    if (!named) {
      const std::string self = "/proc/self/fd/" + std::to_string(::fileno(file));
      ::unlink(partial.c_str());
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, partial.c_str(), AT_SYMLINK_FOLLOW) != 0) io_failed("create");
      named = true;
    }
    if (std::fclose(std::exchange(file, nullptr)) != 0) io_failed("write");
  }
};

Writer::Writer(std::string path, const Metadata& metadata, uint32_t version) : impl_(std::make_unique<Impl>()) {
  CHECK(version == 2 || version == 3, "version {}", version);
  // The finished file takes the place of `path`: never of a device, a pipe or a folder.
  if (struct stat st{}; ::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
    fail(ErrorCode::kInvalidArgument, "'{}' exists and is not a regular file; name a file to write", path);
  impl_->alignment = alignment_of(metadata, path);
  impl_->partial = path + ".partial";
  impl_->path = std::move(path);
  impl_->metadata = metadata;
  impl_->version = version;
}

Writer::~Writer() {
  if (impl_->file) std::fclose(impl_->file);
  if (impl_->named) ::unlink(impl_->partial.c_str());
}

void Writer::add_tensor(std::string name, TensorType type, std::vector<int64_t> ne) {
  CHECK(!impl_->file, "add_tensor('{}') after write_data", name);
  CHECK(ne.size() <= kMaxDims, "tensor '{}' has {} dimensions", name, ne.size());
  if (name.empty() || name.size() > kMaxTensorName)
    fail(ErrorCode::kInvalidArgument, "tensor name '{}' has {} bytes, allowed are 1 to {}", name, name.size(),
         kMaxTensorName);
  if (!impl_->names.insert(name).second) fail(ErrorCode::kInvalidArgument, "tensor '{}' is announced twice", name);
  TensorInfo t;
  t.name = std::move(name);
  t.type = type;
  t.n_dims = static_cast<uint32_t>(ne.size());
  std::copy(ne.begin(), ne.end(), t.ne.begin());
  t.offset = impl_->data_end;
  t.nbytes = tensor_bytes(type, t.ne);
  impl_->data_end = round_up<uint64_t>(t.offset + t.nbytes, impl_->alignment);
  impl_->tensors.push_back(std::move(t));
}

void Writer::write_data(std::span<const std::byte> bytes) {
  impl_->open();
  while (!bytes.empty()) {
    CHECK(impl_->current < impl_->tensors.size(), "{} bytes more than announced", bytes.size());
    const TensorInfo& t = impl_->tensors[impl_->current];
    const auto n = static_cast<size_t>(std::min<uint64_t>(t.nbytes - impl_->written, bytes.size()));
    impl_->append(bytes.first(n));
    impl_->written += n;
    if (impl_->written == t.nbytes) impl_->close_tensor();
    bytes = bytes.subspan(n);
  }
}

void Writer::finish() {
  impl_->open();
  CHECK(impl_->current == impl_->tensors.size(), "tensor '{}' has {} of {} bytes", impl_->tensors[impl_->current].name,
        impl_->written, impl_->tensors[impl_->current].nbytes);
  impl_->close();
  if (std::rename(impl_->partial.c_str(), impl_->path.c_str()) != 0)
    fail(ErrorCode::kIo, "cannot rename '{}' to '{}': {}", impl_->partial, impl_->path, std::strerror(errno));
  impl_->named = false;
}

}  // namespace tern::gguf
