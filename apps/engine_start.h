// Purpose: which engine file a start maps or writes. Cached files: one per model path, instruction set,
// compute mode and type of weights, in --engine-cache, else $QUIRE_ENGINE_CACHE, else $QUIRE_HOME/engines and
// its defaults (loader/catalogue.h); "off" means none. Whatever is wrong with a cached file is logged, and it
// is written again; a cache that cannot be written to costs a warning. Files that the user names are never
// replaced: what is wrong with them is an error. Thread: the main thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/app_support.h"
#include "backend/backend.h"
#include "base/result.h"
#include "loader/checkpoint.h"
#include "model/engine_file.h"
#include "model/engine_writer.h"

namespace quire {

// What `quire build -o DIR` writes into DIR.
inline constexpr const char* kEngineFileName = "model.qengine";

// The file that --engine-dir or, with an engine file or such a folder for MODEL, the model means; "" if
// neither does.
Result<std::string> engine_file_of(const ModelFlags& flags, const std::string& asked);
// Limits of the build become those of the flags that are not given.
ModelFlags with_engine_limits(const ModelFlags& flags, const EngineInfo& info);
// Whether a built file can be used by this backend.
Status check_built_engine(const EngineFile& file, const Checkpoint& checkpoint, Backend& backend,
                          std::optional<DType> hold_as);
std::vector<std::string> engine_info_lines(const EngineInfo& info);

struct EngineStart {
  std::unique_ptr<EngineFile> file;      // to load from
  std::unique_ptr<EngineWriter> writer;  // or to write to
  std::string path;
  EngineKey key;
  EngineInfo info;
  std::string problem;  // neither: why
  std::chrono::steady_clock::time_point begun;
};
EngineStart start_from_cache(const std::string& cache_flag, const Checkpoint& checkpoint, Backend& backend,
                             std::optional<DType> hold_as);
// The same for a cached file that could not be used.
EngineStart replace_in_cache(const std::string& cache_flag, const Checkpoint& checkpoint, Backend& backend,
                             std::optional<DType> hold_as);
// Completes what start.writer has been given; a line for the report.
std::string finish_in_cache(EngineStart& start);

}  // namespace quire
