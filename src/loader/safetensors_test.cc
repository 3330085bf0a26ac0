#include "loader/safetensors.h"

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
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_safetensors;
using testing::TempFolder;

std::string error_of(std::string_view header, std::size_t data_bytes) {
  const std::string bytes = make_safetensors(header, data_bytes);
  const auto result = parse_safetensors(as_bytes(bytes), "m.safetensors");
  return result.ok() ? "no error" : result.error().message;
}

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,3],"data_offsets":[8,20]},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirData) {
  const std::string bytes = make_safetensors(kTwo, 20);
  const auto tensors = parse_safetensors(as_bytes(bytes), "m.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[1].type, TensorType::kF16);
  EXPECT_EQ((*tensors)[1].data.size(), 12u);
  EXPECT_EQ((*tensors)[1].data.data(), as_bytes(bytes).data() + 8 + kTwo.size() + 8);
}

TEST(SafetensorsTest, ReadsEveryDtypeScalarsAndEmptyTensors) {
  const std::pair<const char*, int> dtypes[] = {{"F64", 8}, {"F32", 4},  {"F16", 2},     {"BF16", 2},
                                                {"I64", 8}, {"I32", 4},  {"I16", 2},     {"I8", 1},
                                                {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [dtype, width] : dtypes) {
    const std::string header = std::string(R"({"t":{"dtype":")") + dtype +
                               R"(","shape":[3],"data_offsets":[0,)" + std::to_string(3 * width) + "]}}";
    const std::string bytes = make_safetensors(header, static_cast<std::size_t>(3 * width));
    const auto tensors = parse_safetensors(as_bytes(bytes), "m");
    ASSERT_TRUE(tensors.ok()) << tensors.error().message;
    EXPECT_EQ(tensor_type_info((*tensors)[0].type).name, dtype);
  }
  EXPECT_EQ(error_of(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "no error");
  EXPECT_EQ(error_of(R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
                     R"("s":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})",
                     4),
            "no error");
  EXPECT_EQ(error_of("{}", 0), "no error");
}

// LDR-03
TEST(SafetensorsTest, HeadersNearBufferBordersLoad) {
  std::vector<std::size_t> sizes = {4095, 4096, 4097, 65535, 65536, 65537, std::size_t{4} << 20};
  for (std::size_t size = 99993; size <= 100001; ++size) sizes.push_back(size);
  for (const std::size_t size : sizes) {
    std::string header(kTwo);
    header.resize(size, ' ');
    EXPECT_EQ(error_of(header, 20), "no error") << size;
  }
}

// LDR-01
TEST(SafetensorsTest, NamesFileDeclaredAndActualSizeOfAShortShard) {
  const std::string bytes = make_safetensors(kTwo, 20);
  const std::size_t whole = bytes.size();
  const auto cut = parse_safetensors(as_bytes(bytes).first(whole - 12), "m-00002.safetensors");
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message, AllOf(HasSubstr("m-00002.safetensors"), HasSubstr(std::to_string(whole)),
                                         HasSubstr(std::to_string(whole - 12)), HasSubstr("cut short")));
  EXPECT_THAT(error_of(kTwo, 21), HasSubstr("trailing"));
  for (std::size_t size = 0; size < whole; ++size) {
    const std::vector<std::byte> copy(as_bytes(bytes).begin(),
                                      as_bytes(bytes).begin() + static_cast<long>(size));
    EXPECT_FALSE(parse_safetensors(copy, "m").ok()) << size;
  }
}

