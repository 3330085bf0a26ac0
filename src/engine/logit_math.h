// Purpose: passes over one row of logits: maximum, sums of exponentials, the largest few, a draw. Each result
// depends on the row alone: sums run in one fixed order whatever the thread count. Ties go to the lowest id.
// Thread: pure functions. Logits of -inf mean "impossible": never chosen, weight 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire {

struct RowMax {
  std::int32_t id = 0;  // lowest id of the largest value
  float value = 0;
  bool usable = false;  // false if the row holds a NaN, or its maximum is infinite: nothing can be chosen
};
RowMax find_max(std::span<const float> row);

// exp(x) for -87 <= x <= 0, relative error below 2e-7; exactly 1 at 0.
float exp_nonpositive(float x);

// The weight of a logit x is exp((x - max) * inv_temperature), or 0 where the exponent is below `cut`. The
// maximum is subtracted first, and scaled in double: no temperature overflows.
struct Weighting {
  float max = 0;
  double inv_temperature = 1.0;
  float cut = kMinExponent;
  static constexpr float kMinExponent = -87.0f;  // exp(-87) = 1.6e-38, about the smallest normal float
};
float weight_of(float logit, const Weighting& weighting);
double sum_weights(std::span<const float> row, const Weighting& weighting);

// The id at which the running sum of weights, in order of id, first exceeds uniform (in [0, 1)) of the total.
std::int32_t draw_by_id(std::span<const float> row, const Weighting& weighting, double uniform);

struct Candidate {
  float logit = 0;
  std::int32_t id = 0;
};
// Descending logit, then ascending id.
bool comes_before(const Candidate& a, const Candidate& b);
// The `count` largest logits in descending order; fewer if fewer are above -inf.
std::vector<Candidate> select_largest(std::span<const float> row, std::int64_t count);

// 1 + the number of tokens that come before this one in descending order.
std::int32_t rank_of(std::span<const float> row, std::int32_t id);

}  // namespace quire
