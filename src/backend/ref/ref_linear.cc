#include "backend/ref/ref_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/core.h>

#include "backend/compute_mode.h"
#include "backend/ref/ref_ops.h"
#include "backend/weight_check.h"
#include "base/check.h"
#include "base/dtype.h"

namespace quire::ref {
namespace {

// How a layer rounds its activations.
enum Rounding { kNone, kToBf16, kToInt16, kToInt8, kNumRoundings };

// A weight whose rows can be had as float32, exactly as the checkpoint's format defines them.
class RefWeight : public PackedWeight {
 public:
  virtual void dequantize_row(std::int64_t row, float* out) const = 0;  // [k]
  // What linear.cc of the cpu backend does where it has every kernel.
  virtual Rounding rounding(ComputeMode mode, bool finer) const = 0;
};

class GroupedWeight final : public RefWeight {
 public:
  explicit GroupedWeight(const GroupedRows& rows) : rows_(rows) {}
  std::int64_t n() const override { return rows_.n; }
  std::int64_t k() const override { return rows_.k; }
  std::size_t num_bytes() const override {
    return rows_.q.size() + 4 * (rows_.scales.size() + rows_.mins.size());
  }
  bool is_quantized() const override { return true; }
  std::string layout_name() const override {
    return fmt::format("ref int{} g{} f32-scale{}", rows_.bits, rows_.group_size,
                       rows_.mins.empty() ? "" : "+min");
  }
  Rounding rounding(ComputeMode mode, bool finer) const override {
    if (mode == ComputeMode::kF32 || rows_.group_size % kIntegerPiece != 0) return kNone;
    return mode == ComputeMode::kInt8 && !finer ? kToInt8 : kToInt16;
  }
  void dequantize_row(std::int64_t row, float* out) const override {
    const std::int64_t groups_per_row = rows_.k / rows_.group_size;
    for (std::int64_t c = 0; c < rows_.k; ++c) {
      const auto group = static_cast<std::size_t>(row * groups_per_row + c / rows_.group_size);
      const float scale = rows_.scales[group];
      const int q = rows_.q[static_cast<std::size_t>(row * rows_.k + c)];
      out[c] = rows_.mins.empty() ? scale * static_cast<float>(q - rows_.constant_zero)
                                  : scale * static_cast<float>(q) - rows_.mins[group];
    }
  }

 private:
  const GroupedRows rows_;
};

class FloatWeight final : public RefWeight {
 public:
  explicit FloatWeight(const FloatRows& rows) : n_(rows.n), k_(rows.k), storage_(rows.storage) {
    const auto* bytes = static_cast<const std::byte*>(rows.data);
    data_.assign(bytes, bytes + static_cast<std::size_t>(n_ * k_) * dtype_bytes(storage_));
  }
  std::int64_t n() const override { return n_; }
  std::int64_t k() const override { return k_; }
  std::size_t num_bytes() const override { return data_.size(); }
  bool is_quantized() const override { return false; }
  std::string layout_name() const override { return fmt::format("ref {}", dtype_name(storage_)); }
  Rounding rounding(ComputeMode mode, bool finer) const override {
    const bool rounds = mode == ComputeMode::kInt8 || (mode == ComputeMode::kBf16 && !finer);
    return rounds && storage_ == DType::kBf16 ? kToBf16 : kNone;
  }
  void dequantize_row(std::int64_t row, float* out) const override {
    const std::size_t width = dtype_bytes(storage_);
    const std::byte* source = data_.data() + static_cast<std::size_t>(row * k_) * width;
    for (std::int64_t c = 0; c < k_; ++c, source += width) {
      std::uint16_t half = 0;
      if (storage_ == DType::kF32) {
        std::memcpy(&out[c], source, sizeof(float));
      } else {
        std::memcpy(&half, source, sizeof(half));
        out[c] = storage_ == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
      }
    }
  }

 private:
  std::int64_t n_;
  std::int64_t k_;
  DType storage_;
  std::vector<std::byte> data_;
};

const RefWeight& as_ref(const PackedWeight& weight) {
  const auto* ref = dynamic_cast<const RefWeight*>(&weight);
  QUIRE_CHECK(ref != nullptr) << "weight was packed by another backend: " << weight.layout_name();
  return *ref;
}

double dot(const float* a, const float* b, std::int64_t count) {
  // Eight sums instead of one, only so that the additions need not wait for each other.
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (std::int64_t lane = 0; lane < 8; ++lane)
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
  for (; i < count; ++i) sums[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The values that the rows of x have then. For integers that is q * scale: a sum of products of the
// dequantized numbers is, in double, the same sum that integer dot products and scales give.
std::vector<float> activations(Rounding rounding, const float* x, std::int64_t num_rows, std::int64_t k) {
  std::vector<float> values(x, x + num_rows * k);
  if (rounding == kNone) return values;
  if (rounding == kToBf16) {
    for (float& value : values) value = bf16_to_f32(f32_to_bf16(value));
    return values;
  }
  std::vector<std::int16_t> q(static_cast<std::size_t>(k));
  std::vector<float> scales(static_cast<std::size_t>((k + kActivationGroup - 1) / kActivationGroup));
  for (std::int64_t t = 0; t < num_rows; ++t) {
    float* row = values.data() + t * k;
    quantize_row(row, k, rounding == kToInt8 ? kInt8Limit : kInt16Limit, q.data(), scales.data());
    for (std::int64_t c = 0; c < k; ++c)
      row[c] = static_cast<float>(q[static_cast<std::size_t>(c)]) *
               scales[static_cast<std::size_t>(c / kActivationGroup)];
  }
  return values;
}

}  // namespace

Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows) {
  QUIRE_RETURN_IF_ERROR(check_rows(rows));
  std::uint8_t all_values = 0;
  for (const std::uint8_t q : rows.q) all_values |= q;
  QUIRE_RETURN_IF_ERROR(check_value_bits(all_values, rows.bits));
  return std::unique_ptr<PackedWeight>(std::make_unique<GroupedWeight>(rows));
}

Result<std::unique_ptr<PackedWeight>> pack(const FloatRows& rows) {
  QUIRE_RETURN_IF_ERROR(check_rows(rows));
  return std::unique_ptr<PackedWeight>(std::make_unique<FloatWeight>(rows));
}

void embed(const PackedWeight& table, std::span<const std::int32_t> ids, float* out) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    QUIRE_CHECK(ids[i] >= 0 && ids[i] < table.n()) << "token id " << ids[i] << " of " << table.n();
    as_ref(table).dequantize_row(ids[i], out + static_cast<std::int64_t>(i) * table.k());
  }
}

