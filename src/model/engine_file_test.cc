// Engine files: what comes back is what went in, for every layout; damage in any part is told; writers do not
// meet.
#include "model/engine_file.h"

#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/test_files.h"
#include "model/engine_writer.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

std::unique_ptr<Backend> make_test_backend(ComputeMode mode = ComputeMode::kF32, const char* isa = "") {
  BackendOptions options;
  options.num_threads = 2;
  options.compute = mode;
  options.isa = isa;
  auto backend = make_backend("cpu", options);
  EXPECT_TRUE(backend.ok());
  return *std::move(backend);
}

// kind of scales: 0 two-level codes, 1 exact in float16, 2 float32
GroupedRows make_rows(std::int64_t n, std::int64_t k, int bits, int group, bool mins, int scales) {
  std::mt19937 random(static_cast<unsigned>(n * 131 + k + bits + group));
  GroupedRows rows;
  rows.n = n;
  rows.k = k;
  rows.bits = bits;
  rows.group_size = group;
  rows.constant_zero = mins ? 0 : 1 << (bits - 1);
  for (std::int64_t i = 0; i < n * k; ++i)
    rows.q.push_back(static_cast<std::uint8_t>(random() % (1u << bits)));
  const auto groups = static_cast<std::size_t>(n * k / group);
  if (scales == 0) {
    rows.super_size = 256;
    const auto supers = static_cast<std::size_t>(n * k / 256);
    for (std::size_t i = 0; i < supers; ++i) {
      rows.super_scales.push_back(f32_to_f16(0.001f * static_cast<float>(1 + random() % 100)));
      if (mins) rows.super_mins.push_back(f32_to_f16(0.002f * static_cast<float>(1 + random() % 100)));
    }
  }
  for (std::size_t g = 0; g < groups; ++g) {
    if (scales == 0) {
      const std::size_t super = g / (256 / static_cast<std::size_t>(group));
      rows.scale_codes.push_back(static_cast<std::int8_t>(random() % 64));
      rows.scales.push_back(f16_to_f32(rows.super_scales[super]) * static_cast<float>(rows.scale_codes[g]));
      if (!mins) continue;
      rows.min_codes.push_back(static_cast<std::uint8_t>(random() % 64));
      rows.mins.push_back(f16_to_f32(rows.super_mins[super]) * static_cast<float>(rows.min_codes[g]));
      continue;
    }
    const auto value = [&] {
      const float any = 0.01f + static_cast<float>(random() % 1000) / 777.0f;
      return scales == 1 ? f16_to_f32(f32_to_f16(any)) : any;
    };
    rows.scales.push_back(value());
    if (mins) rows.mins.push_back(value());
  }
  return rows;
}

std::vector<std::unique_ptr<PackedWeight>> every_layout(Backend& backend) {
  std::vector<std::unique_ptr<PackedWeight>> weights;
  const auto take = [&](Result<std::unique_ptr<PackedWeight>> weight) {
    ASSERT_TRUE(weight.ok()) << weight.error().message;
    weights.push_back(std::move(*weight));
  };
  for (const int bits : {4, 5, 6, 8}) {
    for (const int scales : {0, 1, 2}) {
      for (const bool mins : {false, true}) {
        const int group = bits == 6 ? 16 : 32;
        take(backend.pack(make_rows(bits == 4 ? 35 : 16, scales == 0 ? 256 : 96, bits, group, mins, scales)));
      }
    }
  }
  take(backend.pack(make_rows(17, 48, 4, 24, true, 2)));  // no integer kernel: becomes float32
  std::vector<float> values(19 * 40);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.25f;
  take(backend.pack(FloatRows{19, 40, DType::kF32, values.data()}));
  take(backend.pack(FloatRows{19, 80, DType::kF16, values.data()}));
  take(backend.pack(FloatRows{19, 80, DType::kBf16, values.data()}));
  return weights;
}

EngineKey test_key(const Backend& backend) {
  EngineKey key;
  key.packing = backend.packing_key();
  key.weights = "as in the file";
  key.files = {{"/models/a.gguf", {1000, -5, 7, 8}}};
  key.content = "0123";
  return key;
}

