#include "cli/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>

#include "gguf/temp_folder.h"

namespace tern::test {
namespace {

/// The child's side: never returns.
[[noreturn]] void exec_tern(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{TERN_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

size_t count(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

Finished run_tern(const std::vector<std::string>& arguments, std::string_view input,
                  const std::vector<std::string>& environment) {
  const gguf::testing::TempFolder folder;
  const std::string out = folder / "out", err = folder / "err";
  std::array<int, 2> pipe_in{};
  if (pipe(pipe_in.data()) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_in[0], STDIN_FILENO);
    close(pipe_in[1]);
    dup2(open(out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDERR_FILENO);
    for (const std::string& variable : environment) {
      const size_t equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    exec_tern(arguments);
  }
  close(pipe_in[0]);
  // Inputs of tests are shorter than a pipe's buffer: this does not block.
  EXPECT_EQ(write(pipe_in[1], input.data(), input.size()), static_cast<ssize_t>(input.size()));
  close(pipe_in[1]);
  Finished finished;
  finished.code = wait_for(child);
  finished.out = gguf::testing::read_all(out);
  finished.err = gguf::testing::read_all(err);
  return finished;
}

Finished interrupt_tern(const std::vector<std::string>& arguments) {
  const gguf::testing::TempFolder folder;
  const std::string err = folder / "err";
  std::array<int, 2> out{};
  if (pipe(out.data()) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    dup2(open(err.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDERR_FILENO);
    exec_tern(arguments);
  }
  close(out[1]);
  Finished finished;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = read(out[0], buffer.data(), buffer.size())) > 0;) {
    if (finished.out.empty()) kill(child, SIGINT);
    finished.out.append(buffer.data(), static_cast<size_t>(n));
  }
  close(out[0]);
  finished.code = wait_for(child);
  finished.err = gguf::testing::read_all(err);
  return finished;
}

Finished chat_with_tern(const std::vector<std::string>& arguments, const std::vector<std::string>& typed) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return {};
  const std::string name = ptsname(terminal);
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    const int side = open(name.c_str(), O_RDWR);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(side, fd);
    setenv("TERM", "xterm", 1);
    exec_tern(arguments);
  }
  Finished finished;
  size_t sent = 0;
  std::array<char, 4096> buffer{};
  constexpr int kPatience = 120'000;  // ms without a sign of life: a hang, which the test then reports
  while (true) {
    pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPatience) <= 0) {
      kill(child, SIGKILL);
      break;
    }
    const ssize_t n = read(terminal, buffer.data(), buffer.size());
    if (n <= 0) break;  // the child's side is closed
    finished.out.append(buffer.data(), static_cast<size_t>(n));
    // The editor redraws its line after every key: a prompt that waits is one at the very end.
    if (sent < typed.size() && finished.out.ends_with(">>> \x1b[K") &&
        count(finished.out, "\r>>> \x1b[K") >= sent + 1) {
      const std::string& keys = typed[sent++];
      if (write(terminal, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) break;
    }
  }
  finished.code = wait_for(child);
  close(terminal);
  return finished;
}

}  // namespace tern::test
