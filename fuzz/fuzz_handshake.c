/* The preamble of a caller and the reply to it, which any process may send; and the text of
 * addresses, which comes from files and variables. A preamble that is accepted is one: every number
 * is in its range, and the bytes are those that a worker would send. */
#include "fabric/transport/address.h"
#include "fabric/transport/preamble.h"
#include "fuzz.h"

static void check_preamble(const uint8_t *data, size_t size)
{
    unsigned char bytes[LS_PREAMBLE_BYTES] = { 0 }, again[LS_PREAMBLE_BYTES];
    ls_preamble own = { .version = LS_WIRE_VERSION, .to = 3, .number = 1 }, heard;
    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    FUZZ_CHECK(ls_preamble_set_job(&own, "job") == LS_OK, "%s", ls_last_error());
    ls_reply_code code = ls_preamble_check(bytes, &own, &heard);
    FUZZ_CHECK(code < LS_REPLY_CODES, "code %d", code);
    if (code == LS_REPLY_NO_PREAMBLE || code == LS_REPLY_OTHER_VERSION)
        return;
    FUZZ_CHECK(heard.version == LS_WIRE_VERSION && heard.from < LS_MAX_CLUSTER, "version %u, from %u", heard.version,
               heard.from);
    FUZZ_CHECK(heard.kind == LS_PREAMBLE_CALL || heard.kind == LS_PREAMBLE_ASK, "kind %u", heard.kind);
    if (code == LS_REPLY_WELCOME)
        FUZZ_CHECK(heard.to == 3 && heard.number == 1, "to %u, number %u", heard.to, heard.number);
    ls_preamble_write(&heard, again);
    if (heard.address.bytes > 0) /* without a port there is no address, whatever its bytes are */
        FUZZ_CHECK(memcmp(bytes, again, sizeof(bytes)) == 0, "the preamble written differs from the one read");
}

static void check_reply(const uint8_t *data, size_t size)
{
    unsigned char bytes[LS_REPLY_BYTES] = { 0 };
    int version = -1;
    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    ls_reply_code code = ls_reply_read(bytes, &version);
    FUZZ_CHECK(code < LS_REPLY_CODES && version >= 0 && version <= 65535, "code %d, version %d", code, version);
    FUZZ_CHECK(code != LS_REPLY_WELCOME || version == LS_WIRE_VERSION, "welcome by version %d", version);
}

static void check_address(const uint8_t *data, size_t size)
{
    char text[512], printed[LS_ADDRESS_CHARS];
    unsigned char packed[LS_PACKED_ADDRESS];
    ls_host_port where;
    ls_address address, again;
    if (size >= sizeof(text))
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!ls_host_port_read(text, &where))
        return;
    FUZZ_CHECK(where.port >= 0 && where.port <= 65535 && strlen(where.host) > 0, "port %d of '%s'", where.port,
               where.host);
    if (!ls_address_read(&where, &address) || where.port == 0)
        return;
    ls_address_pack(&address, packed);
    ls_address_unpack(packed, &again);
    FUZZ_CHECK(ls_address_port(&again) == where.port, "port %d", ls_address_port(&again));
    FUZZ_CHECK(strlen(ls_address_print(&again, printed)) > 0, "nothing is printed");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    switch (data[0] % 3) {
    case 0:
        check_preamble(data + 1, size - 1);
        break;
    case 1:
        check_reply(data + 1, size - 1);
        break;
    default:
        check_address(data + 1, size - 1);
    }
    return 0;
}