// Every layout under its number, and a vector.
void write_file(const std::string& path, Backend& backend, bool durable = false) {
  const auto weights = every_layout(backend);
  auto writer = EngineWriter::create(path);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (std::size_t i = 0; i < weights.size(); ++i) (*writer)->add_weight(std::to_string(i), *weights[i]);
  (*writer)->add_vector("norm", std::vector<float>{1.5f, -2.0f});
  (*writer)->wait();
  EngineInfo info;
  info.compute = "f32";
  info.tuning = CpuTuning{};
  info.tuning->panel_rows = 32;
  info.measurements = {{"decode", 1, 2.5, 2.0}};
  const Status written = (*writer)->finish(test_key(backend), info, durable);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string refusal(const TempFolder& folder, const std::string& bytes) {
  const auto opened = EngineFile::open(folder.write("changed", bytes));
  EXPECT_FALSE(opened.ok());
  return opened.ok() ? "" : opened.error().message;
}

TEST(EngineFile, GivesBackEveryLayoutBitForBit) {
  const TempFolder folder;
  const auto backend = make_test_backend();
  write_file(folder / "a", *backend);
  auto file = EngineFile::open(folder / "a");
  ASSERT_TRUE(file.ok()) << file.error().message;
  (*file)->prefetch();
  const auto weights = every_layout(*backend);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const PackedWeight& packed = *weights[i];
    SCOPED_TRACE(packed.layout_name());
    auto mapped = (*file)->weight(std::to_string(i), 0, *backend);
    ASSERT_TRUE(mapped.ok()) << mapped.error().message;
    EXPECT_EQ((*mapped)->layout_name(), packed.layout_name());
    EXPECT_EQ((*mapped)->num_bytes(), packed.num_bytes());
    EXPECT_EQ((*mapped)->is_quantized(), packed.is_quantized());
    const PackedImage a = packed.image();
    const PackedImage b = (*mapped)->image();
    EXPECT_EQ(a.numbers, b.numbers);
    ASSERT_EQ(a.arrays.size(), b.arrays.size());
    for (std::size_t j = 0; j < a.arrays.size(); ++j) {
      EXPECT_EQ(a.arrays[j].name, b.arrays[j].name);
      EXPECT_NE(a.arrays[j].bytes.data(), b.arrays[j].bytes.data());
      EXPECT_TRUE(std::ranges::equal(a.arrays[j].bytes, b.arrays[j].bytes)) << a.arrays[j].name;
    }
    // And computes the same.
    std::vector<float> x(static_cast<std::size_t>(3 * packed.k()));
    for (std::size_t j = 0; j < x.size(); ++j) x[j] = static_cast<float>(j % 17) - 8.0f;
    std::vector<float> out(static_cast<std::size_t>(3 * packed.n()));
    std::vector<float> out_mapped(out.size(), -1.0f);
    const auto multiply = [&](const PackedWeight& weight, float* to) {
      LinearTarget target;
      target.weight = &weight;
      target.out = to;
      backend->linear(LinearInput{x.data(), 3, nullptr, 0.0f}, std::span(&target, 1));
    };
    multiply(packed, out.data());
    multiply(**mapped, out_mapped.data());
    EXPECT_EQ(std::memcmp(out.data(), out_mapped.data(), out.size() * sizeof(float)), 0);
  }
  const auto vector = (*file)->vector("norm");
  ASSERT_TRUE(vector.ok());
  EXPECT_THAT(*vector, ::testing::ElementsAre(1.5f, -2.0f));
  EXPECT_EQ((*file)->table().info.tuning->panel_rows, 32);
  EXPECT_EQ((*file)->table().info.measurements.at(0).what, "decode");
  EXPECT_EQ(engine_key_difference((*file)->table().key, test_key(*backend)), "");
  EXPECT_FALSE((*file)->weight("0", 1, *backend).ok()) << "it was added once";
  EXPECT_FALSE((*file)->weight("none", 0, *backend).ok());
  EXPECT_FALSE((*file)->checkpoint().ok());
  EXPECT_TRUE((*file)->verify(backend->pool()).ok());
  // The weight keeps the mapping.
  auto kept = *(*file)->weight("0", 0, *backend);
  file->reset();
  const std::int32_t row[] = {3};
  std::vector<float> values(static_cast<std::size_t>(kept->k()));
  backend->embed(*kept, row, values.data());
}

