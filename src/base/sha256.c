/* SHA-256 by libcrypto's EVP interface. */
#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/status.h"

struct ls_sha256 {
    EVP_MD_CTX *context;
};

ls_status ls_sha256_begin(ls_sha256 **out)
{
    ls_sha256 *hash = malloc(sizeof *hash);
    if (hash == NULL)
        return ls_fail(LS_ERR_MEMORY, "SHA-256: no memory for the hash");
    hash->context = EVP_MD_CTX_new();
    if (hash->context == NULL || EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) != 1) {
        ls_sha256_destroy(hash);
        return ls_fail(LS_ERR_INTERNAL, "SHA-256: libcrypto cannot start a hash");
    }
    *out = hash;
    return LS_OK;
}

ls_status ls_sha256_add(ls_sha256 *hash, const void *data, size_t bytes)
{
    if (bytes != 0 && EVP_DigestUpdate(hash->context, data, bytes) != 1)
        return ls_fail(LS_ERR_INTERNAL, "SHA-256: libcrypto refused %zu bytes", bytes);
    return LS_OK;
}

ls_status ls_sha256_end(ls_sha256 *hash, char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    int done = EVP_DigestFinal_ex(hash->context, raw, &length);
    ls_sha256_destroy(hash);
    if (done != 1 || length != 32)
        return ls_fail(LS_ERR_INTERNAL, "SHA-256: libcrypto cannot finish a hash");
    for (unsigned i = 0; i < length; i++) {
        hex[2 * i] = digits[raw[i] >> 4];
        hex[2 * i + 1] = digits[raw[i] & 15];
    }
    hex[64] = '\0';
    return LS_OK;
}

void ls_sha256_destroy(ls_sha256 *hash)
{
    if (hash == NULL)
        return;
    EVP_MD_CTX_free(hash->context);
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
