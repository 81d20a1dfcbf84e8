/* Workers that join a running fit: between two steps, a member sends them the state as a
 * checkpoint. */
#include <stdlib.h>

#include "nn/model.h"
#include "run/peers.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/state_list.h"
#include "train/job/job.h"
#include "train/report/log.h"

#define TAG(number) (0x6a6f696e00000000u + (number)) /* "join", then the number of the exchange */

static ls_peers *peers_of(const ls_job *job)
{
    return ls_model_graph(job->model)->context->peers;
}

/* ---- Sending the state ---- */

static ls_status pack(ls_job *job, ls_package *out)
{
    ls_content *content = NULL;
    LS_TRY(ls_job_content(job, &content));
    ls_status status = ls_checkpoint_pack(content, out);
    ls_content_destroy(content);
    return status;
}

/* Returns the oldest other member, or -1. */
static int find_sender(const ls_peers *peers)
{
    for (int i = 0; i < peers->count; i++)
        if (peers->members[i] != peers->new_member)
            return peers->members[i];
    return -1;
}

/* Sent before the state. */
typedef struct state_head {
    uint64_t size[LS_CHECKPOINT_FILES];
    char log[LS_LOG_ID];
} state_head;

/* The sender must not decide how much memory is allocated. */
static ls_status check_size(ls_job *job, const uint64_t size[LS_CHECKPOINT_FILES])
{
    ls_state_entry *entries = NULL;
    size_t count = 0;
    uint64_t room = (uint64_t)256 << 20;
    LS_TRY(ls_job_list(job, &entries, &count));
    for (size_t i = 0; i < count; i++)
        room += entries[i].bytes;
    free(entries);
    for (int i = 0; i < LS_CHECKPOINT_FILES; room -= size[i++])
        if (size[i] > room)
            return ls_fail(LS_ERR_PEER,
                           "cannot join: the state that another worker sent is larger than this model's can be");
    return LS_OK;
}

/* All members take part, most without data. */
static ls_status send_state(ls_job *job, ls_train_log *log, ls_package *package)
{
    ls_peers *peers = peers_of(job);
    int from = find_sender(peers), to = peers->new_member;
    state_head first = { .size = { 0 } };
    if (from < 0)
        return ls_fail(LS_ERR_PEER, "cannot join: all workers that had the state are lost");
    if (from == peers->rank && !package->bytes)
        LS_TRY(pack(job, package));
    for (int i = 0; i < LS_CHECKPOINT_FILES; i++)
        first.size[i] = package->size[i];
    ls_train_log_run_id(log, first.log);
    const ls_piece about = { from, to, &first, sizeof(first) };
    LS_TRY(peers->exchange(peers, TAG(1), "the size of the state", &about, 1));
    if (to == peers->rank) {
        ls_train_log_join_run(log, first.log);
        LS_TRY(check_size(job, first.size));
        ls_package_free(package);
        LS_TRY(ls_package_allocate(package, first.size));
    }
    const ls_piece all = { from, to, package->bytes, ls_package_bytes(package) };
    bool takes_part = from == peers->rank || to == peers->rank;
    LS_TRY(peers->exchange(peers, TAG(2), "the state", &all, takes_part ? 1 : 0));
    return peers->commit(peers, (uint64_t[2]){ TAG(2), 0 }, "the state for a new member");
}

static ls_status send_state_until_done(ls_job *job, ls_train_log *log, ls_package *package)
{
    ls_peers *peers = peers_of(job);
    ls_status status = LS_OK;
    while (peers->new_member >= 0) {
        status = send_state(job, log, package);
        if (status == LS_OK)
            peers->new_member = -1;
        else if (!ls_peers_again(peers)) {
            peers->give_up(peers); /* the others continue */
            return status;
        }
    }
    return LS_OK;
}

ls_status ls_job_welcome(ls_job *job, ls_train_log *log, bool *too_few)
{
    ls_peers *peers = peers_of(job);
    *too_few = false;
    /* Requests travel with commits, and a single worker makes no others. */
    if (peers && peers->count == 1)
        LS_TRY(peers->commit(peers, (uint64_t[2]){ 0, 0 }, "a step of the only worker"));
    while (peers && (peers->granted & LS_REQUEST_WELCOME || ls_peers_workers(peers) < peers->least) && !*too_few) {
        ls_package package = { .bytes = NULL };
        peers->granted &= ~(uint64_t)(LS_REQUEST_WELCOME | LS_REQUEST_TOO_FEW);
        ls_status status = peers->welcome(peers);
        if (status != LS_OK && !ls_peers_again(peers))
            return status;
        status = send_state_until_done(job, log, &package);
        ls_package_free(&package);
        LS_TRY(status);
        *too_few = peers->granted & LS_REQUEST_TOO_FEW;
    }
    return LS_OK;
}

/* ---- Receiving the state ---- */

static ls_status restore(ls_job *job, ls_checkpoint *found)
{
    ls_status status = ls_checkpoint_fits(found, job, (ls_fits){ .in_fit = true }, NULL);
    if (status == LS_OK && job->writer)
        return ls_checkpoint_writer_resume_from(job->writer, found);
    if (status == LS_OK)
        status = ls_checkpoint_history(found, job->fit->history);
    if (status == LS_OK)
        status = ls_checkpoint_put(found, job);
    ls_checkpoint_close(found);
    return status;
}

static ls_status take_state(ls_job *job, ls_train_log *log)
{
    ls_peers *peers = peers_of(job);
    ls_package package = { .bytes = NULL };
    ls_checkpoint *found = NULL;
    ls_status status = send_state_until_done(job, log, &package);
    if (status == LS_OK)
        status = ls_checkpoint_unpack(&package, &found);
    ls_package_free(&package);
    if (status == LS_OK)
        status = restore(job, found);
    if (status != LS_OK)
        peers->give_up(peers); /* it is a member already */
    return status;
}

ls_status ls_job_join(ls_job *job, ls_train_log *log, const volatile int *stop, ls_answer *answer)
{
    ls_peers *peers = peers_of(job);
    *answer = LS_ANSWER_WAIT;
    while (*answer == LS_ANSWER_WAIT) {
        if (stop && *stop)
            return LS_OK;
        LS_TRY(peers->join(peers, answer));
    }
    return *answer == LS_ANSWER_JOINED ? take_state(job, log) : LS_OK;
}