TEST(SafetensorsTest, RefusesHeaderSizesThatDoNotFit) {
  for (const std::uint64_t size : {std::uint64_t{200}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63,
                                   ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    const std::string bytes = ByteWriter().put(size).raw("{}").bytes();
    EXPECT_FALSE(parse_safetensors(as_bytes(bytes), "m").ok()) << size;
  }
  EXPECT_THAT(error_of("", 0), HasSubstr("begin with '{'"));
  EXPECT_THAT(error_of(" {}", 0), HasSubstr("begin with '{'"));
}

TEST(SafetensorsTest, RefusesShapesAndOffsetsThatDoNotAgree) {
  const auto one = [](const std::string& shape, const std::string& offsets, std::size_t data,
                      const char* dtype = "F32") {
    return error_of(std::string(R"({"w":{"dtype":")") + dtype + R"(","shape":)" + shape +
                        R"(,"data_offsets":)" + offsets + "}}",
                    data);
  };
  EXPECT_THAT(one("[2]", "[0,9]", 9), AllOf(HasSubstr("\"w\""), HasSubstr("9 bytes"), HasSubstr("need 8")));
  EXPECT_THAT(one("[2]", "[8,0]", 8), HasSubstr("before its begin"));
  EXPECT_THAT(one("[2]", "[4,12]", 12), HasSubstr("holes"));
  EXPECT_THAT(one("[4611686018427387904,4]", "[0,8]", 8), HasSubstr("overflows"));
  EXPECT_THAT(one("[4294967296,4294967296]", "[0,0]", 0), HasSubstr("overflows"));
  EXPECT_THAT(one("[18446744073709551615]", "[0,8]", 8), HasSubstr("overflows"));
  EXPECT_THAT(one("[18446744073709551615,0]", "[0,0]", 0), HasSubstr("overflows"));
  EXPECT_THAT(one("[2305843009213693951]", "[0,9223372036854775804]", 8), HasSubstr("cut short"));
  EXPECT_THAT(one("[2]", "[18446744073709551608,18446744073709551615]", 8), HasSubstr("\"w\""));
  EXPECT_THAT(one("[-1]", "[0,8]", 8), HasSubstr("-1"));
  EXPECT_THAT(one("[2.0]", "[0,8]", 8), HasSubstr("2.0"));
  EXPECT_THAT(one("[36893488147419103232]", "[0,8]", 8), HasSubstr("36893488147419103232"));
  EXPECT_THAT(one("[2]", "[0,8,8]", 8), HasSubstr("too long"));
  EXPECT_THAT(one("[2]", "[0]", 8), HasSubstr("two data_offsets"));
  EXPECT_THAT(one("[2]", "[]", 8), HasSubstr("two data_offsets"));
  EXPECT_THAT(one("[2]", "[0,8]", 8, "Q4_0"), AllOf(HasSubstr("\"w\""), HasSubstr("\"Q4_0\"")));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"I8","shape":[4],"data_offsets":[2,6]}})",
                       6),
              HasSubstr("overlaps"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})",
                       4),
              HasSubstr("overlaps"));
}

TEST(SafetensorsTest, RefusesHeadersThatAreNotTheGrammar) {
  EXPECT_THAT(error_of(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                       R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                       1),
              HasSubstr("\"a\" twice"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"I8","shape":[1]}})", 1), HasSubstr("without"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"x":1}})", 1),
              HasSubstr("\"x\""));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})", 0), HasSubstr("out of place"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":{"b":"c"}}})", 0), HasSubstr("out of place"));
  EXPECT_THAT(error_of(R"({"a":1})", 0), HasSubstr("out of place"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":[],"shape":[1],"data_offsets":[0,1]}})", 0),
              HasSubstr("out of place"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"I8","shape":[[1]],"data_offsets":[0,1]}})", 0),
              HasSubstr("out of place"));
  EXPECT_THAT(error_of(R"({"a":)", 0), HasSubstr("invalid JSON"));
  EXPECT_THAT(error_of(R"({}{})", 0), HasSubstr("invalid JSON"));
  EXPECT_THAT(error_of(std::string_view("{}\0\0", 4), 0), HasSubstr("invalid JSON"));
  EXPECT_THAT(error_of("{\"\xff\":1}", 0), HasSubstr("invalid JSON"));
  std::string deep = R"({"a":)";
  for (int i = 0; i < 1000000; ++i) deep += R"({"a":)";
  EXPECT_THAT(error_of(deep, 0), HasSubstr("\"a\""));
  EXPECT_THAT(error_of("{" + std::string(1000000, '['), 0), HasSubstr("invalid JSON"));
}

