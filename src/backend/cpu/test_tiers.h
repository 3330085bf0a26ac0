// Purpose: for tests that run on every tier this machine has. A tier that cannot run is skipped visibly.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/isa.h"

namespace quire::cpu {

inline constexpr Isa kAllTiers[] = {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

inline std::string tier_test_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(isa_name(info.param));
}

}  // namespace quire::cpu

#define QUIRE_SKIP_UNLESS_TIER_RUNS(isa)                                                                  \
  do {                                                                                                    \
    const std::string refusal = ::quire::cpu::isa_refusal((isa), ::quire::cpu::detect_cpu_features());    \
    if (!refusal.empty()) GTEST_SKIP() << ::quire::cpu::isa_name(isa) << " cannot run here: " << refusal; \
  } while (false)
