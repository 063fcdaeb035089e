// A model that a client asks to be loaded.
#pragma once
#include <string>

#include "server/http.h"
#include "server/registry.h"

namespace tern::server {

/// Begins to load `name` and answers once it serves, with `loaded`, or once it is known why it does not. kNotFound.
Reply load_model(Registry& models, const std::string& name, HttpResponse loaded, ErrorEnvelope envelope);

}  // namespace tern::server