class FolderTest : public ::testing::Test {
 protected:
  // A file with I8 tensors of one value each.
  static std::string shard(const std::vector<std::string>& names) {
    std::string header = "{";
    for (std::size_t i = 0; i < names.size(); ++i) {
      header += (i == 0 ? "\"" : ",\"") + names[i] + R"(":{"dtype":"I8","shape":[1],"data_offsets":[)" +
                std::to_string(i) + "," + std::to_string(i + 1) + "]}";
    }
    return make_safetensors(header + "}", names.size());
  }
  void index(std::string_view weight_map) {
    folder_.write("model.safetensors.index.json",
                  R"({"metadata":{"total_size":2},"weight_map":{)" + std::string(weight_map) + "}}");
  }
  std::string error(const std::string& path) {
    const auto checkpoint = open_checkpoint(path);
    return checkpoint.ok() ? "no error" : checkpoint.error().message;
  }
  std::string error() { return error(folder_.path()); }
  TempFolder folder_;
};

TEST_F(FolderTest, LoadsASingleFileWithItsSideFiles) {
  folder_.write("model.safetensors", shard({"a", "b"}));
  folder_.write("config.json", R"({"model_type":"llama"})");
  folder_.write("generation_config.json", "{}");
  folder_.write("tokenizer.json", R"({"version":"1.0"})");
  folder_.write("tokenizer_config.json", R"({"x":1})");
  folder_.write("chat_template.json", R"({"chat_template":"{{ old }}"})");
  auto checkpoint = open_checkpoint(folder_.path() + "/");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->format, CheckpointFormat::kSafetensors);
  EXPECT_EQ((*checkpoint)->config_json, R"({"model_type":"llama"})");
  EXPECT_EQ((*checkpoint)->generation_config_json, "{}");
  EXPECT_EQ((*checkpoint)->tokenizer_json, R"({"version":"1.0"})");
  EXPECT_EQ((*checkpoint)->tokenizer_config_json, R"({"x":1})");
  EXPECT_EQ((*checkpoint)->chat_template_jinja, "{{ old }}");
  EXPECT_EQ((*checkpoint)->total_bytes, 2u);
  EXPECT_EQ((*checkpoint)->name, std::filesystem::path(folder_.path()).filename());
  EXPECT_EQ((*checkpoint)->tensors->find("c"), nullptr);
  folder_.write("chat_template.jinja", "{{ new }}");
  checkpoint = open_checkpoint(folder_ / "model.safetensors");  // one file, with the side files beside it
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->chat_template_jinja, "{{ new }}");
  EXPECT_EQ((*checkpoint)->name, "model");
}

TEST_F(FolderTest, LoadsShardsAlsoFromASubfolder) {
  folder_.write("one.safetensors", shard({"a"}));
  folder_.write("sub/two.safetensors", shard({"b", "c"}));
  index(R"("a":"one.safetensors","b":"sub/two.safetensors","c":"sub/two.safetensors")");
  const auto checkpoint = open_checkpoint(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->tensors->tensors().size(), 3u);
}

// LDR-04
TEST_F(FolderTest, RefusesShardNamesThatLeaveTheFolder) {
  folder_.write("one.safetensors", shard({"a"}));
  for (const char* name : {"../../../../etc/passwd", "/etc/passwd", "sub/../../x", "..", ".", "", "sub//x",
                           "./one.safetensors", "..\\\\x", "a\\u0000b"}) {
    index(R"("a":"one.safetensors","b":")" + std::string(name) + "\"");
    EXPECT_THAT(error(), AllOf(HasSubstr("leads outside"), HasSubstr("\"b\""))) << name;
  }
}

