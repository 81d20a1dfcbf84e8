#include "fabric/protocol/hello.h"

#include <string.h>

#include "base/text.h"

ls_status ls_hellos_open(ls_hellos *all, const ls_transport_table *table, const ls_cluster_options *options,
                         int call_count, const char *text, const char *difference)
{
    *all = (ls_hellos){ .table = table,
                        .difference = difference,
                        .call_count = call_count,
                        .packet = { .magic = LS_PACKET_MAGIC,
                                    .version = LS_PACKET_VERSION,
                                    .kind = LS_PACKET_HELLO,
                                    .from = (uint32_t)options->rank,
                                    .number = (uint64_t)options->size,
                                    .bytes = strlen(text) } };
    if (strlen(text) > LS_HELLO_TEXT)
        return ls_fail(LS_ERR_INTERNAL, "the text of a handshake has %zu bytes; the limit is %d", strlen(text),
                       LS_HELLO_TEXT);
    snprintf(all->text, sizeof(all->text), "%s", text);
    all->calls = calloc((size_t)call_count, sizeof(*all->calls));
    all->callers = calloc(LS_MOST_CALLERS, sizeof(*all->callers));
    if (!all->calls || !all->callers)
        return ls_fail(LS_ERR_MEMORY, "no memory for the handshakes of %d workers", options->size);
    return LS_OK;
}

void ls_hellos_close(ls_hellos *all)
{
    for (int i = 0; all->calls && i < all->call_count; i++)
        ls_hello_forget(all, &all->calls[i]);
    while (all->caller_count > 0)
        ls_hello_drop_caller(all, all->caller_count - 1);
    free(all->calls);
    free(all->callers);
    all->calls = all->callers = NULL;
}

/* ---- Connections ---- */

ls_status ls_hello_call(const ls_hellos *all, ls_hello *call, int rank)
{
    LS_TRY(all->table->call(all->transport, rank, &call->at));
    if (call->at) {
        call->since = all->table->now(all->transport);
        ls_hello_say(all, call);
    }
    return LS_OK;
}

ls_status ls_hello_answer(ls_hellos *all)
{
    for (;;) {
        ls_connection *at = NULL;
        LS_TRY(all->table->answer(all->transport, &at));
        if (!at)
            return LS_OK;
        if (all->caller_count == LS_MOST_CALLERS)
            ls_hello_drop_caller(all, 0);
        ls_hello *caller = &all->callers[all->caller_count++];
        caller->at = at;
        caller->since = all->table->now(all->transport);
    }
}

void ls_hello_forget(const ls_hellos *all, ls_hello *hello)
{
    if (!hello->at)
        return;
    all->table->hang_up(hello->at);
    *hello = (ls_hello){ 0 };
}

void ls_hello_drop_caller(ls_hellos *all, int index)
{
    ls_hello *caller = &all->callers[index];
    ls_hello_forget(all, caller);
    memmove(caller, caller + 1, (size_t)(--all->caller_count - index) * sizeof(*caller));
    all->callers[all->caller_count] = (ls_hello){ 0 };
}

/* ---- HELLOs ---- */

void ls_hello_say(const ls_hellos *all, ls_hello *hello)
{
    hello->speaks = true;
    hello->out = all->packet;
}

static bool is_sent(const ls_hello *hello)
{
    return hello->speaks && hello->sent == sizeof(hello->out) + hello->out.bytes;
}

bool ls_hello_send(const ls_hellos *all, ls_hello *hello)
{
    if (hello->speaks && !is_sent(hello))
        (void)ls_packet_write(all->table, hello->at, &hello->out, all->text, &hello->sent);
    return is_sent(hello);
}

static bool is_hello(const ls_packet *head)
{
    return head->magic == LS_PACKET_MAGIC && head->kind == LS_PACKET_HELLO && head->bytes <= LS_HELLO_TEXT &&
           head->from < LS_MAX_CLUSTER && head->number <= LS_MAX_CLUSTER;
}

ls_status ls_hello_hear(const ls_hellos *all, ls_hello *hello, bool *heard)
{
    const size_t head = sizeof(hello->in);
    *heard = hello->got >= head && hello->got == head + hello->in.bytes;
    while (!*heard) {
        size_t before = hello->got;
        LS_TRY(ls_packet_read(all->table, hello->at, &hello->in, hello->text, &hello->got));
        if (hello->got == before)
            return LS_OK;
        if (hello->got == head && !is_hello(&hello->in))
            return ls_fail(LS_ERR_PEER, "the other side did not send a valid HELLO (magic %08x, version %u, kind %u)",
                           hello->in.magic, hello->in.version, hello->in.kind);
        *heard = hello->got >= head && hello->got == head + hello->in.bytes;
    }
    hello->text[hello->in.bytes] = '\0';
    return LS_OK;
}

ls_status ls_hello_continue(const ls_hellos *all, ls_hello *call, int rank, bool *done)
{
    bool sent = ls_hello_send(all, call);
    LS_TRY(ls_hello_hear(all, call, done));
    if (*done && call->in.from != (uint32_t)rank)
        return ls_fail(LS_ERR_PEER, "worker %u replied in place of worker %d", call->in.from, rank);
    *done = *done && sent;
    return LS_OK;
}

ls_status ls_hello_compare(const ls_hellos *all, const ls_hello *hello)
{
    char text[LS_HELLO_TEXT + 1];
    uint32_t from = hello->in.from, own = all->packet.from;
    if (hello->in.version != LS_PACKET_VERSION)
        return ls_fail(LS_ERR_PEER,
                       "worker %u uses version %u of the protocol, worker %u (this one) version %d; start all workers "
                       "with the same version of the library",
                       from, hello->in.version, own, LS_PACKET_VERSION);
    if (hello->in.number != all->packet.number)
        return ls_fail(LS_ERR_PEER, "worker %u is one of %llu, worker %u (this one) is one of %llu", from,
                       (unsigned long long)hello->in.number, own, (unsigned long long)all->packet.number);
    memcpy(text, hello->text, sizeof(text));
    ls_make_printable(text, strlen(text));
    if (strcmp(hello->text, all->text) != 0)
        return ls_fail(LS_ERR_PEER, "%s: worker %u has %s; worker %u (this one) has %s", all->difference, from, text,
                       own, all->text);
    return LS_OK;
}

int ls_hellos_list(const ls_hellos *all, ls_want *wants, int count)
{
    for (int i = 0; i < all->call_count + all->caller_count; i++) {
        const ls_hello *h = i < all->call_count ? &all->calls[i] : &all->callers[i - all->call_count];
        if (h->at)
            wants[count++] = (ls_want){ .connection = h->at, .read = true, .write = h->speaks && !is_sent(h) };
    }
    return count;
}