TEST(EngineFile, TellsWhereItIsDamaged) {
  const TempFolder folder;
  const auto backend = make_test_backend();
  write_file(folder / "a", *backend);
  const std::string good = read_all(folder / "a");
  EngineHeader header;
  std::memcpy(&header, good.data(), sizeof(header));

  EXPECT_EQ(EngineFile::open(folder / "absent").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(refusal(folder, "GGUF, a file of another kind, of another program"),
              HasSubstr("not an engine file"));
  // Cut in the header, between header and table, in the table.
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{200}, kEngineHeaderBytes,
                                 static_cast<std::size_t>(header.table_offset), good.size() - 1}) {
    EXPECT_THAT(refusal(folder, good.substr(0, size)), HasSubstr("cut short")) << size;
  }
  EXPECT_THAT(refusal(folder, good + "x"), HasSubstr("engine file"));
  const auto flipped = [&](std::size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    return bytes;
  };
  EXPECT_THAT(refusal(folder, flipped(0)), HasSubstr("not an engine file"));
  EXPECT_THAT(refusal(folder, flipped(offsetof(EngineHeader, version))), HasSubstr("format version"));
  EXPECT_THAT(refusal(folder, flipped(offsetof(EngineHeader, byte_order))), HasSubstr("byte order"));
  for (std::size_t at = offsetof(EngineHeader, file_bytes); at < offsetof(EngineHeader, boot_id); at += 4)
    EXPECT_THAT(refusal(folder, flipped(at)), HasSubstr("header is damaged")) << at;
  for (std::size_t at = header.table_offset; at < good.size(); at += good.size() / 50)
    EXPECT_THAT(refusal(folder, flipped(at)), HasSubstr("table is damaged")) << at;

  // Damage in an array shows when it is looked for; the name of the weight is in the message.
  const auto opened = EngineFile::open(folder.write("data", flipped(kEngineHeaderBytes + 3)));
  ASSERT_TRUE(opened.ok());
  const Status verified = (*opened)->verify(backend->pool());
  ASSERT_FALSE(verified.ok());
  EXPECT_THAT(verified.error().message, HasSubstr("the data of 0 (data) is damaged"));
}

// A crash may leave a file whose name is there and whose pages are not.
TEST(EngineFile, ComparesAfterARestartWhatWasNotSynced) {
  const TempFolder folder;
  const auto backend = make_test_backend();
  write_file(folder / "a", *backend);
  EXPECT_FALSE((*EngineFile::open(folder / "a"))->may_have_lost_pages());
  std::string bytes = read_all(folder / "a");
  bytes[offsetof(EngineHeader, boot_id)] ^= 1;
  const auto older = EngineFile::open(folder.write("older", bytes));
  ASSERT_TRUE(older.ok());
  EXPECT_TRUE((*older)->may_have_lost_pages());
  (*older)->note_verified();
  EXPECT_FALSE((*EngineFile::open(folder / "older"))->may_have_lost_pages());
  write_file(folder / "synced", *backend, /*durable=*/true);
  EngineHeader header;
  std::memcpy(&header, read_all(folder / "synced").data(), sizeof(header));
  EXPECT_EQ(header.boot_id, (std::array<std::uint8_t, 16>{}));
}

TEST(EngineFile, ReplacesItsCheckpoint) {
  const TempFolder folder;
  testing::GgufMaker maker;
  maker.pair_text("general.architecture", "llama").pair_u32("llama.block_count", 3);
  maker.tensor("token_embd.weight", {32, 10}, 0, 1280).tensor("output_norm.weight", {32}, 0, 128);
  const auto gguf = open_checkpoint(folder.write("tiny.gguf", maker.file()));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  Checkpoint safetensors;
  safetensors.name = "folder";
  safetensors.format = CheckpointFormat::kSafetensors;
  safetensors.config_json = "{}";
  safetensors.tokenizer_json = "[1]";
  safetensors.tensors = std::move((*open_checkpoint(folder / "tiny.gguf"))->tensors);
  for (const Checkpoint* original : std::initializer_list<const Checkpoint*>{gguf->get(), &safetensors}) {
    {
      auto writer = *EngineWriter::create(folder / "a");
      writer->add_checkpoint(*original);
      ASSERT_TRUE(writer->finish({}, {}, false).ok());
    }
    const auto file = EngineFile::open(folder / "a");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto copy = (*file)->checkpoint();
    ASSERT_TRUE(copy.ok()) << copy.error().message;
    EXPECT_EQ((*copy)->name, original->name);
    EXPECT_EQ((*copy)->format, original->format);
    EXPECT_EQ((*copy)->total_bytes, original->total_bytes);
    EXPECT_EQ((*copy)->config_json, original->config_json);
    EXPECT_EQ((*copy)->tokenizer_json, original->tokenizer_json);
    EXPECT_EQ((*copy)->metadata.get_int("llama.block_count"),
              original->metadata.get_int("llama.block_count"));
    ASSERT_EQ((*copy)->tensors->tensors().size(), 2u);
    const TensorView* embedding = (*copy)->tensors->find("token_embd.weight");
    ASSERT_NE(embedding, nullptr);
    EXPECT_EQ(embedding->shape, (std::vector<std::int64_t>{10, 32}));
    EXPECT_EQ(embedding->type, TensorType::kF32);
    EXPECT_TRUE(embedding->data.empty());
  }
}

