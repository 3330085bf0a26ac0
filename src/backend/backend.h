// Purpose: the operations a model is made of, on plain views; one implementation per kind of machine (ref,
// cpu, ...). In/out: float32 activations, row-major; shapes stand beside the pointers. Inputs and outputs do
// not overlap unless said. Thread: one caller (the engine thread); the backend spreads work over its pool.
// Contract of exactness: the result of one row (token) depends only on that row's own inputs and on the
// machine, never on how many rows a call has, on the order of sequences, on how a context is cut into chunks
// or on the number of threads: bit for bit. See docs/flow.md. Out of scope: which operations a model uses
// (model/), who owns which KV block (engine/kv_pool).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/packed_weight.h"
#include "base/dtype.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace quire {

// How linear layers compute. The weights are the same in all three.
enum class ComputeMode {
  kF32,  // float32 activations, float32 accumulation
  // Activations of 16 bits: bfloat16 for float weights; for quantized ones int16 with a scale per token and
  // 32 values, with integer dot products inside a group (tier amx: weights and activations in bfloat16).
  kBf16,
  kInt8,  // activations quantized per token and per 32 values to int8; integer dot products inside a group
};
std::string_view compute_mode_name(ComputeMode mode);

// What linear() multiplies: x, or rms_norm(x) where a norm is given. The norm belongs to the layer because
// the rows are read once anyway, to round them.
struct LinearInput {
  const float* x = nullptr;  // [num_rows, k]
  std::int64_t num_rows = 0;
  const float* norm_weight = nullptr;  // [k] or null; then row t is x[t] / sqrt(mean(x[t]^2) + eps) * weight
  float norm_eps = 0.0f;
};

// One output of linear(), with y[t][j] = sum_c x[t][c] * weight[j][c] + bias[j]:
//   out[t][j] = y[t][j], or silu(gate's y[t][j]) * y[t][j] where there is a gate (SwiGLU); added to what is
//   there if `accumulate` (the residual connection).
struct LinearTarget {
  const PackedWeight* weight = nullptr;  // [n, k]
  const float* bias = nullptr;           // [n] or null
  float* out = nullptr;                  // [num_rows, n]
  // Round the activations of this target less than the mode does: int8 mode rounds to 16 bits, bf16 mode
  // keeps float32 for float weights. The output layer asks for it: its rounding goes straight into the
  // logprobs (measured: docs/flow.md, Numbers).
  bool finer_activations = false;
  const PackedWeight* gate = nullptr;  // [n, k] or null
  const float* gate_bias = nullptr;    // [n] or null
  bool accumulate = false;
};

// Memory for the keys and values of one model: num_layers x num_blocks blocks of block_size tokens.
struct KvSpec {
  std::int64_t num_layers = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t block_size = 16;
  std::int64_t num_blocks = 0;
  DType dtype = DType::kF32;
  // Bytes of one block over all layers, keys and values.
  std::size_t block_bytes() const {
    return static_cast<std::size_t>(2 * num_layers * num_kv_heads * head_dim * block_size) *
           dtype_bytes(dtype);
  }
};

class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const KvSpec& spec() const = 0;
};

// Which sequences the rows of a batch belong to. Row t of sequence s is the token at position
// context_lens[s] - (query_starts[s + 1] - query_starts[s]) + (t - query_starts[s]) and attends to positions
// 0..its own (causal), or to the last `window` of them.
struct AttentionShape {
  std::int64_t num_seqs = 0;
  const std::int32_t* query_starts = nullptr;  // [num_seqs + 1]
  const std::int32_t* context_lens = nullptr;  // [num_seqs], tokens in the cache after store_kv()
  const std::int32_t* block_tables = nullptr;  // [num_seqs, block_table_stride], block numbers
  std::int64_t block_table_stride = 0;
  // Streaming eviction (StreamingLLM, arXiv:2309.17453); all three null = no sequence has it. A row at
  // position p of a sequence with kv_windows[s] > 0 sees the sinks [0, kv_sinks[s]) with its row of sink_q,
  // and from there on the last kv_windows[s] positions up to p with its row of q. Blocks without any of these
  // are not read; their entries in block_tables may be negative.
  const std::int32_t* kv_sinks = nullptr;    // [num_seqs], at most kMaxKvSinks
  const std::int32_t* kv_windows = nullptr;  // [num_seqs]; 0 = all positions
  const float* sink_q = nullptr;             // as q, turned to the row's position within the cache
};

// The sinks are one split of the attention kernels.
inline constexpr std::int64_t kMaxKvSinks = 512;

struct AttentionParams {
  std::int64_t num_heads = 0;  // a multiple of the cache's num_kv_heads (grouped-query attention)
  float scale = 1.0f;          // multiplies q . k
  std::int64_t window = 0;     // sliding window in tokens, the present one included; 0 = none
  float softcap = 0.0f;        // scores become softcap * tanh(score / softcap); 0 = none
};

// What the rows of sequence s see.
struct AttentionReach {
  std::int64_t sinks = 0;
  std::int64_t window = 0;  // 0 = all
};
inline AttentionReach attention_reach(const AttentionShape& shape, const AttentionParams& params,
                                      std::int64_t s) {
  const std::int64_t window = shape.kv_windows == nullptr ? 0 : shape.kv_windows[s];
  // A layer that looks back no further by itself loses nothing and needs no sinks.
  if (window == 0 || (params.window > 0 && params.window <= window)) return {0, params.window};
  return {shape.kv_sinks[s], window};
}

