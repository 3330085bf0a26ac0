#include "loader/sha256.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>
#include <openssl/evp.h>

#include "base/mapped_file.h"

namespace quire {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  QUIRE_CHECK(state_->context != nullptr);
  QUIRE_CHECK_EQ(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr), 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, std::size_t size) {
  QUIRE_CHECK_EQ(EVP_DigestUpdate(state_->context, data, size), 1);
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  QUIRE_CHECK_EQ(EVP_DigestFinal_ex(state_->context, digest.data(), &size), 1);
  std::string out;
  for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

Result<std::string> file_sha256(const std::string& path, const std::atomic<bool>* cancelled) {
  QUIRE_TRY(const auto file, MappedFile::open(path));
  Sha256 sum;
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  const auto bytes = file->bytes();
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    if (cancelled != nullptr && cancelled->load()) return make_error(ErrorCode::kCancelled, "interrupted");
    sum.update(bytes.data() + at, std::min(kPiece, bytes.size() - at));
  }
  return sum.finish();
}

}  // namespace quire
