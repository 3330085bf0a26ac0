#include "loader/gguf.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/checkpoint.h"
#include "loader/test_files.h"

namespace quire {
namespace {

using ::testing::AllOf;
using testing::as_bytes;
using testing::ByteWriter;
using ::testing::ElementsAre;
using testing::GgufMaker;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4_0 = 2;

std::string error_of(const std::string& bytes) {
  const auto result = parse_gguf(as_bytes(bytes), "test.gguf");
  return result.ok() ? "no error" : result.error().message;
}

GgufMaker small() {
  GgufMaker maker;
  maker.pair_text("general.architecture", "llama").pair_u32("llama.block_count", 2);
  maker.tensor("a.weight", {64, 3}, kQ4_0, 3 * 2 * 18).tensor("b.weight", {5}, kF32, 20);
  return maker;
}

TEST(GgufTest, ReadsMetadataOfEveryValueType) {
  GgufMaker maker;
  const auto scalar = [&](const char* key, std::uint32_t type, auto value) {
    maker.raw_pair(key, type, ByteWriter().put(value).bytes());
  };
  scalar("u8", 0, std::uint8_t{200});
  scalar("i8", 1, std::int8_t{-7});
  scalar("u16", 2, std::uint16_t{60000});
  scalar("i16", 3, std::int16_t{-30000});
  scalar("u32", 4, std::uint32_t{4000000000u});
  scalar("i32", 5, std::int32_t{-5});
  scalar("f32", 6, 1.5f);
  scalar("bool", 7, std::uint8_t{1});
  maker.pair_text("text", std::string_view("a\0b", 3));
  scalar("u64", 10, std::uint64_t{1} << 63);
  scalar("i64", 11, std::int64_t{-1} << 40);
  scalar("f64", 12, 0.1);
  const auto array = [&](const char* key, std::uint32_t type, std::uint64_t count, std::string_view values) {
    maker.raw_pair(key, 9, ByteWriter().put(type).put(count).raw(values).bytes());
  };
  array("a.i32", 5, 2, ByteWriter().put(std::int32_t{-1}).put(std::int32_t{7}).bytes());
  array("a.u8", 0, 3, "\x01\xff\x02");
  array("a.f32", 6, 2, ByteWriter().put(0.25f).put(-2.0f).bytes());
  array("a.bool", 7, 2, std::string_view("\x00\x01", 2));
  array("a.text", 8, 2, ByteWriter().text("x").text("").bytes());
  array("a.none", 8, 0, "");
  const std::string bytes = maker.file();
  const auto file = parse_gguf(as_bytes(bytes), "test.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Metadata& m = file->metadata;
  EXPECT_EQ(m.get_int("u8"), 200);
  EXPECT_EQ(m.get_int("i8"), -7);
  EXPECT_EQ(m.get_int("u16"), 60000);
  EXPECT_EQ(m.get_int("i16"), -30000);
  EXPECT_EQ(m.get_int("u32"), 4000000000);
  EXPECT_EQ(m.get_int("i32"), -5);
  EXPECT_EQ(m.get_float("f32"), 1.5);
  EXPECT_EQ(m.get_bool("bool"), true);
  EXPECT_EQ(*m.get_string("text"), std::string("a\0b", 3));
  EXPECT_EQ(std::get<std::uint64_t>(*m.find("u64")), std::uint64_t{1} << 63);
  EXPECT_EQ(m.get_int("u64"), std::nullopt);  // does not fit
  EXPECT_EQ(m.get_int("i64"), std::int64_t{-1} << 40);
  EXPECT_EQ(m.get_float("f64"), 0.1);
  EXPECT_THAT(*m.get_ints("a.i32"), ElementsAre(-1, 7));
  EXPECT_THAT(*m.get_ints("a.u8"), ElementsAre(1, 255, 2));
  EXPECT_THAT(*m.get_floats("a.f32"), ElementsAre(0.25, -2.0));
  EXPECT_EQ(std::get<std::vector<bool>>(*m.find("a.bool")), (std::vector<bool>{false, true}));
  EXPECT_THAT(*m.get_strings("a.text"), ElementsAre("x", ""));
  EXPECT_TRUE(m.get_strings("a.none")->empty());
  EXPECT_EQ(m.values().size(), 18u);
}

TEST(GgufTest, ShapesAreOutermostFirstAndDataIsTheTensorsOwn) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufMaker maker = small();
    maker.version = version;
    const std::string bytes = maker.file();
    const auto file = parse_gguf(as_bytes(bytes), "test.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->version, version);
    ASSERT_EQ(file->tensors.size(), 2u);
    const TensorView& a = file->tensors[0];
    EXPECT_EQ(a.name, "a.weight");
    EXPECT_EQ(a.type, TensorType::kQ4_0);
    EXPECT_THAT(a.shape, ElementsAre(3, 64));
    EXPECT_EQ(a.num_values(), 192);
    ASSERT_EQ(a.data.size(), 108u);
    EXPECT_EQ(a.data[1], std::byte{1});
    const TensorView& b = file->tensors[1];
    EXPECT_THAT(b.shape, ElementsAre(5));
    ASSERT_EQ(b.data.size(), 20u);
    EXPECT_EQ(b.data[0], std::byte{128});  // 108 rounded up to 32
    EXPECT_EQ(b.data.data() + b.data.size(), as_bytes(bytes).data() + bytes.size());
  }
}

TEST(GgufTest, EveryTypeHasItsSize) {
  struct Case {
    std::uint32_t id;
    TensorType type;
    std::uint64_t bytes_of_256;
  };
  // Bytes of 256 values, from ggml's block structures.
  for (const Case& c :
       {Case{0, TensorType::kF32, 1024}, Case{1, TensorType::kF16, 512}, Case{30, TensorType::kBf16, 512},
        Case{2, TensorType::kQ4_0, 144}, Case{3, TensorType::kQ4_1, 160}, Case{6, TensorType::kQ5_0, 176},
        Case{7, TensorType::kQ5_1, 192}, Case{8, TensorType::kQ8_0, 272}, Case{10, TensorType::kQ2_K, 84},
        Case{11, TensorType::kQ3_K, 110}, Case{12, TensorType::kQ4_K, 144}, Case{13, TensorType::kQ5_K, 176},
        Case{14, TensorType::kQ6_K, 210}, Case{24, TensorType::kI8, 256}, Case{25, TensorType::kI16, 512},
        Case{26, TensorType::kI32, 1024}, Case{27, TensorType::kI64, 2048},
        Case{28, TensorType::kF64, 2048}}) {
    const std::string bytes = GgufMaker().tensor("t", {256, 2}, c.id, 2 * c.bytes_of_256).file();
    const auto file = parse_gguf(as_bytes(bytes), "test.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensors[0].type, c.type);
    EXPECT_EQ(file->tensors[0].data.size(), 2 * c.bytes_of_256) << tensor_type_info(c.type).name;
  }
}

// LDR-07
TEST(GgufTest, RefusesForeignMagicVersionAndByteOrder) {
  GgufMaker maker = small();
  maker.magic = "GGML";
  EXPECT_THAT(error_of(maker.file()),
              AllOf(HasSubstr("test.gguf"), HasSubstr("not a GGUF file"), HasSubstr("\"GGML\"")));
  maker.magic = "FUGG";
  EXPECT_THAT(error_of(maker.file()), HasSubstr("byte order"));
  maker.magic = "GGUF";
  maker.version = 0x03000000;
  EXPECT_THAT(error_of(maker.file()), HasSubstr("byte order"));
  for (const std::uint32_t version : {0u, 1u, 4u, 99u}) {
    maker.version = version;
    EXPECT_THAT(error_of(maker.file()), HasSubstr("GGUF version " + std::to_string(version))) << version;
  }
  EXPECT_THAT(error_of("GG"), HasSubstr("only 2 bytes"));
  EXPECT_THAT(error_of(""), HasSubstr("only 0 bytes"));
}

// LDR-06: each count, length and dimension at values that overflow.
TEST(GgufTest, RefusesCountsThatDoNotFitTheFile) {
  for (const std::int64_t count : {std::int64_t{100}, std::int64_t{1} << 32, std::int64_t{1} << 60,
                                   std::numeric_limits<std::int64_t>::max()}) {
    GgufMaker maker = small();
    maker.tensor_count = count;
    EXPECT_THAT(error_of(maker.file()), HasSubstr("tensors")) << count;
    maker = small();
    maker.pair_count = count;
    EXPECT_NE(error_of(maker.file()), "no error") << count;
  }
  const auto all_ones =
      ByteWriter().raw("GGUF").put(3u).put(~std::uint64_t{0}).put(~std::uint64_t{0}).bytes();
  EXPECT_THAT(error_of(all_ones), HasSubstr("declares 18446744073709551615 tensors"));
}

TEST(GgufTest, RefusesStringAndArrayLengthsThatDoNotFitTheFile) {
  for (const std::uint64_t length :
       {std::uint64_t{1000}, std::uint64_t{1} << 33, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    GgufMaker maker;
    maker.raw_pair("text", 8, ByteWriter().put(length).raw("abc").bytes());
    EXPECT_THAT(error_of(maker.file()), AllOf(HasSubstr("\"text\""), HasSubstr("are left"))) << length;
    maker = {};
    maker.pairs = ByteWriter().put(length).raw("abc").bytes();
    maker.num_pairs = 1;
    EXPECT_NE(error_of(maker.file() + std::string(16, 'x')), "no error") << length;
    for (const std::uint32_t type : {0u, 4u, 8u, 10u}) {
      maker = {};
      maker.raw_pair("list", 9, ByteWriter().put(type).put(length).raw("abcdefgh").bytes());
      EXPECT_THAT(error_of(maker.file()), AllOf(HasSubstr("\"list\""), HasSubstr("are left")))
          << type << " " << length;
    }
    maker = {};
    maker.raw_pair("list", 9, ByteWriter().put(8u).put(std::uint64_t{1}).put(length).bytes());
    EXPECT_THAT(error_of(maker.file()), HasSubstr("a string of an array")) << length;
  }
}

TEST(GgufTest, RefusesDimensionsThatOverflow) {
  const auto with_dims = [](std::vector<std::uint64_t> dims, std::uint32_t type = kF32) {
    return error_of(GgufMaker().tensor("w", std::move(dims), type, 64).file());
  };
  EXPECT_THAT(with_dims({~std::uint64_t{0}}), AllOf(HasSubstr("\"w\""), HasSubstr("-1")));
  EXPECT_THAT(with_dims({std::uint64_t{1} << 63}), HasSubstr("too large"));
  EXPECT_THAT(with_dims({0}), HasSubstr("zero"));
  EXPECT_THAT(with_dims({4, 0}), HasSubstr("zero"));
  EXPECT_THAT(with_dims({std::uint64_t{1} << 32, std::uint64_t{1} << 32}), HasSubstr("too large"));
  EXPECT_THAT(with_dims({std::uint64_t{1} << 62, 4}), HasSubstr("too large"));
  EXPECT_THAT(with_dims({std::uint64_t{1} << 21, std::uint64_t{1} << 21, std::uint64_t{1} << 21, 2}),
              HasSubstr("too large"));
  // The product of values fits 63 bits, that of bytes would not.
  EXPECT_THAT(with_dims({std::uint64_t{1} << 62}), HasSubstr("cut short"));
  EXPECT_THAT(with_dims({std::uint64_t{1} << 62}, 28), HasSubstr("cut short"));
  EXPECT_THAT(with_dims({17}), HasSubstr("the file has"));
  EXPECT_THAT(with_dims({}), HasSubstr("0 dimensions"));
  EXPECT_THAT(with_dims({1, 1, 1, 1, 1}), HasSubstr("5 dimensions"));
  GgufMaker maker;
  maker.tensor("w", {}, kF32, 4);
  std::string bytes = maker.file();
  const std::uint32_t many = ~0u;
  std::memcpy(bytes.data() + 24 + 8 + 1, &many, 4);
  EXPECT_THAT(error_of(bytes), HasSubstr("4294967295 dimensions"));
}

TEST(GgufTest, RefusesOffsetsThatLeaveTheData) {
  for (const std::uint64_t offset : {std::uint64_t{32}, std::uint64_t{1} << 40, std::uint64_t{1} << 63,
                                     ~std::uint64_t{31}, ~std::uint64_t{63}}) {
    GgufMaker maker;
    maker.tensor("w", {8}, kF32, 32);
    maker.tensors[0].offset = offset;
    EXPECT_THAT(error_of(maker.file()), HasSubstr("\"w\"")) << offset;
  }
  GgufMaker maker;
  maker.tensor("w", {8}, kF32, 32);
  maker.tensors[0].offset = 4;
  EXPECT_THAT(error_of(maker.file()), HasSubstr("alignment"));
  maker = {};
  maker.tensor("v", {8}, kF32, 32).tensor("w", {8}, kF32, 32);
  maker.tensors[1].offset = 0;
  EXPECT_THAT(error_of(maker.file()), AllOf(HasSubstr("overlap"), HasSubstr("\"v\""), HasSubstr("\"w\"")));
}

TEST(GgufTest, NamesDeclaredAndActualSizeOfAShortFile) {
  std::string bytes = small().file();
  const std::size_t whole = bytes.size();
  bytes.resize(whole - 4);
  EXPECT_THAT(error_of(bytes), AllOf(HasSubstr("test.gguf"), HasSubstr(std::to_string(whole)),
                                     HasSubstr(std::to_string(whole - 4)), HasSubstr("cut short")));
}

// Every prefix of a file is refused, whatever it cuts.
TEST(GgufTest, RefusesEveryTruncation) {
  GgufMaker maker = small();
  maker.raw_pair("list", 9, ByteWriter().put(8u).put(std::uint64_t{2}).text("ab").text("c").bytes());
  const std::string bytes = maker.file();
  ASSERT_EQ(error_of(bytes), "no error");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly this size, so that ASan sees a read past it.
    const std::vector<std::byte> cut(as_bytes(bytes).begin(),
                                     as_bytes(bytes).begin() + static_cast<long>(size));
    EXPECT_FALSE(parse_gguf(cut, "test.gguf").ok()) << size;
  }
}

TEST(GgufTest, AlignmentIsAPowerOfTwo) {
  for (const std::uint32_t alignment : {0u, 1u, 4u, 12u, 33u, 0x80000000u, ~0u}) {
    GgufMaker maker;
    maker.pair_u32("general.alignment", alignment).tensor("w", {8}, kF32, 32);
    EXPECT_THAT(error_of(maker.file()), HasSubstr("general.alignment is " + std::to_string(alignment)));
  }
  GgufMaker maker;
  maker.pair_text("general.alignment", "32").tensor("w", {8}, kF32, 32);
  EXPECT_THAT(error_of(maker.file()), HasSubstr("general.alignment"));
  for (const std::uint32_t alignment : {8u, 64u, 4096u}) {
    maker = {};
    maker.alignment = alignment;
    maker.pair_u32("general.alignment", alignment).tensor("v", {8}, kF32, 32).tensor("w", {8}, kF32, 32);
    const std::string bytes = maker.file();
    const auto file = parse_gguf(as_bytes(bytes), "test.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(static_cast<std::size_t>(file->tensors[0].data.data() - as_bytes(bytes).data()) % alignment,
              0u);
  }
  // The data would begin past the end of the file.
  maker = {};
  maker.pair_u32("general.alignment", 1u << 30).tensor("w", {8}, kF32, 32);
  EXPECT_THAT(error_of(maker.header() + std::string(64, '\0')), HasSubstr("cut short"));
}

// LDR-08
TEST(GgufTest, NamesTensorAndTypeIdOfUnsupportedTypes) {
  EXPECT_THAT(error_of(GgufMaker().tensor("blk.0.w", {256}, 16, 66).file()),
              AllOf(HasSubstr("\"blk.0.w\""), HasSubstr("IQ2_XXS"), HasSubstr("id 16")));
  EXPECT_THAT(error_of(GgufMaker().tensor("blk.0.w", {256}, 20, 144).file()), HasSubstr("IQ4_NL"));
  for (const std::uint32_t id : {4u, 5u, 31u, 40u, 1000u, ~0u}) {
    EXPECT_THAT(error_of(GgufMaker().tensor("blk.0.w", {256}, id, 64).file()),
                AllOf(HasSubstr("\"blk.0.w\""), HasSubstr("type id " + std::to_string(id))));
  }
  EXPECT_THAT(error_of(GgufMaker().tensor("w", {48, 2}, kQ4_0, 64).file()),
              AllOf(HasSubstr("rows of 48"), HasSubstr("32"), HasSubstr("Q4_0")));
}

TEST(GgufTest, RefusesDoubledNamesAndOddMetadata) {
  EXPECT_THAT(error_of(GgufMaker().pair_u32("k", 1).pair_u32("k", 2).file()),
              HasSubstr("\"k\" appears twice"));
  EXPECT_THAT(error_of(GgufMaker().tensor("w", {8}, kF32, 32).tensor("w", {8}, kF32, 32).file()),
              HasSubstr("\"w\" appears twice"));
  EXPECT_THAT(error_of(GgufMaker().tensor("", {8}, kF32, 32).file()), HasSubstr("empty name"));
  EXPECT_THAT(error_of(GgufMaker().pair_u32("", 8).file()), HasSubstr("key 0 is empty"));
  EXPECT_THAT(error_of(GgufMaker().raw_pair("k", 13, "12345678").file()), HasSubstr("value type 13"));
  EXPECT_THAT(error_of(GgufMaker().raw_pair("k", 7, "\x02").file()), HasSubstr("bool"));
  EXPECT_THAT(
      error_of(GgufMaker()
                   .raw_pair("k", 9,
                             ByteWriter().put(9u).put(std::uint64_t{1}).put(4u).put(std::uint64_t{0}).bytes())
                   .file()),
      AllOf(HasSubstr("\"k\""), HasSubstr("array of arrays")));
  EXPECT_THAT(
      error_of(GgufMaker().raw_pair("k", 9, ByteWriter().put(77u).put(std::uint64_t{1}).bytes()).file()),
      HasSubstr("value type 77"));
  EXPECT_THAT(error_of(GgufMaker().pair_u32(std::string(70000, 'k'), 1).file()), HasSubstr("limit of 65535"));
  EXPECT_THAT(error_of(GgufMaker().tensor(std::string(2000, 'w'), {8}, kF32, 32).file()),
              HasSubstr("limit of 1024"));
  // A name in a message is one line of plain characters.
  EXPECT_THAT(error_of(GgufMaker().tensor("a\n\x1b[31mb", {8}, 99, 32).file()),
              HasSubstr("\"a\\x0a\\x1b[31mb\""));
}

// LDR-09
TEST(GgufTest, ReadsALargeVocabularyInUnderASecond) {
  ByteWriter tokens;
  ByteWriter scores;
  constexpr std::uint64_t kCount = 262144;
  tokens.put(8u).put(kCount);
  scores.put(6u).put(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    tokens.text("token_number_" + std::to_string(i));
    scores.put(static_cast<float>(i));
  }
  GgufMaker maker;
  maker.raw_pair("tokenizer.ggml.tokens", 9, tokens.bytes())
      .raw_pair("tokenizer.ggml.scores", 9, scores.bytes());
  maker.raw_pair("tokenizer.ggml.merges", 9, tokens.bytes());
  const std::string bytes = maker.file();
  const auto start = std::chrono::steady_clock::now();
  const auto file = parse_gguf(as_bytes(bytes), "test.gguf");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->metadata.get_strings("tokenizer.ggml.tokens")->size(), kCount);
  EXPECT_EQ(file->metadata.get_strings("tokenizer.ggml.merges")->back(), "token_number_262143");
  EXPECT_LT(seconds, 1.0);
}

TEST(GgufTest, ShardNames) {
  GgufShardName name;
  ASSERT_TRUE(parse_gguf_shard_name("m/x-00002-of-00003.gguf", &name));
  EXPECT_EQ(name.prefix, "m/x");
  EXPECT_EQ(name.number, 2);
  EXPECT_EQ(name.count, 3);
  EXPECT_EQ(name.path_of(1), "m/x-00001-of-00003.gguf");
  for (const char* other : {"x.gguf", "-00001-of-00002.gguf", "x-0001-of-0002.gguf", "x-00003-of-00002.gguf",
                            "x-00000-of-00002.gguf", "x-00001-of-00002.GGUF", "x-0000a-of-00002.gguf"}) {
    EXPECT_FALSE(parse_gguf_shard_name(other, &name)) << other;
  }
}

class SplitGgufTest : public ::testing::Test {
 protected:
  static GgufMaker shard(int number, int count, int total) {
    GgufMaker maker;
    if (number == 1) maker.pair_text("general.architecture", "llama");
    maker.pair_u16("split.no", static_cast<std::uint16_t>(number - 1));
    maker.pair_u16("split.count", static_cast<std::uint16_t>(count));
    maker.raw_pair("split.tensors.count", 5, ByteWriter().put(total).bytes());
    maker.tensor("t" + std::to_string(number), {8}, kF32, 32);
    return maker;
  }
  void write(int number, const GgufMaker& maker) {
    folder_.write("m-0000" + std::to_string(number) + "-of-00003.gguf", maker.file());
  }
  TempFolder folder_;
};

TEST_F(SplitGgufTest, LoadsAllFilesFromAnyOne) {
  for (int number = 1; number <= 3; ++number) write(number, shard(number, 3, 3));
  for (const std::string& path :
       {folder_ / "m-00001-of-00003.gguf", folder_ / "m-00003-of-00003.gguf", folder_.path()}) {
    const auto checkpoint = open_checkpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->tensors->tensors().size(), 3u);
    EXPECT_EQ((*checkpoint)->total_bytes, 96u);
    EXPECT_NE((*checkpoint)->tensors->find("t3"), nullptr);
    EXPECT_EQ(*(*checkpoint)->metadata.get_string("general.architecture"), "llama");
  }
}

TEST_F(SplitGgufTest, RefusesSetsThatDoNotFit) {
  const auto error = [&] {
    const auto checkpoint = open_checkpoint(folder_ / "m-00001-of-00003.gguf");
    return checkpoint.ok() ? "no error" : checkpoint.error().message;
  };
  write(1, shard(1, 3, 3));
  write(2, shard(2, 3, 3));
  EXPECT_THAT(error(), HasSubstr("m-00003-of-00003.gguf"));  // missing
  write(3, shard(2, 3, 3));
  EXPECT_THAT(error(), AllOf(HasSubstr("m-00003-of-00003.gguf"), HasSubstr("2 of 3")));
  GgufMaker twice = shard(3, 3, 3);
  twice.tensors[0].name = "t1";
  write(3, twice);
  EXPECT_THAT(error(), AllOf(HasSubstr("\"t1\""), HasSubstr("m-00001-of-00003.gguf")));
  write(3, shard(3, 3, 3));
  write(1, shard(1, 3, 4));
  EXPECT_THAT(error(), HasSubstr("declares 4 tensors"));
  folder_.write("renamed.gguf", shard(1, 3, 3).file());
  const auto renamed = open_checkpoint(folder_ / "renamed.gguf");
  ASSERT_FALSE(renamed.ok());
  EXPECT_THAT(renamed.error().message, HasSubstr("split"));
}

}  // namespace
}  // namespace quire