// Time the caller spent in operations since the backend was made, by kind. The difference of two readings
// around a step, against the step's own time, says what a benchmark wants: the share outside linear and
// attention.
struct OpTimes {
  std::uint64_t linear_ns = 0;     // linear(): what it fuses included
  std::uint64_t attention_ns = 0;  // attention()
  std::uint64_t other_ns = 0;      // embed, norms, sums, gates, rope, store_kv
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "ref", "cpu"
  virtual ComputeMode compute_mode() const = 0;
  // What was chosen and why, refused variants included; one line each, for the start-up report and
  // /v1/engine.
  virtual std::vector<std::string> report() const = 0;
  virtual ThreadPool& pool() = 0;
  virtual OpTimes op_times() const = 0;  // from any thread

  // Weights.
  virtual Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows) = 0;
  virtual Result<std::unique_ptr<PackedWeight>> pack(const FloatRows& rows) = 0;
  // All that the packed form depends on besides the weight itself: backends with the same key can restore()
  // each other's images. "" = this backend's weights cannot be stored.
  virtual std::string packing_key() const { return {}; }
  // The weight of an image whose arrays owner keeps alive; they are used in place and may be read only. An
  // error if they do not fit its numbers.
  virtual Result<std::unique_ptr<PackedWeight>> restore(const PackedImage& image,
                                                        std::shared_ptr<const void> owner);

  // out[t] = row ids[t] of table, as float32. ids lie in [0, table.n()).  out: [ids.size(), table.k()]
  virtual void embed(const PackedWeight& table, std::span<const std::int32_t> ids, float* out) = 0;
  // All targets share the input and its k. No output may overlap the input.
  virtual void linear(const LinearInput& input, std::span<const LinearTarget> targets) = 0;

  // out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight; x, out: [num_rows, dim], may be the same; weight:
  // [dim].
  virtual void rms_norm(const float* x, const float* weight, float eps, std::int64_t num_rows,
                        std::int64_t dim, float* out) = 0;
  // x += y; both [count].
  virtual void add(float* x, const float* y, std::int64_t count) = 0;
  // out = silu(gate) * up; all [count]; out may be gate.
  virtual void silu_mul(const float* gate, const float* up, std::int64_t count, float* out) = 0;
  // Rotates the first 2 * half_dim values of each head in place: pairs (i, i + half_dim) by the angle of the
  // row's position. x: [num_rows, num_heads, head_dim]; cos, sin: [max_position, half_dim]; positions:
  // [num_rows].
  virtual void rope(float* x, std::int64_t num_rows, std::int64_t num_heads, std::int64_t head_dim,
                    std::int64_t half_dim, const float* cos, const float* sin,
                    const std::int32_t* positions) = 0;

  // Key-value cache.
  // Bytes of one block of such a cache, over all layers: a backend may hold scales beside the values.
  virtual std::size_t kv_block_bytes(const KvSpec& spec) const { return spec.block_bytes(); }
  virtual Result<std::unique_ptr<KvCache>> make_kv_cache(const KvSpec& spec) = 0;
  // Stores row t of k and v ([num_rows, num_kv_heads, head_dim]) at slot slots[t] = block * block_size +
  // offset.
  virtual void store_kv(KvCache& cache, std::int64_t layer, const float* k, const float* v,
                        std::int64_t num_rows, const std::int32_t* slots) = 0;
  // q, out: [num_rows, num_heads, head_dim], num_rows = query_starts[num_seqs].
  virtual void attention(const float* q, const KvCache& cache, std::int64_t layer,
                         const AttentionShape& shape, const AttentionParams& params, float* out) = 0;
  // Copies whole blocks over all layers (copy-on-write).
  virtual void copy_block(KvCache& cache, std::int32_t from, std::int32_t to) = 0;
};

// How the `cpu` backend cuts its work; results never depend on it. `quire build` measures what is best.
struct CpuTuning {
  std::int64_t panel_rows = 64;       // rows of activations per pass over a part's weights
  std::int64_t parts_per_thread = 8;  // parts of a linear layer per thread, within the two bounds below
  std::int64_t min_part_bytes = 32 << 10;
  std::int64_t max_part_bytes = 256 << 10;
};

struct BackendOptions {
  ComputeMode compute = ComputeMode::kF32;
  int num_threads = 1;
  std::string isa;  // "", or "generic", "avx2", "avx512", "avx512bf16", "amx": pins the tier; an error if it
                    // cannot run here
  CpuTuning tuning = {};
  bool pin_threads = false;  // each to a CPU of its own (base/thread_pool.h)
};
// name: "ref" or "cpu" (backend_list.cc). Unknown names and impossible tiers are errors that list what there
// is.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);

// Which mode `--compute auto` means on this machine for weights of this kind, and why (one sentence).
struct ComputeChoice {
  ComputeMode mode = ComputeMode::kF32;
  std::string reason;
};
ComputeChoice choose_compute_mode(std::string_view backend_name, const std::string& isa,
                                  bool weights_quantized, bool weights_all_f32);

}  // namespace quire
