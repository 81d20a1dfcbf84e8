/* TLS 1.3 with a pre-shared key. */
#include "fabric/transport/tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#define IDENTITY "lockstep" /* name of the only secret */

/* AES-GCM is safe for 2^24 records with a key, so even a small record counts as this many bytes. */
#define RECORD_COSTS 4096
uint64_t ls_tls_rekey_bytes = (uint64_t)1 << 36;

struct ls_tls {
    SSL_CTX *ctx;
    BIO_METHOD *method;
};

struct ls_secured {
    SSL *ssl;
    int fd;
    unsigned char secret[LS_KEY_BYTES]; /* wiped after the handshake */
    uint64_t written;                   /* bytes since the last change of keys */
    bool pending;                       /* a record is partly sent */
    int error;                          /* last errno of the socket; 0: none */
    int first_error;                    /* the first one; EPIPE: the peer sent FIN */
    char why[160];
};

/* ---- The socket: like OpenSSL's own, but without SIGPIPE ---- */

/* A reset after FIN is EPIPE, any other reset ECONNRESET; the kernel reports it once, then end of
 * file. So the first error decides, and an end of file counts as FIN only in CLOSE_WAIT. */
static void note_error(ls_secured *s, int error)
{
    s->error = error;
    if (s->first_error == 0)
        s->first_error = error;
}

static int end_of_file_error(int fd)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    bool fin = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_state == TCP_CLOSE_WAIT;
    return fin ? EPIPE : ECONNRESET;
}

static int socket_write(BIO *bio, const char *data, size_t bytes, size_t *moved)
{
    ls_secured *s = BIO_get_data(bio);
    ssize_t sent = send(s->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    *moved = sent > 0 ? (size_t)sent : 0;
    if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
        BIO_set_retry_write(bio);
    else if (sent < 0)
        note_error(s, errno);
    return sent > 0;
}

static int socket_read(BIO *bio, char *data, size_t bytes, size_t *moved)
{
    ls_secured *s = BIO_get_data(bio);
    ssize_t got = recv(s->fd, data, bytes, MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    *moved = got > 0 ? (size_t)got : 0;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    else if (got < 0)
        note_error(s, errno);
    else if (got == 0)
        note_error(s, end_of_file_error(s->fd));
    return got > 0;
}

static long socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static int socket_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

/* ---- The secret ---- */

/* OpenSSL frees the session. */
static SSL_SESSION *make_session(SSL *ssl)
{
    static const unsigned char aes_128_gcm_sha256[] = { 0x13, 0x01 };
    const ls_secured *s = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session && cipher && SSL_SESSION_set1_master_key(session, s->secret, sizeof(s->secret)) &&
        SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int offer_secret(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *length,
                        SSL_SESSION **session)
{
    (void)hash; /* there is one cipher, hence one hash */
    *session = make_session(ssl);
    *identity = (const unsigned char *)IDENTITY;
    *length = strlen(IDENTITY);
    return *session != NULL;
}

static int find_secret(SSL *ssl, const unsigned char *identity, size_t length, SSL_SESSION **session)
{
    bool ours = length == strlen(IDENTITY) && memcmp(identity, IDENTITY, length) == 0;
    *session = ours ? make_session(ssl) : NULL;
    return 1;
}

/* ---- Shared by all connections ---- */

/* Without a certificate on one side and trust on the other, only the secret authenticates. */
static bool set_up(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_psk_use_session_callback(ctx, offer_secret);
    SSL_CTX_set_psk_find_session_callback(ctx, find_secret);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) && SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) &&
           SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256") && SSL_CTX_set_num_tickets(ctx, 0) &&
           SSL_CTX_set1_groups_list(ctx, "X25519:P-256");
}

ls_status ls_tls_open(ls_tls **out)
{
    ls_tls *tls = calloc(1, sizeof(*tls));
    if (!tls)
        return ls_fail(LS_ERR_MEMORY, "no memory for TLS");
    tls->ctx = SSL_CTX_new(TLS_method());
    tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");
    if (!tls->ctx || !tls->method || !set_up(tls->ctx) || !BIO_meth_set_write_ex(tls->method, socket_write) ||
        !BIO_meth_set_read_ex(tls->method, socket_read) || !BIO_meth_set_ctrl(tls->method, socket_control) ||
        !BIO_meth_set_create(tls->method, socket_create)) {
        const char *why = ERR_reason_error_string(ERR_peek_error());
        ls_status status = ls_fail(LS_ERR_UNSUPPORTED, "OpenSSL cannot do TLS 1.3: %s", why ? why : "no reason given");
        ERR_clear_error();
        ls_tls_close(tls);
        return status;
    }
    *out = tls;
    return LS_OK;
}

void ls_tls_close(ls_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->ctx);
    BIO_meth_free(tls->method);
    free(tls);
}

