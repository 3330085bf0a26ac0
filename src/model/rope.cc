#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire {
namespace {

double original_context(const ModelConfig& config) {
  return config.rope_scaling.original_context > 0 ? config.rope_scaling.original_context
                                                  : static_cast<double>(config.context_length);
}

// YaRN: dimensions that turn often keep their frequency, slow ones are interpolated, a linear ramp lies
// between.
void apply_yarn(const ModelConfig& config, RopeFrequencies* frequencies) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto dim = static_cast<double>(config.rope_dim);
  // The (fractional) pair index whose wave turns `rotations` times within the original context.
  auto pair_turning = [&](double rotations) {
    return dim * std::log(original_context(config) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.rope_theta));
  };
  const double low = std::max(std::floor(pair_turning(scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_turning(scaling.beta_slow)), dim - 1);
  if (high <= low) high = low + 0.001;
  for (std::size_t i = 0; i < frequencies->inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double inverse = frequencies->inverse[i];
    frequencies->inverse[i] = inverse / scaling.factor * ramp + inverse * (1 - ramp);
  }
  auto magnitude = [&](double mscale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(scaling.factor) + 1;
  };
  if (scaling.attention_factor > 0) {
    frequencies->amplitude = scaling.attention_factor;
  } else if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {
    frequencies->amplitude = magnitude(scaling.mscale) / magnitude(scaling.mscale_all_dim);
  } else {
    frequencies->amplitude = magnitude(1.0);
  }
}

// Llama 3.1: long waves are stretched by `factor`, short ones kept, those between blended by their
// wavelength.
void apply_llama3(const ModelConfig& config, RopeFrequencies* frequencies) {
  const RopeScaling& scaling = config.rope_scaling;
  const double context = scaling.original_context > 0 ? scaling.original_context : 8192;
  for (double& inverse : frequencies->inverse) {
    const double wavelength = 2 * std::numbers::pi / inverse;
    if (wavelength < context / scaling.high_freq_factor) continue;
    if (wavelength > context / scaling.low_freq_factor) {
      inverse /= scaling.factor;
      continue;
    }
    const double smooth = (context / wavelength - scaling.low_freq_factor) /
                          (scaling.high_freq_factor - scaling.low_freq_factor);
    inverse = (1 - smooth) * inverse / scaling.factor + smooth * inverse;
  }
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t num_positions) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto dim = static_cast<double>(config.rope_dim);
  double theta = config.rope_theta;
  if (scaling.type == RopeScalingType::kDynamic &&
      static_cast<double>(num_positions) > original_context(config)) {
    const double stretch =
        scaling.factor * static_cast<double>(num_positions) / original_context(config) - (scaling.factor - 1);
    theta *= std::pow(stretch, dim / (dim - 2));
  }
  RopeFrequencies frequencies;
  frequencies.inverse.resize(static_cast<std::size_t>(config.rope_dim / 2));
  for (std::size_t i = 0; i < frequencies.inverse.size(); ++i) {
    frequencies.inverse[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
    if (i < config.rope_freq_factors.size()) frequencies.inverse[i] /= config.rope_freq_factors[i];
    if (scaling.type == RopeScalingType::kLinear) frequencies.inverse[i] /= scaling.factor;
  }
  if (scaling.type == RopeScalingType::kYarn) apply_yarn(config, &frequencies);
  if (scaling.type == RopeScalingType::kLlama3) apply_llama3(config, &frequencies);
  return frequencies;
}

void fill_rope_row(const RopeFrequencies& frequencies, std::int64_t position, float* cos, float* sin) {
  for (std::size_t i = 0; i < frequencies.inverse.size(); ++i) {
    const double angle = static_cast<double>(position) * frequencies.inverse[i];
    cos[i] = static_cast<float>(std::cos(angle) * frequencies.amplitude);
    sin[i] = static_cast<float>(std::sin(angle) * frequencies.amplitude);
  }
}

RopeTable make_rope_table(const ModelConfig& config, std::int64_t num_positions, ThreadPool* pool) {
  RopeTable table;
  table.frequencies = rope_frequencies(config, num_positions);
  table.num_positions = num_positions;
  table.half_dim = config.rope_dim / 2;
  const auto size = static_cast<std::size_t>(num_positions * table.half_dim);
  table.cos.resize(size);
  table.sin.resize(size);
  const auto fill = [&](std::int64_t position) {
    const std::int64_t row = position * table.half_dim;
    fill_rope_row(table.frequencies, position, table.cos.data() + row, table.sin.data() + row);
  };
  // 32768 positions of 64 pairs are 2 million sines and cosines: a tenth of a second on one thread.
  constexpr std::int64_t kPositionsPerPart = 256;
  const std::int64_t num_parts = (num_positions + kPositionsPerPart - 1) / kPositionsPerPart;
  const auto fill_part = [&](std::int64_t part) {
    const std::int64_t end = std::min(num_positions, (part + 1) * kPositionsPerPart);
    for (std::int64_t position = part * kPositionsPerPart; position < end; ++position) fill(position);
  };
  if (pool != nullptr) {
    pool->run(num_parts, fill_part);
  } else {
    for (std::int64_t part = 0; part < num_parts; ++part) fill_part(part);
  }
  return table;
}

}  // namespace quire
