// Purpose: what this machine can do at best: bytes read from memory per second and multiply-adds per second
// of each instruction set, so that a speed can be said as a share of the possible. In: a number of threads.
// Out: rates, measured now. Thread: any one; starts its own threads and ends them. Out of scope: the kernels
// that are compared with these (gemm/, attention/).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/isa.h"

namespace quire::cpu::peaks {

// What is multiplied; products are summed in float32 (f32, bf16) or int32 (int8).
enum class Operand { kF32, kBf16, kInt8 };
std::string_view operand_name(Operand operand);  // "f32", "bf16", "int8"

// One way of multiplying that this machine has.
struct Unit {
  Operand operand = Operand::kF32;
  std::string isa;          // the lowest tier that has it: "generic", "avx2", ...; or "amx"
  std::string instruction;  // e.g. "vpdpbusd zmm"
};
// Every unit that runs here, plainest first.
std::vector<Unit> units();
// Why the AMX units are not among them, or "".
std::string amx_refusal();

// Multiply-adds per second of num_threads threads at once: the best of rounds over about this many seconds.
double measure_macs(const Unit& unit, int num_threads, double seconds);
// Bytes per second that num_threads threads read from memory, with the widest loads of this machine.
double measure_read_bandwidth(int num_threads, double seconds);

// The fastest unit that kernels of this tier may use for linear layers in this mode: where the tier has no
// dot product of bfloat16 (or int8), its float32 unit. with_amx: the AMX units count too.
Unit unit_for(Isa isa, ComputeMode mode, bool with_amx);

}  // namespace quire::cpu::peaks
