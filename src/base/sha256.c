/* Uses libcrypto's low-level functions: EVP loads providers, with thousands of allocations, some of
 * which crash when memory runs out. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/sha.h>

#include "base/status.h"

struct ls_sha256 {
    SHA256_CTX context;
};

ls_status ls_sha256_begin(ls_sha256 **out)
{
    ls_sha256 *hash = malloc(sizeof *hash);
    if (hash == NULL)
        return ls_fail(LS_ERR_MEMORY, "SHA-256: no memory for the hash");
    if (SHA256_Init(&hash->context) != 1) {
        free(hash);
        return ls_fail(LS_ERR_INTERNAL, "SHA-256: libcrypto cannot start a hash");
    }
    *out = hash;
    return LS_OK;
}

ls_status ls_sha256_add(ls_sha256 *hash, const void *data, size_t bytes)
{
    if (bytes != 0 && SHA256_Update(&hash->context, data, bytes) != 1)
        return ls_fail(LS_ERR_INTERNAL, "SHA-256: libcrypto refused %zu bytes", bytes);
    return LS_OK;
}

ls_status ls_sha256_end(ls_sha256 *hash, char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[SHA256_DIGEST_LENGTH];
    int done = SHA256_Final(raw, &hash->context);
    ls_sha256_destroy(hash);
    if (done != 1)
        return ls_fail(LS_ERR_INTERNAL, "SHA-256: libcrypto cannot finish a hash");
    for (unsigned i = 0; i < sizeof raw; i++) {
        hex[2 * i] = digits[raw[i] >> 4];
        hex[2 * i + 1] = digits[raw[i] & 15];
    }
    hex[64] = '\0';
    return LS_OK;
}

void ls_sha256_destroy(ls_sha256 *hash)
{
    free(hash);
}

ls_status ls_sha256_of(const void *data, size_t bytes, char hex[65])
{
    ls_sha256 *hash;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = ls_sha256_add(hash, data, bytes);
    if (status != LS_OK) {
        ls_sha256_destroy(hash);
        return status;
    }
    return ls_sha256_end(hash, hex);
}