TEST_F(FolderTest, RefusesLinksThatLeaveTheFolder) {
  const TempFolder other;
  other.write("x.safetensors", shard({"b"}));
  folder_.write("one.safetensors", shard({"a"}));
  index(R"("a":"one.safetensors","b":"link.safetensors")");
  std::filesystem::create_symlink(other / "x.safetensors", folder_ / "link.safetensors");
  EXPECT_THAT(error(), AllOf(HasSubstr("symbolic link"), HasSubstr("link.safetensors")));
  index(R"("a":"one.safetensors","b":"sub/x.safetensors")");
  std::filesystem::create_directory_symlink(other.path(), folder_ / "sub");
  EXPECT_THAT(error(), HasSubstr("symbolic link"));
  // A folder whose name only begins like the model folder's is outside too.
  std::filesystem::remove(folder_ / "link.safetensors");
  const std::string sibling = folder_.path() + "-evil";
  std::filesystem::create_directory(sibling);
  std::filesystem::copy_file(other / "x.safetensors", sibling + "/x.safetensors");
  std::filesystem::create_symlink(sibling + "/x.safetensors", folder_ / "link.safetensors");
  index(R"("a":"one.safetensors","b":"link.safetensors")");
  EXPECT_THAT(error(), HasSubstr("symbolic link"));
  std::filesystem::remove_all(sibling);
  // Side files follow the same rule.
  std::filesystem::remove(folder_ / "model.safetensors.index.json");
  std::filesystem::remove(folder_ / "link.safetensors");
  EXPECT_EQ(error(), "no error");
  std::filesystem::create_symlink("/etc/passwd", folder_ / "config.json");
  EXPECT_THAT(error(), AllOf(HasSubstr("symbolic link"), HasSubstr("config.json")));
}

TEST_F(FolderTest, FollowsLinksInsideTheFolderAndInAHubCache) {
  folder_.write("data/x.safetensors", shard({"a"}));
  std::filesystem::create_symlink("data/x.safetensors", folder_ / "model.safetensors");
  EXPECT_EQ(error(), "no error");

  const TempFolder cache;
  const std::string snapshot = cache / "models--org--tiny/snapshots/abc123";
  cache.write("models--org--tiny/blobs/f00d", shard({"a"}));
  cache.write("models--org--tiny/blobs/cafe", "{}");
  cache.write("models--org--other/blobs/f00d", shard({"a"}));
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_symlink("../../blobs/f00d", snapshot + "/model.safetensors");
  std::filesystem::create_symlink("../../blobs/cafe", snapshot + "/config.json");
  const auto checkpoint = open_checkpoint(snapshot);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->config_json, "{}");
  EXPECT_EQ((*checkpoint)->name, "tiny");
  // Another model's folder is outside.
  std::filesystem::remove(snapshot + "/model.safetensors");
  std::filesystem::create_symlink("../../../models--org--other/blobs/f00d", snapshot + "/model.safetensors");
  EXPECT_THAT(error(snapshot), HasSubstr("symbolic link"));
  // A folder reached through a link is its own tree.
  std::filesystem::create_directory_symlink(folder_.path(), cache / "alias");
  EXPECT_EQ(error(cache / "alias"), "no error");
}

// LDR-05
TEST_F(FolderTest, NamesWhatAnIndexGetsWrong) {
  folder_.write("one.safetensors", shard({"a"}));
  folder_.write("two.safetensors", shard({"b"}));
  index(R"("a":"one.safetensors","b":"three.safetensors")");
  EXPECT_THAT(error(), AllOf(HasSubstr("three.safetensors"), HasSubstr("\"b\"")));
  index(R"("a":"one.safetensors","b":"two.safetensors","c":"two.safetensors")");
  EXPECT_THAT(error(), AllOf(HasSubstr("\"c\""), HasSubstr("two.safetensors")));
  index(R"("a":"one.safetensors","b":"one.safetensors")");
  EXPECT_THAT(error(), AllOf(HasSubstr("\"b\""), HasSubstr("one.safetensors")));
  index(R"("a":"one.safetensors","b":"two.safetensors","a":"two.safetensors")");
  EXPECT_THAT(error(), AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
  folder_.write("two.safetensors", shard({"a", "b"}));  // "a" in two shards
  index(R"("a":"one.safetensors","b":"two.safetensors")");
  EXPECT_THAT(error(), AllOf(HasSubstr("\"a\""), HasSubstr("two.safetensors")));
  index("");
  EXPECT_THAT(error(), HasSubstr("weight_map"));
  for (const char* json :
       {"[]", "", "{", R"({"weight_map":[]})", R"({"weight_map":"x"})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":{"b":"c"}}})", R"({"weight_map":{"a":["b"]}})", R"({"metadata":{}})"}) {
    folder_.write("model.safetensors.index.json", json);
    EXPECT_THAT(error(), HasSubstr("index")) << json;
  }
  folder_.write("model.safetensors.index.json", R"({"metadata":)" + std::string(1000000, '['));
  EXPECT_THAT(error(), HasSubstr("levels"));
}

