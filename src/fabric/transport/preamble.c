/* The first bytes of a connection. All numbers are big-endian:
 *
 * clang-format off
 *     bytes of a preamble                     bytes of a reply
 *      0  8  "LOCKSTEP"                        0  8  "LOCKSTEP"
 *      8  2  version                           8  2  version
 *     10  2  kind                             10  2  code
 *     12  4  number of the cluster            12  4  zero
 *     16  4  rank of the caller
 *     20  4  rank of the listener
 *     24 18  address where the caller listens
 *     42  2  zero
 *     44 20  hash of the job's name
 * clang-format on
 *
 * Later versions keep the first ten bytes. */
#include "fabric/transport/preamble.h"

#include <string.h>

#include "base/sha256.h"
#include "lockstep/cluster.h"

static const char magic[8] = { 'L', 'O', 'C', 'K', 'S', 'T', 'E', 'P' };

static void put(unsigned char *at, uint32_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        at[i] = (unsigned char)value;
}

static uint32_t get(const unsigned char *at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

ls_status ls_preamble_set_job(ls_preamble *preamble, const char *job)
{
    char hex[65];
    LS_TRY(ls_sha256_of(job, strlen(job), hex));
    for (int i = 0; i < LS_JOB_HASH_BYTES; i++)
        preamble->job[i] = (unsigned char)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    return LS_OK;
}

void ls_preamble_write(const ls_preamble *preamble, unsigned char out[LS_PREAMBLE_BYTES])
{
    memset(out, 0, LS_PREAMBLE_BYTES);
    memcpy(out, magic, sizeof(magic));
    put(out + 8, preamble->version, 2);
    put(out + 10, preamble->kind, 2);
    put(out + 12, preamble->number, 4);
    put(out + 16, preamble->from, 4);
    put(out + 20, preamble->to, 4);
    ls_address_pack(&preamble->address, out + 24);
    memcpy(out + 44, preamble->job, LS_JOB_HASH_BYTES);
}

ls_reply_code ls_preamble_check(const unsigned char in[LS_PREAMBLE_BYTES], const ls_preamble *own, ls_preamble *out)
{
    *out = (ls_preamble){ .version = 0 };
    if (memcmp(in, magic, sizeof(magic)) != 0)
        return LS_REPLY_NO_PREAMBLE;
    out->version = (uint16_t)get(in + 8, 2);
    if (out->version != LS_WIRE_VERSION)
        return LS_REPLY_OTHER_VERSION;
    out->kind = (uint16_t)get(in + 10, 2);
    out->number = get(in + 12, 4);
    out->from = get(in + 16, 4);
    out->to = get(in + 20, 4);
    ls_address_unpack(in + 24, &out->address);
    memcpy(out->job, in + 44, LS_JOB_HASH_BYTES);
    if ((out->kind != LS_PREAMBLE_CALL && out->kind != LS_PREAMBLE_ASK) || out->from >= LS_MAX_CLUSTER || in[42] ||
        in[43])
        return LS_REPLY_NO_PREAMBLE;
    if (memcmp(out->job, own->job, LS_JOB_HASH_BYTES) != 0)
        return LS_REPLY_OTHER_JOB;
    return out->to == own->to && out->number == own->number ? LS_REPLY_WELCOME : LS_REPLY_OTHER_WORKER;
}

void ls_reply_write(ls_reply_code code, unsigned char out[LS_REPLY_BYTES])
{
    memset(out, 0, LS_REPLY_BYTES);
    memcpy(out, magic, sizeof(magic));
    put(out + 8, LS_WIRE_VERSION, 2);
    put(out + 10, code, 2);
}

ls_reply_code ls_reply_read(const unsigned char in[LS_REPLY_BYTES], int *version)
{
    *version = (int)get(in + 8, 2);
    uint32_t code = get(in + 10, 2);
    if (memcmp(in, magic, sizeof(magic)) != 0 || code >= LS_REPLY_CODES)
        return LS_REPLY_NO_PREAMBLE;
    return *version == LS_WIRE_VERSION || code != LS_REPLY_WELCOME ? (ls_reply_code)code : LS_REPLY_OTHER_VERSION;
}
