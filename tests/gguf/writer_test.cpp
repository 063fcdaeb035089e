#include "gguf/writer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gguf/examples.h"
#include "gguf/refusal.h"
#include "gguf/temp_folder.h"

namespace tern::gguf {
namespace {

using namespace testing;
namespace fs = std::filesystem;

/// Writes what `f` holds again.
void rewrite(const File& f, const std::string& path) {
  Writer out(path, f.metadata(), f.version());
  for (const TensorInfo& t : f.tensors()) out.add_tensor(t.name, t.type, {t.ne.begin(), t.ne.begin() + t.n_dims});
  for (const TensorInfo& t : f.tensors()) out.write_data(f.bytes(t));
  out.finish();
}

TEST(Writer, RewritesAFileByteForByte) {
  for (const uint32_t version : {2u, 3u}) {
    const TempFolder tmp;
    RawFile raw = every_value_type();
    raw.version = version;
    const std::string in = tmp.write("in.gguf", raw.build());
    rewrite(File::open(in), tmp / "out.gguf");
    EXPECT_EQ(read_all(tmp / "out.gguf"), read_all(in)) << version;
  }
}

TEST(Writer, PadsToTheAlignmentInTheMetadata) {
  const TempFolder tmp;
  RawFile raw = RawFile::model();
  raw.alignment = 64;
  raw.key("general.alignment", kU32, le(uint32_t{64})).tensor("a", {1}, 0, "abcd").tensor("b", {1}, 0, "efgh");
  const std::string in = tmp.write("in.gguf", raw.build());
  rewrite(File::open(in), tmp / "out.gguf");
  EXPECT_EQ(read_all(tmp / "out.gguf"), read_all(in));
}

TEST(Writer, AcceptsDataInAnyCut) {
  const TempFolder tmp;
  const std::string in = tmp.write("in.gguf", every_value_type().build());
  const File f = File::open(in);
  std::string all;
  for (const TensorInfo& t : f.tensors())
    all.append(reinterpret_cast<const char*>(f.bytes(t).data()), static_cast<size_t>(t.nbytes));
  for (const size_t cut : {size_t{1}, size_t{7}, all.size()}) {
    Writer out(tmp / "out.gguf", f.metadata(), f.version());
    for (const TensorInfo& t : f.tensors()) out.add_tensor(t.name, t.type, {t.ne.begin(), t.ne.begin() + t.n_dims});
    for (size_t at = 0; at < all.size(); at += cut) out.write_data(as_bytes(std::string_view(all).substr(at, cut)));
    out.finish();
    EXPECT_EQ(read_all(tmp / "out.gguf"), read_all(in)) << cut;
  }
}

TEST(Writer, WritesAVocabularyWithoutTensors) {
  const TempFolder tmp;
  Metadata m;
  m.set_string("general.architecture", "llama");
  m.set_strings("tokenizer.ggml.tokens", {"a", "b"});
  m.set_i32s("tokenizer.ggml.token_type", {1, 3});
  m.set_f32s("tokenizer.ggml.scores", {0, -1.5});
  Writer(tmp / "v.gguf", m).finish();
  const File f = File::open(tmp / "v.gguf");
  EXPECT_EQ(f.metadata().get_strings("tokenizer.ggml.tokens")->size(), 2u);
  EXPECT_EQ(f.metadata().get_ints("tokenizer.ggml.token_type"), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(f.metadata().get_floats("tokenizer.ggml.scores"), (std::vector<double>{0, -1.5}));
  EXPECT_TRUE(f.tensors().empty());
}

TEST(Writer, ShowsTheFileOnlyWhenItIsComplete) {
  const TempFolder tmp;
  const std::string path = tmp / "m.gguf";
  {
    Writer out(path, Metadata{});
    out.add_tensor("w", TensorType::F32, {2});
    out.write_data(as_bytes("abcd"));
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(Writer, AKilledProcessLeavesNothingBehind) {
  const TempFolder tmp;
  const pid_t child = fork();
  if (child == 0) {
    Writer out(tmp / "m.gguf", Metadata{});
    out.add_tensor("w", TensorType::F32, {2});
    out.write_data(as_bytes("abcd"));
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(tmp / "m.gguf").parent_path()), {}), 0);
}

TEST(Writer, ReplacesALeftoverAndDoesNotWriteThroughALink) {
  const TempFolder tmp;
  const std::string victim = tmp.write("victim", "mine");
  fs::create_symlink(victim, tmp / "m.gguf.partial");
  Writer out(tmp / "m.gguf", Metadata{});
  out.finish();
  EXPECT_EQ(read_all(victim), "mine");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(tmp / "m.gguf")));
  EXPECT_FALSE(fs::exists(fs::symlink_status(tmp / "m.gguf.partial")));
}

TEST(Writer, LeavesAnOlderFileAloneUntilFinish) {
  const TempFolder tmp;
  const std::string path = tmp.write("m.gguf", "older");
  Writer out(path, Metadata{});
  out.add_tensor("w", TensorType::F32, {1});
  out.write_data(as_bytes("abcd"));
  EXPECT_EQ(read_all(path), "older");
  out.finish();
  EXPECT_NE(read_all(path), "older");
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(Writer, SaysWhereItCannotWrite) {
  const TempFolder tmp;
  Writer out(tmp / "no such folder/m.gguf", Metadata{});
  expect_refused([&] { out.finish(); }, ErrorCode::kIo, "no such folder/m.gguf.partial': No such file or directory");
}

TEST(Writer, SaysWhenThereIsNoRoom) {
  const TempFolder tmp;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit little{.rlim_cur = 8, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  {
    Writer out(tmp / "m.gguf", Metadata{});
    expect_refused([&] { out.finish(); }, ErrorCode::kIo, "m.gguf.partial': File too large");
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(fs::exists(tmp / "m.gguf"));
}

TEST(Writer, RefusesTensorNamesThatReadersRefuse) {
  Writer out("never written.gguf", Metadata{});
  expect_refused([&] { out.add_tensor(std::string(64, 'n'), TensorType::F32, {1}); }, ErrorCode::kInvalidArgument,
                 "has 64 bytes, allowed are 1 to 63");
  out.add_tensor("w", TensorType::F32, {1});
  expect_refused([&] { out.add_tensor("w", TensorType::F32, {1}); }, ErrorCode::kInvalidArgument,
                 "tensor 'w' is announced twice");
}

TEST(WriterDeathTest, TreatsAWrongAmountOfDataAsABug) {
  const TempFolder tmp;
  const auto write = [&](std::string_view data) {
    Writer out(tmp / "m.gguf", Metadata{});
    out.add_tensor("w", TensorType::F32, {2});
    out.write_data(as_bytes(data));
    out.finish();
  };
  EXPECT_DEATH(write("abcd"), "tensor 'w' has 4 of 8 bytes");
  EXPECT_DEATH(write("abcdefghi"), "1 bytes more than announced");
}

}  // namespace
}  // namespace tern::gguf