// A table that says what its arrays are not must not reach a kernel.
TEST(EngineFile, RestoreChecksEveryNumber) {
  const auto backend = make_test_backend();
  const auto owner = std::make_shared<int>(0);
  for (const auto& weight : every_layout(*backend)) {
    const PackedImage good = weight->image();
    EXPECT_TRUE(backend->restore(good, owner).ok());
    for (std::size_t i = 0; i < good.numbers.size(); ++i) {
      for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 40}) {
        PackedImage image = good;
        image.numbers[i].second = wrong;
        EXPECT_FALSE(backend->restore(image, owner).ok()) << good.numbers[i].first;
      }
    }
    PackedImage tall = good;
    tall.numbers[0].second += 16;
    EXPECT_FALSE(backend->restore(tall, owner).ok());
    for (std::size_t i = 0; i < good.arrays.size(); ++i) {
      PackedImage image = good;
      image.arrays[i].bytes = image.arrays[i].bytes.first(image.arrays[i].bytes.size() - 16);
      EXPECT_FALSE(backend->restore(image, owner).ok()) << good.arrays[i].name;
    }
  }
  PackedImage unknown;
  unknown.kind = "none";
  EXPECT_THAT(backend->restore(unknown, owner).error().message, HasSubstr("none"));
  EXPECT_FALSE((*make_backend("ref", {}))->restore(unknown, owner).ok());
}

TEST(EngineKey, SaysWhatDiffers) {
  const auto backend = make_test_backend();
  const auto other = make_test_backend(ComputeMode::kBf16, "generic");
  EXPECT_NE(backend->packing_key(), other->packing_key());
  EXPECT_EQ((*make_backend("ref", {}))->packing_key(), "");
  const EngineKey key = test_key(*backend);
  const auto difference = [&](auto change) {
    EngineKey wanted = key;
    change(wanted);
    return engine_key_difference(key, wanted);
  };
  EXPECT_EQ(difference([](EngineKey&) {}), "");
  EXPECT_THAT(difference([&](EngineKey& k) { k.packing = other->packing_key(); }), HasSubstr("generic"));
  EXPECT_THAT(difference([](EngineKey& k) { k.weights = "bf16"; }), HasSubstr("bf16"));
  EXPECT_THAT(difference([](EngineKey& k) { k.files.clear(); }), HasSubstr("files"));
  EXPECT_THAT(difference([](EngineKey& k) { k.files[0].path = "/b"; }), HasSubstr("/models/a.gguf"));
  EXPECT_THAT(difference([](EngineKey& k) { k.files[0].identity.mtime_ns = 1; }), HasSubstr("has changed"));
  EXPECT_THAT(difference([](EngineKey& k) { k.files[0].identity.bytes = 999; }),
              HasSubstr("1000 bytes then"));
  EXPECT_THAT(difference([](EngineKey& k) { k.content = "4567"; }), HasSubstr("content"));
}

TEST(EngineWriter, ConcurrentWritersLeaveOneWholeFile) {
  const TempFolder folder;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const auto backend = make_test_backend();
      write_file(folder / "a", *backend);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto backend = make_test_backend();
  const auto file = EngineFile::open(folder / "a");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->verify(backend->pool()).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "nothing else is left";
}

TEST(EngineWriter, LeavesNothingWhenItFails) {
  const TempFolder folder;
  // An unfinished one; and one whose process is gone, found by the next writer of that name.
  { ASSERT_TRUE(EngineWriter::create(folder / "a").ok()); }
  folder.write("a.writing-99999999-0", "x");
  const auto backend = make_test_backend();
  write_file(folder / "a", *backend);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  // A weight without a stored form.
  const auto ref = *make_backend("ref", {});
  const std::vector<float> values(4);
  const auto weight = *ref->pack(FloatRows{2, 2, DType::kF32, values.data()});
  {
    auto writer = *EngineWriter::create(folder / "b");
    writer->add_weight("w", *weight);
    writer->add_vector("v", values);
    const Status finished = writer->finish(test_key(*backend), {}, false);
    ASSERT_FALSE(finished.ok());
    EXPECT_THAT(finished.error().message, HasSubstr("weight w"));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  // A folder that is not there, or may not be written to (root may write anywhere).
  EXPECT_FALSE(EngineWriter::create(folder / "none/a").ok());
  if (::geteuid() != 0) {
    ::chmod(folder.path().c_str(), 0500);
    EXPECT_EQ(EngineWriter::create(folder / "c").error().code, ErrorCode::kIo);
    ::chmod(folder.path().c_str(), 0700);
  }
}

TEST(EngineWriter, ReplacesTheInfoOnly) {
  const TempFolder folder;
  const auto backend = make_test_backend();
  write_file(folder / "a", *backend);
  EngineInfo info;
  info.max_batch_size = 7;
  info.max_input_len = 100;
  ASSERT_TRUE(replace_engine_info(folder / "a", info).ok());
  const auto file = EngineFile::open(folder / "a");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->table().info.max_batch_size, 7);
  EXPECT_FALSE((*file)->table().info.tuning.has_value());
  EXPECT_TRUE((*file)->verify(backend->pool()).ok());
}

}  // namespace
}  // namespace quire
