#include "backend/cpu/isa.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/backend.h"

namespace quire::cpu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CpuFeatures all_features() {
  return {true, true, true, true, true, true, true, true, true, true, true};
}

TEST(Isa, TheHighestTierThatRunsIsChosenAndTheOthersHaveReasons) {
  auto choice = choose_isa(all_features(), "", "QUIRE_ISA");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->isa, Isa::kAvx512Bf16);
  EXPECT_THAT(choice->report,
              ElementsAre("instruction set avx512bf16: the highest of avx512bf16, avx512, avx2, generic"));

  CpuFeatures features = all_features();
  features.avx512bf16 = false;  // Cascade Lake
  choice = choose_isa(features, "", "QUIRE_ISA");
  EXPECT_EQ(choice->isa, Isa::kAvx512);
  EXPECT_THAT(choice->report,
              ElementsAre("instruction set avx512: the highest of avx512, avx2, generic",
                          "instruction set avx512bf16 refused: this machine lacks AVX512_BF16"));

  features.avx512vnni = false;  // Skylake-X
  choice = choose_isa(features, "", "QUIRE_ISA");
  EXPECT_EQ(choice->isa, Isa::kAvx2);
  EXPECT_THAT(choice->report[2], HasSubstr("avx512 refused: this machine lacks AVX512_VNNI"));

  EXPECT_EQ(choose_isa(CpuFeatures{}, "", "QUIRE_ISA")->isa, Isa::kGeneric);
}

// A processor may have AVX-512 and its operating system (or hypervisor) not save the registers.
TEST(Isa, RegistersThatTheSystemDoesNotSaveAreNotUsed) {
  CpuFeatures features = all_features();
  features.os_saves_avx512 = false;
  EXPECT_EQ(choose_isa(features, "", "QUIRE_ISA")->isa, Isa::kAvx2);
  features.os_saves_avx = false;
  const auto choice = choose_isa(features, "", "QUIRE_ISA");
  EXPECT_EQ(choice->isa, Isa::kGeneric);
  EXPECT_THAT(choice->report.back(), HasSubstr("avx2 refused: this machine lacks AVX registers saved"));
}

TEST(Isa, EachRequirementCounts) {
  bool CpuFeatures::*const avx512[] = {&CpuFeatures::avx512f, &CpuFeatures::avx512bw, &CpuFeatures::avx512vl,
                                       &CpuFeatures::avx512dq, &CpuFeatures::avx512vnni};
  for (const auto member : avx512) {
    CpuFeatures features = all_features();
    features.*member = false;
    EXPECT_EQ(choose_isa(features, "", "QUIRE_ISA")->isa, Isa::kAvx2);
  }
  bool CpuFeatures::*const avx2[] = {&CpuFeatures::avx2, &CpuFeatures::fma, &CpuFeatures::f16c};
  for (const auto member : avx2) {
    CpuFeatures features = all_features();
    features.*member = false;
    EXPECT_EQ(choose_isa(features, "", "QUIRE_ISA")->isa, Isa::kGeneric);
  }
}

TEST(Isa, APinIsObeyedOrRefusedWithWhatCanRun) {
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    const auto choice = choose_isa(all_features(), std::string(isa_name(isa)), "QUIRE_ISA");
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->isa, isa);
    EXPECT_THAT(choice->report[0], HasSubstr("pinned by QUIRE_ISA"));
  }
  CpuFeatures features = all_features();
  features.avx512f = false;
  const auto impossible = choose_isa(features, "avx512", "QUIRE_ISA");
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(impossible.error().message, AllOf(HasSubstr("QUIRE_ISA"), HasSubstr("lacks AVX512F"),
                                                HasSubstr("it can run: avx2, generic")));
  const auto unknown = choose_isa(features, "sse9", "QUIRE_ISA");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, AllOf(HasSubstr("'sse9'"), HasSubstr("can run: avx2, generic")));
}

TEST(Isa, TheEnvironmentPinsUnlessAnOptionDoes) {
  const char* before = std::getenv("QUIRE_ISA");
  const std::string saved = before == nullptr ? "" : before;
  setenv("QUIRE_ISA", "generic", 1);
  EXPECT_EQ(choose_isa("")->isa, Isa::kGeneric);
  setenv("QUIRE_ISA", "nonsense", 1);
  EXPECT_FALSE(choose_isa("").ok());
  EXPECT_TRUE(choose_isa("generic").ok());
  setenv("QUIRE_ISA", "", 1);
  EXPECT_TRUE(choose_isa("").ok());
  before == nullptr ? unsetenv("QUIRE_ISA") : setenv("QUIRE_ISA", saved.c_str(), 1);
}

TEST(ComputeMode, AutoFollowsItsRule) {
  const auto mode = [](const char* backend, const char* isa, bool quantized, bool all_f32) {
    const ComputeChoice choice = choose_compute_mode(backend, isa, quantized, all_f32);
    EXPECT_FALSE(choice.reason.empty());
    return choice.mode;
  };
  EXPECT_EQ(mode("ref", "", true, false), ComputeMode::kF32);
  EXPECT_EQ(mode("cpu", "generic", false, true), ComputeMode::kF32);
  EXPECT_EQ(mode("cpu", "generic", true, false), ComputeMode::kF32);
  const CpuFeatures here = detect_cpu_features();
  if (isa_refusal(Isa::kAvx2, here).empty()) {
    EXPECT_EQ(mode("cpu", "avx2", true, false), ComputeMode::kInt8);
    EXPECT_EQ(mode("cpu", "avx2", false, false), ComputeMode::kF32);
  }
  if (isa_refusal(Isa::kAvx512, here).empty()) {
    EXPECT_EQ(mode("cpu", "avx512", true, false), ComputeMode::kInt8);
  }
  if (isa_refusal(Isa::kAvx512Bf16, here).empty()) {
    EXPECT_EQ(mode("cpu", "avx512bf16", true, false), ComputeMode::kBf16);
    EXPECT_EQ(mode("cpu", "avx512bf16", false, false), ComputeMode::kBf16);
    EXPECT_EQ(mode("cpu", "avx512bf16", false, true), ComputeMode::kF32);
  }
}

}  // namespace
}  // namespace quire::cpu