/* ---- One connection ---- */

ls_status ls_secured_open(ls_tls *tls, int fd, bool caller, const unsigned char secret[LS_KEY_BYTES], ls_secured **out)
{
    ls_secured *s = calloc(1, sizeof(*s));
    BIO *bio = BIO_new(tls->method);
    SSL *ssl = SSL_new(tls->ctx);
    if (!s || !bio || !ssl) {
        free(s);
        BIO_free(bio);
        SSL_free(ssl);
        ERR_clear_error();
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    s->ssl = ssl;
    s->fd = fd;
    memcpy(s->secret, secret, sizeof(s->secret));
    BIO_set_data(bio, s);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, s);
    if (caller) {
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* so that a certificate is never accepted */
        SSL_set_connect_state(ssl);
    } else {
        SSL_set_accept_state(ssl);
    }
    *out = s;
    return LS_OK;
}

void ls_secured_free(ls_secured *s)
{
    if (!s)
        return;
    SSL_free(s->ssl);
    OPENSSL_cleanse(s->secret, sizeof(s->secret));
    free(s);
}

const char *ls_secured_why(const ls_secured *s)
{
    return s->why;
}

static ls_tls_result fail(ls_secured *s)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    if (s->error)
        reason = s->error == EPIPE ? "its connection ended" : strerror(s->error);
    snprintf(s->why, sizeof(s->why), "%s", reason ? reason : "no reason is known");
    ERR_clear_error();
    return s->error ? LS_TLS_CLOSED : LS_TLS_FAILED;
}

static ls_tls_result classify(ls_secured *s, int result)
{
    switch (SSL_get_error(s->ssl, result)) {
    case SSL_ERROR_NONE:
        return LS_TLS_DONE;
    case SSL_ERROR_WANT_READ:
        return LS_TLS_WANTS_READ;
    case SSL_ERROR_WANT_WRITE:
        return LS_TLS_WANTS_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        snprintf(s->why, sizeof(s->why), "it hung up");
        return LS_TLS_CLOSED;
    default:
        return fail(s);
    }
}

ls_tls_result ls_secured_shake_hands(ls_secured *s)
{
    ERR_clear_error();
    ls_tls_result result = classify(s, SSL_do_handshake(s->ssl));
    if (result != LS_TLS_DONE)
        return result;
    OPENSSL_cleanse(s->secret, sizeof(s->secret));
    if (SSL_session_reused(s->ssl)) /* the secret was used */
        return LS_TLS_DONE;
    snprintf(s->why, sizeof(s->why), "the other side did not use the job's key");
    return LS_TLS_FAILED;
}

ls_tls_result ls_secured_write(ls_secured *s, const void *data, size_t bytes, size_t *moved)
{
    *moved = 0;
    ERR_clear_error();
    if (s->written > ls_tls_rekey_bytes && !s->pending) {
        s->written = 0;
        if (!SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED))
            return fail(s);
    }
    ls_tls_result result = classify(s, SSL_write_ex(s->ssl, data, bytes, moved));
    s->pending = result == LS_TLS_WANTS_WRITE || result == LS_TLS_WANTS_READ;
    s->written += *moved + RECORD_COSTS;
    return result;
}

ls_tls_result ls_secured_read(ls_secured *s, void *data, size_t bytes, size_t *moved)
{
    *moved = 0;
    ERR_clear_error();
    return classify(s, SSL_read_ex(s->ssl, data, bytes, moved));
}

bool ls_secured_has_bytes(const ls_secured *s)
{
    return SSL_has_pending(s->ssl) == 1;
}

bool ls_secured_say_end(ls_secured *s)
{
    bool can = SSL_is_init_finished(s->ssl) && !s->pending;
    ERR_clear_error();
    if (can)
        can = SSL_shutdown(s->ssl) >= 0; /* does not wait for the peer's close_notify */
    ERR_clear_error();
    return can;
}

bool ls_secured_was_closed(const ls_secured *s)
{
    return (SSL_get_shutdown(s->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

bool ls_secured_died(const ls_secured *s)
{
    return s->first_error == EPIPE && !ls_secured_was_closed(s);
}
