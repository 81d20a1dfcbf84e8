/* Fields of messages to numbers on the wire, and back (ps_message.h). */
#include "train/server/ps_message.h"

#include <string.h>

#define FIELDS(name) sizeof(((ls_ps_message *)0)->name)

/* Bytes of the fields of each kind. All other numbers of a message are 0. */
static const size_t field_bytes[] = {
    [LS_MESSAGE_MET] = FIELDS(met), [LS_PS_ASK] = FIELDS(ask),   [LS_PS_TAKE] = FIELDS(take),
    [LS_PS_DONE] = FIELDS(done),    [LS_PS_FAIL] = FIELDS(fail), [LS_PS_OVER] = FIELDS(over),
    [LS_PS_FINAL] = FIELDS(final),  [LS_PS_BEGIN] = 0,           [LS_PS_HAVE] = FIELDS(have),
    [LS_PS_GIVE] = FIELDS(give),    [LS_PS_RATE] = FIELDS(rate), [LS_PS_PULL] = FIELDS(pull),
    [LS_PS_SHARD] = FIELDS(shard),  [LS_PS_PUSH] = FIELDS(push), [LS_PS_ACK] = FIELDS(ack),
    [LS_PS_AGAIN] = FIELDS(again),
};

_Static_assert(FIELDS(take) <= FIELDS(numbers) && FIELDS(push) <= FIELDS(numbers), "a message has too many fields");
_Static_assert(FIELDS(text) == sizeof(((ls_message *)0)->text), "texts of both kinds of messages have one size");

static size_t bytes_of(int kind)
{
    size_t kinds = sizeof(field_bytes) / sizeof(field_bytes[0]);
    return kind >= 0 && (size_t)kind < kinds ? field_bytes[kind] : 0;
}

ls_message ls_ps_write(const ls_ps_message *m)
{
    ls_message out = { .rank = m->rank, .kind = m->kind, .body = m->body };
    memcpy(out.numbers, m->numbers, bytes_of(m->kind));
    return out;
}

ls_ps_message ls_ps_read(const ls_message *m)
{
    ls_ps_message out = { .rank = m->rank, .kind = m->kind, .numbers = { 0 }, .body = m->body };
    memcpy(out.numbers, m->numbers, bytes_of(m->kind));
    memcpy(out.text, m->text, sizeof(out.text));
    return out;
}
