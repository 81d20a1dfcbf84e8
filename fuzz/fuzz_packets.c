/* Packets from other workers: one worker of three, whose connections deliver what the input says:
 * heads that are nearly right, bodies of any length, single bytes changed, an end anywhere. Every
 * call must end with a status and write only to the pieces. */
#include "fabric/mesh/mesh.h"
#include "fuzz.h"

#define WORKERS   3
#define MOST      65536 /* bytes of a connection */
#define MOST_WAIT 2000
#define BYTES     40 /* of a piece */

typedef struct stream {
    unsigned char data[MOST];
    size_t bytes, at;
} stream;

static stream streams[WORKERS];
static double seconds;
static int waits;

/* ---- A transport that delivers the streams ---- */

static ls_status fake_write(ls_connection *connection, const struct iovec *parts, int count, size_t *moved)
{
    (void)connection;
    *moved = 0;
    for (int i = 0; i < count; i++)
        *moved += parts[i].iov_len;
    return LS_OK;
}

static ls_status fake_read(ls_connection *connection, const struct iovec *parts, int count, size_t *moved)
{
    stream *s = (stream *)connection;
    *moved = 0;
    for (int i = 0; i < count; i++) {
        size_t left = s->bytes - s->at, n = parts[i].iov_len < left ? parts[i].iov_len : left;
        memcpy(parts[i].iov_base, s->data + s->at, n);
        s->at += n;
        *moved += n;
    }
    return *moved > 0 || count == 0 ? LS_OK : ls_fail(LS_ERR_PEER, "its connection ended");
}

static void fake_hang_up(ls_connection *connection)
{
    (void)connection;
}

static ls_status fake_wait(ls_transport *transport, ls_want *wants, int count, double limit)
{
    (void)transport;
    seconds += limit;
    for (int i = 0; i < count; i++)
        wants[i].ready = true;
    return ++waits < MOST_WAIT ? LS_OK : ls_fail(LS_ERR_PEER, "it takes too long");
}

static double fake_now(ls_transport *transport)
{
    (void)transport;
    return seconds;
}

static void fake_close(ls_transport *transport)
{
    (void)transport;
}

static const ls_transport_table fake = { .name = "fake",
                                         .elastic = true,
                                         .close = fake_close,
                                         .write = fake_write,
                                         .read = fake_read,
                                         .hang_up = fake_hang_up,
                                         .wait = fake_wait,
                                         .now = fake_now };

/* ---- What the input says ---- */

static void add_bytes(stream *s, const void *data, size_t bytes)
{
    bytes = bytes < MOST - s->bytes ? bytes : MOST - s->bytes;
    memcpy(s->data + s->bytes, data, bytes);
    s->bytes += bytes;
}

static void add_packet(fuzz_input *in, int from)
{
    static const char zeros[512];
    static const uint64_t large[] = { 0, BYTES, 2 * BYTES, 511, UINT64_MAX, (uint64_t)1 << 40, 1, BYTES - 1 };
    stream *s = &streams[from];
    ls_packet packet = { .magic = LS_PACKET_MAGIC, .version = LS_PACKET_VERSION, .from = (uint32_t)from };
    size_t begin = s->bytes;
    packet.kind = (uint16_t)fuzz_take(in, LS_PACKET_KINDS + 1);
    packet.generation = 1 + fuzz_take(in, 3);
    packet.number = fuzz_take(in, 3);
    packet.sequence = fuzz_take(in, 4);
    packet.tag = fuzz_take(in, 3);
    packet.hash[0] = fuzz_take(in, 2);
    packet.bytes = packet.kind == LS_PACKET_PIECES ? large[fuzz_take(in, 8)] : 0;
    if (packet.kind == LS_PACKET_ANNOUNCE)
        packet.members[0] = fuzz_take(in, 16);
    else
        memset(packet.what, 'w', fuzz_take(in, LS_PACKET_WHAT + 1));
    add_bytes(s, &packet, sizeof(packet));
    add_bytes(s, zeros, packet.bytes < sizeof(zeros) ? (size_t)packet.bytes : sizeof(zeros));
    unsigned place = fuzz_take(in, 255); /* mostly none */
    if (place < sizeof(packet) && begin + place < s->bytes)
        s->data[begin + place] = (unsigned char)fuzz_take(in, 255);
}

static void check_exchange(ls_mesh *mesh, uint64_t tag, unsigned char (*data)[BYTES + 1])
{
    const int all = LS_ALL_WORKERS;
    ls_piece pieces[] = { { 0, all, data[0], BYTES }, { 1, all, data[1], BYTES }, { 2, 1, data[2], BYTES } };
    fuzz_status(ls_mesh_exchange(&mesh->peers, tag, "fuzz", pieces, 3));
    for (int i = 0; i < 3; i++)
        FUZZ_CHECK(data[i][BYTES] == 0xee, "a byte after piece %d was written", i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = { data, size };
    unsigned char pieces[3][BYTES + 1];
    ls_cluster_options options = { .size = WORKERS, .silence_limit = 1 };
    ls_mesh *mesh = NULL;
    memset(pieces, 0xee, sizeof(pieces));
    for (int r = 0; r < WORKERS; r++)
        streams[r].bytes = streams[r].at = 0;
    seconds = waits = 0;
    options.rank = (int)fuzz_take(&in, WORKERS);
    while (in.left > 0)
        add_packet(&in, (int)fuzz_take(&in, WORKERS));
    FUZZ_CHECK(ls_mesh_create(&options, &mesh) == LS_OK, "%s", ls_last_error());
    mesh->table = &fake;
    mesh->begun = true;
    for (int r = 0; r < WORKERS; r++)
        if (r != options.rank) {
            mesh->links[r].connection = (ls_connection *)&streams[r];
            mesh->links[r].has_heartbeat = true;
        }
    for (int round = 0; round < 2; round++) {
        check_exchange(mesh, 0, pieces);
        mesh->peers.again = false;
        fuzz_status(ls_mesh_commit(&mesh->peers, (uint64_t[2]){ 0, 0 }, "fuzz"));
        mesh->peers.again = false;
    }
    ls_mesh_free(mesh);
    return 0;
}