TEST_F(FolderTest, SaysWhatAFolderOrFileLacks) {
  EXPECT_THAT(error(), HasSubstr("holds no model"));
  folder_.write("pytorch_model.bin", "PK");
  EXPECT_THAT(error(), AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("convert")));
  EXPECT_THAT(error(folder_ / "pytorch_model.bin"), HasSubstr("convert"));
  EXPECT_THAT(error(folder_.write("renamed.weights", std::string("PK\x03\x04zzzz", 8))), HasSubstr("pickle"));
  EXPECT_THAT(error(folder_.write("notes.txt", "hello")), HasSubstr("\"hell\""));
  EXPECT_THAT(error(folder_.write("empty.gguf", "")), HasSubstr("empty"));
  EXPECT_THAT(error(folder_.write("old.bin2", "tjgg....")), HasSubstr("before GGUF"));
  EXPECT_THAT(error(folder_.write("config.json", "{}")), HasSubstr("folder"));
  EXPECT_THAT(error(folder_ / "absent"), HasSubstr("does not exist"));
  EXPECT_THAT(error("/dev/null"), HasSubstr("neither a file nor a folder"));
  EXPECT_THAT(error(""), HasSubstr("empty"));
  std::filesystem::remove(folder_ / "empty.gguf");
  folder_.write("a.gguf", testing::GgufMaker().tensor("t", {8}, 0, 32).file());
  EXPECT_EQ(error(), "no error");
  folder_.write("b.gguf", "x");
  EXPECT_THAT(error(), AllOf(HasSubstr("a.gguf"), HasSubstr("b.gguf")));
  folder_.write("x.safetensors", shard({"a"}));
  EXPECT_EQ(error(), "no error");
  folder_.write("y.safetensors", shard({"a"}));
  EXPECT_THAT(error(), HasSubstr("not clear which"));
}

TEST_F(FolderTest, VocabularyAloneNeedsLeave) {
  const std::string path = folder_.write("v.gguf", testing::GgufMaker().pair_u32("x", 1).file());
  EXPECT_THAT(error(path), HasSubstr("no tensors"));
  auto checkpoint = open_checkpoint(path, /*allow_no_tensors=*/true);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_THAT((*checkpoint)->tensors->tensors(), IsEmpty());
  EXPECT_EQ((*checkpoint)->gguf_version, 3u);
  const TempFolder tokenizer;
  tokenizer.write("tokenizer.json", "{}");
  EXPECT_THAT(error(tokenizer.path()), HasSubstr("holds no model"));
  checkpoint = open_checkpoint(tokenizer.path(), true);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->tokenizer_json, "{}");
}

TEST(RealVocabularyTest, EveryVocabularyOfThePeersOpens) {
  const std::filesystem::path folder = std::filesystem::path(QUIRE_SHARED_DIR) / "vocab";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  int count = 0;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    if (item.path().extension() != ".gguf") continue;
    const auto checkpoint = open_checkpoint(item.path().string(), true);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_GT((*checkpoint)->metadata.get_strings("tokenizer.ggml.tokens")->size(), 1000u);
    ++count;
  }
  EXPECT_GT(count, 5);
}

}  // namespace
}  // namespace quire
