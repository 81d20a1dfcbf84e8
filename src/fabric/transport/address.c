/* Addresses of listening workers: parsing, names, sockets and the packed form. */
#include "fabric/transport/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "base/numbers.h"

/* ---- Text ---- */

bool ls_host_port_read(const char *text, ls_host_port *out)
{
    const char *colon = strrchr(text, ':');
    int64_t port;
    if (!colon || colon == text || !ls_parse_i64(colon + 1, &port) || port < 0 || port > 65535)
        return false;
    size_t length = (size_t)(colon - text);
    bool brackets = text[0] == '[' && colon[-1] == ']' && length > 2;
    if (!brackets && (memchr(text, ':', length) || memchr(text, '[', length)))
        return false;
    length -= 2 * brackets;
    if (length >= sizeof(out->host))
        return false;
    memcpy(out->host, text + brackets, length);
    out->host[length] = '\0';
    out->port = (int)port;
    return true;
}

int ls_address_port(const ls_address *a)
{
    return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

void ls_address_set_port(ls_address *a, int port)
{
    if (a->any.sa_family == AF_INET6)
        a->v6.sin6_port = htons((uint16_t)port);
    else
        a->v4.sin_port = htons((uint16_t)port);
}

bool ls_address_is_any(const ls_address *a)
{
    return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr)
                                        : a->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

static bool is_loopback(const ls_address *a)
{
    return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr)
                                        : ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

char *ls_address_print(const ls_address *a, char out[LS_ADDRESS_CHARS])
{
    char host[INET6_ADDRSTRLEN] = "?";
    bool v6 = a->any.sa_family == AF_INET6;
    if (a->bytes == 0)
        snprintf(out, LS_ADDRESS_CHARS, "nowhere");
    else if (inet_ntop(a->any.sa_family, v6 ? (const void *)&a->v6.sin6_addr : &a->v4.sin_addr, host, sizeof(host)))
        snprintf(out, LS_ADDRESS_CHARS, v6 ? "[%s]:%d" : "%s:%d", host, ls_address_port(a));
    return out;
}

/* ---- Names ---- */

static bool take(const struct sockaddr *from, ls_address *out)
{
    size_t bytes = from->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
                   : from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                 : 0;
    if (bytes == 0)
        return false;
    *out = (ls_address){ .bytes = (socklen_t)bytes };
    memcpy(&out->any, from, bytes);
    return true;
}

static bool is_localhost(const char *host)
{
    return strcasecmp(host, "localhost") == 0;
}

/* Uses 127.0.0.1 for "localhost": a machine without /etc/hosts may not resolve it. */
static int use_loopback(int port, ls_address *out, int *count)
{
    *out = (ls_address){ .bytes = sizeof(out->v4) };
    out->v4.sin_family = AF_INET;
    out->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ls_address_set_port(out, port);
    *count = 1;
    return 0;
}

static int look_up(const ls_host_port *where, int flags, ls_address *out, int room, int *count)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags }, *list = NULL;
    int error = getaddrinfo(where->host, NULL, &hints, &list);
    *count = 0;
    if (error != 0)
        return !(flags & AI_NUMERICHOST) && is_localhost(where->host) ? use_loopback(where->port, out, count) : error;
    for (const struct addrinfo *a = list; a && *count < room; a = a->ai_next)
        if (take(a->ai_addr, &out[*count]))
            ls_address_set_port(&out[(*count)++], where->port);
    freeaddrinfo(list);
    return *count > 0 ? 0 : EAI_NONAME;
}

ls_status ls_address_look_up(const ls_host_port *where, ls_address *out, int room, int *count)
{
    int error = look_up(where, 0, out, room, count);
    return error == 0 ? LS_OK
                      : ls_fail(LS_ERR_NOT_FOUND, "the address of host \"%s\" is not known: %s", where->host,
                                gai_strerror(error));
}

bool ls_address_read(const ls_host_port *where, ls_address *out)
{
    int count;
    return look_up(where, AI_NUMERICHOST, out, 1, &count) == 0;
}

/* ---- This machine ---- */

