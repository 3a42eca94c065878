#include "routing/affinity.h"

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "icache/base/block_hash.h"

namespace icache {

// Collects the seed in pieces of a few kilobytes: a call into libcrypto costs more than a block hash is worth.
struct SeedHasher::Context {
  Context() : digest(EVP_MD_fetch(nullptr, "SHA256", nullptr)), state(EVP_MD_CTX_new()) {}
  ~Context() {
    EVP_MD_CTX_free(state);
    EVP_MD_free(digest);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void Start() {
    ok = digest != nullptr && state != nullptr && EVP_DigestInit_ex2(state, digest, nullptr) == 1;
    used = 0;
  }

  void Add(BlockHash hash) {
    if (used + kMaxBlockHashBytes > buffer.size()) Flush();
    if (hash.IsPacked()) {
      StoreBigEndian64(hash.packed(), buffer.data() + used);
    } else {
      std::memcpy(buffer.data() + used, hash.wide().data(), hash.size());
    }
    used += hash.size();
  }

  // A length of at most 64: three zero bytes and itself.
  void AddLength(size_t length) {
    if (used + 4 > buffer.size()) Flush();
    std::memset(buffer.data() + used, 0, 3);
    buffer[used + 3] = static_cast<char>(length);
    used += 4;
  }

  void Flush() {
    ok = ok && EVP_DigestUpdate(state, buffer.data(), used) == 1;
    used = 0;
  }

  std::optional<uint64_t> Finish() {
    Flush();
    std::array<unsigned char, EVP_MAX_MD_SIZE> sum;
    ok = ok && EVP_DigestFinal_ex(state, sum.data(), nullptr) == 1;
    if (!ok) return std::nullopt;
    return LoadBigEndian64(reinterpret_cast<const char*>(sum.data()));
  }

  EVP_MD* const digest;
  EVP_MD_CTX* const state;
  bool ok = false;  // so far, for this seed; libcrypto fails only without memory or without SHA-256
  size_t used = 0;
  std::array<char, 4096> buffer;
};

SeedHasher::SeedHasher() : context_(std::make_unique<Context>()) {}
SeedHasher::~SeedHasher() = default;

std::optional<uint64_t> SeedHasher::Hash(const LookupKey& key) {
  if (key.kind == KeyKind::kNothing) return std::nullopt;
  context_->Start();
  if (key.kind == KeyKind::kExact) {
    context_->Add(key.hash);
  } else {
    for (size_t i = 0; i < key.chain.size(); ++i) {
      context_->AddLength(key.chain.hash(i).size());
      context_->Add(key.chain.hash(i));
    }
  }
  return context_->Finish();
}

std::string_view PickReplica(const ScopeView& view, const CandidateFilter& candidates, uint64_t seed_hash,
                             std::vector<std::string_view>* present) {
  if (candidates.AdmitsAll()) {
    const size_t replica_count = view.ReplicaCount();
    return replica_count == 0 ? std::string_view() : view.ReplicaAt(seed_hash % replica_count);
  }
  candidates.ListPresent(view, present);
  return present->empty() ? std::string_view() : (*present)[seed_hash % present->size()];
}

}  // namespace icache
