// `tern serve`: models, the APIs over them, and who may ask.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "server/http_server.h"
#include "server/registry.h"
#include "server/streams.h"

namespace tern::server {

struct ServerOptions {
  HttpOptions http{};
  RegistryOptions models{};
  StreamLimits streams{};
  std::vector<std::string> api_keys{};      // a request needs one of them; none: everybody may ask
  std::vector<std::string> cors_origins{};  // "https://chat.example": pages that may ask, besides this machine's
};

class Server {
 public:
  /// Listens. Errors as HttpServer; kInvalidArgument for an origin that is not exact ("*"), and for a host that others
  /// can reach without an API key.
  explicit Server(ServerOptions options);
  ~Server();

  Registry& models() noexcept;
  uint16_t port() const noexcept;
  void run(bool signals);
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::server