ls_status ls_address_towards(const ls_address *there, ls_address *out)
{
    char text[LS_ADDRESS_CHARS];
    ls_address own = { .bytes = sizeof(own.v6) };
    int fd = socket(there->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* connect sends nothing */
    bool known = fd >= 0 && connect(fd, &there->any, there->bytes) == 0 && getsockname(fd, &own.any, &own.bytes) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (!known)
        return ls_fail(LS_ERR_PEER, "no route to %s: %s", ls_address_print(there, text), strerror(error));
    ls_address_set_port(&own, 0);
    *out = own;
    return LS_OK;
}

/* Returns false for link-local addresses (fe80::, 169.254): others could use them only with an
 * interface's name. */
static bool is_reachable(const ls_address *a)
{
    return a->any.sa_family == AF_INET6 ? !IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr)
                                        : ntohl(a->v4.sin_addr.s_addr) >> 16 != 0xa9fe;
}

int ls_address_own(int port, ls_address *out, int room)
{
    struct ifaddrs *list = NULL;
    int count = 0;
    if (getifaddrs(&list) != 0)
        list = NULL;
    for (int loopback = 0; loopback < 2 && count == 0; loopback++)
        for (const struct ifaddrs *i = list; i && count < room; i = i->ifa_next)
            if (i->ifa_addr && i->ifa_flags & IFF_UP && take(i->ifa_addr, &out[count]) &&
                is_loopback(&out[count]) == (loopback == 1) && is_reachable(&out[count]))
                ls_address_set_port(&out[count++], port);
    freeifaddrs(list);
    return count;
}

/* Checks whether a socket can be bound to the address: then it is this machine's. */
static bool can_bind(ls_address *a)
{
    ls_address_set_port(a, 0);
    int fd = socket(a->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && bind(fd, &a->any, a->bytes) == 0;
    if (fd >= 0)
        close(fd);
    return bound;
}

bool ls_host_is_here(const char *host)
{
    char own[256] = "";
    ls_address list[LS_MOST_ADDRESSES];
    ls_host_port where = { .port = 0 };
    int count = 0;
    bool here = is_localhost(host) || (gethostname(own, sizeof(own) - 1) == 0 && strcasecmp(host, own) == 0);
    snprintf(where.host, sizeof(where.host), "%s", host);
    if (!here && look_up(&where, 0, list, LS_MOST_ADDRESSES, &count) != 0)
        return false;
    for (int i = 0; i < count && !here; i++)
        here = can_bind(&list[i]);
    return here;
}

bool ls_host_is_loopback(const char *host)
{
    ls_address address;
    ls_host_port where = { .port = 0 };
    snprintf(where.host, sizeof(where.host), "%s", host);
    return is_localhost(host) || (ls_address_read(&where, &address) && is_loopback(&address));
}

/* ---- Packed form ---- */

static const unsigned char mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

void ls_address_pack(const ls_address *a, unsigned char out[LS_PACKED_ADDRESS])
{
    memset(out, 0, LS_PACKED_ADDRESS);
    if (a->bytes == 0)
        return;
    if (a->any.sa_family == AF_INET6) {
        memcpy(out, &a->v6.sin6_addr, 16);
    } else {
        memcpy(out, mapped, sizeof(mapped));
        memcpy(out + sizeof(mapped), &a->v4.sin_addr, 4);
    }
    int port = ls_address_port(a);
    out[16] = (unsigned char)(port >> 8);
    out[17] = (unsigned char)port;
}

void ls_address_unpack(const unsigned char in[LS_PACKED_ADDRESS], ls_address *out)
{
    int port = in[16] << 8 | in[17];
    *out = (ls_address){ .bytes = 0 };
    if (port == 0)
        return;
    if (memcmp(in, mapped, sizeof(mapped)) == 0) {
        out->v4.sin_family = AF_INET;
        memcpy(&out->v4.sin_addr, in + sizeof(mapped), 4);
        out->bytes = sizeof(out->v4);
    } else {
        out->v6.sin6_family = AF_INET6;
        memcpy(&out->v6.sin6_addr, in, 16);
        out->bytes = sizeof(out->v6);
    }
    ls_address_set_port(out, port);
}
