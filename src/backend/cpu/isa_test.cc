#include "backend/cpu/isa.h"

#include <cstdint>
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
  return {true, true, true, true, true, true, true, true, true, true, true, true, true, true, true};
}

// Sapphire Rapids as CPUID describes it, with what a test changes.
CpuProbe::Registers g_leaf_1, g_leaf_7, g_leaf_7_1;
std::uint64_t g_xcr0;
bool g_grants_amx;
int g_num_requests;
CpuProbe sapphire_rapids() {
  g_leaf_1 = {0x806f8, 0, 1u << 12 | 1u << 27 | 1u << 29, 0};
  g_leaf_7 = {2, 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, 1u << 11,
              1u << 22 | 1u << 24 | 1u << 25};
  g_leaf_7_1 = {1u << 4 | 1u << 5, 0, 0, 0};
  g_xcr0 = 0x602e7;
  g_grants_amx = true;
  g_num_requests = 0;
  return {[](std::uint32_t leaf, std::uint32_t subleaf) {
            return leaf == 1                   ? g_leaf_1
                   : leaf == 7 && subleaf == 0 ? g_leaf_7
                   : leaf == 7 && subleaf == 1 ? g_leaf_7_1
                                               : CpuProbe::Registers{};
          },
          [] { return g_xcr0; },
          [] {
            ++g_num_requests;
            return g_grants_amx;
          }};
}

TEST(Isa, AmxIsTheHighestTier) {
  const auto choice = choose_isa(detect_cpu_features(sapphire_rapids()), "", "QUIRE_ISA");
  EXPECT_EQ(choice->isa, Isa::kAmx);
  EXPECT_EQ(g_num_requests, 1);
  EXPECT_THAT(choice->report,
              ElementsAre("instruction set amx: the highest of amx, avx512bf16, avx512, avx2, generic"));
}

// A processor with AMX, and a kernel, a hypervisor or a sandbox that keeps it away: the next tier, and why.
TEST(Isa, AmxThatIsRefusedFallsBackWithTheReason) {
  const auto expect_refused = [](const CpuProbe& probe, const char* reason, int num_requests) {
    const auto choice = choose_isa(detect_cpu_features(probe), "", "QUIRE_ISA");
    EXPECT_EQ(choice->isa, Isa::kAvx512Bf16);
    ASSERT_EQ(choice->report.size(), 2u);
    EXPECT_THAT(choice->report[1],
                AllOf(HasSubstr("instruction set amx refused: this machine lacks"), HasSubstr(reason)));
    EXPECT_EQ(g_num_requests, num_requests);
    const auto pinned = choose_isa(detect_cpu_features(probe), "amx", "QUIRE_ISA");
    ASSERT_FALSE(pinned.ok());
    EXPECT_THAT(pinned.error().message, HasSubstr(reason));
  };
  CpuProbe probe = sapphire_rapids();
  g_grants_amx = false;
  expect_refused(probe, "permission for AMX registers (arch_prctl ARCH_REQ_XCOMP_PERM)", 1);
  probe = sapphire_rapids();
  g_xcr0 = 0x2e7;
  expect_refused(probe, "AMX registers saved by the operating system", 0);
  probe = sapphire_rapids();
  g_leaf_7.edx = 0;  // the hypervisor hides it
  expect_refused(probe, "AMX-TILE, AMX-BF16", 0);
  probe = sapphire_rapids();
  g_leaf_7.edx &= ~(1u << 22);
  expect_refused(probe, "lacks AMX-BF16", 1);
}

TEST(Isa, DetectionReadsNoFurtherThanTheProcessorGoes) {
  CpuProbe probe = sapphire_rapids();
  g_leaf_7.eax = 0;  // no subleaf 1
  EXPECT_EQ(choose_isa(detect_cpu_features(probe), "", "QUIRE_ISA")->isa, Isa::kAvx512);
  probe = sapphire_rapids();
  g_leaf_1.ecx &= ~(1u << 27);  // no XSAVE: xgetbv would fault
  probe.xcr0 = []() -> std::uint64_t {
    ADD_FAILURE() << "asked";
    return 0;
  };
  EXPECT_EQ(choose_isa(detect_cpu_features(probe), "", "QUIRE_ISA")->isa, Isa::kGeneric);
}

TEST(Isa, TheHighestTierThatRunsIsChosenAndTheOthersHaveReasons) {
  CpuFeatures features = all_features();
  features.amx_tile = false;
  auto choice = choose_isa(features, "", "QUIRE_ISA");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->isa, Isa::kAvx512Bf16);
  EXPECT_THAT(choice->report,
              ElementsAre("instruction set avx512bf16: the highest of avx512bf16, avx512, avx2, generic",
                          "instruction set amx refused: this machine lacks AMX-TILE"));

  features = all_features();
  features.avx512bf16 = false;  // Cascade Lake
  choice = choose_isa(features, "", "QUIRE_ISA");
  EXPECT_EQ(choice->isa, Isa::kAvx512);
  EXPECT_THAT(choice->report,
              ElementsAre("instruction set avx512: the highest of avx512, avx2, generic",
                          "instruction set amx refused: this machine lacks AVX512_BF16",
                          "instruction set avx512bf16 refused: this machine lacks AVX512_BF16"));

  features.avx512vnni = false;  // Skylake-X
  choice = choose_isa(features, "", "QUIRE_ISA");
  EXPECT_EQ(choice->isa, Isa::kAvx2);
  EXPECT_THAT(choice->report[3], HasSubstr("avx512 refused: this machine lacks AVX512_VNNI"));

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
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
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
  if (isa_refusal(Isa::kAmx, here).empty()) {
    EXPECT_EQ(mode("cpu", "amx", true, false), ComputeMode::kBf16);
  }
}

}  // namespace
}  // namespace quire::cpu