void quantize_row(const float* x, std::int64_t k, float limit, std::int16_t* q, float* scales) {
  for (std::int64_t begin = 0; begin < k; begin += kActivationGroup) {
    const std::int64_t end = std::min(begin + kActivationGroup, k);
    float largest = 0;
    for (std::int64_t c = begin; c < end; ++c) {
      // Not std::max: a NaN must win.
      if (!(std::fabs(x[c]) <= largest)) largest = std::fabs(x[c]);
      if (std::isnan(largest)) break;
    }
    const float scale = largest / limit;
    scales[begin / kActivationGroup] = scale;
    const float inverse = limit / largest;
    for (std::int64_t c = begin; c < end; ++c) {
      const bool usable = inverse > 0 && std::isfinite(inverse);
      const float scaled = usable ? std::nearbyint(x[c] * inverse) : 0.0f;
      // The inverse was rounded, so a product may pass the limit.
      q[c] = static_cast<std::int16_t>(std::clamp(scaled, -limit, limit));
    }
  }
}

namespace {

// y[t][j] of one weight: [num_rows, n].
std::vector<float> multiply(ThreadPool& pool, const RefWeight& weight, const float* inputs,
                            std::int64_t num_rows, const float* bias) {
  constexpr std::int64_t kRowsPerPart = 16;
  const std::int64_t n = weight.n();
  const std::int64_t k = weight.k();
  std::vector<float> out(static_cast<std::size_t>(num_rows * n));
  pool.run((n + kRowsPerPart - 1) / kRowsPerPart, [&](std::int64_t part) {
    std::vector<float> row(static_cast<std::size_t>(k));
    for (std::int64_t j = part * kRowsPerPart; j < std::min(n, (part + 1) * kRowsPerPart); ++j) {
      weight.dequantize_row(j, row.data());
      for (std::int64_t t = 0; t < num_rows; ++t) {
        const double sum = dot(inputs + t * k, row.data(), k) + (bias == nullptr ? 0.0 : bias[j]);
        out[static_cast<std::size_t>(t * n + j)] = static_cast<float>(sum);
      }
    }
  });
  return out;
}

}  // namespace

void linear(ThreadPool& pool, ComputeMode mode, const LinearInput& input,
            std::span<const LinearTarget> targets) {
  const std::int64_t num_rows = input.num_rows;
  if (num_rows == 0 || targets.empty()) return;
  const std::int64_t k = targets[0].weight->k();
  const float* x = input.x;
  std::vector<float> normed;
  if (input.norm_weight != nullptr) {
    normed.resize(static_cast<std::size_t>(num_rows * k));
    rms_norm(x, input.norm_weight, input.norm_eps, num_rows, k, normed.data());
    x = normed.data();
  }
  std::vector<float> values[kNumRoundings];
  const auto inputs_of = [&](const RefWeight& weight, bool finer) -> const float* {
    const Rounding rounding = weight.rounding(mode, finer);
    if (values[rounding].empty()) values[rounding] = activations(rounding, x, num_rows, k);
    return values[rounding].data();
  };
  for (const LinearTarget& target : targets) {
    const RefWeight& weight = as_ref(*target.weight);
    QUIRE_CHECK_EQ(weight.k(), k);
    std::vector<float> y =
        multiply(pool, weight, inputs_of(weight, target.finer_activations), num_rows, target.bias);
    if (target.gate != nullptr) {
      const RefWeight& gate = as_ref(*target.gate);
      QUIRE_CHECK_EQ(gate.k(), k);
      QUIRE_CHECK_EQ(gate.n(), weight.n());
      const std::vector<float> gates =
          multiply(pool, gate, inputs_of(gate, target.finer_activations), num_rows, target.gate_bias);
      silu_mul(gates.data(), y.data(), static_cast<std::int64_t>(y.size()), y.data());
    }
    for (std::size_t i = 0; i < y.size(); ++i)
      target.out[i] = target.accumulate ? target.out[i] + y[i] : y[i];
  }
}

}  // namespace quire::ref
