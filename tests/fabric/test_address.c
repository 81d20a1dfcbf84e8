/* Addresses of workers: as text, packed for the wire, and of names that the system cannot
 * resolve. */
#include <dlfcn.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/transport/address.h"

static void addresses_are_read_packed_and_printed(void **state)
{
    (void)state;
    static const char *const good[] = { "127.0.0.1:2222", "[::1]:1", "[2001:db8::17]:65535", "10.1.2.3:80" };
    static const char *const bad[] = {
        "host", ":1", "host:", "host:x", "host:70000", "::1:5", "[]:5", "[::1:5", "h:-1"
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        ls_host_port where;
        ls_address a, b;
        unsigned char packed[LS_PACKED_ADDRESS];
        char text[LS_ADDRESS_CHARS];
        assert_true(ls_host_port_read(good[i], &where));
        assert_true(ls_address_read(&where, &a));
        ls_address_pack(&a, packed);
        ls_address_unpack(packed, &b);
        assert_string_equal(ls_address_print(&b, text), good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ls_host_port where;
        assert_false(ls_host_port_read(bad[i], &where));
    }
}

/* Replaces the system's: with no_names it resolves no name, as on a machine without /etc/hosts and
 * DNS. */
static bool no_names;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    return no_names && !(hints->ai_flags & AI_NUMERICHOST) ? EAI_AGAIN : next(host, service, hints, out);
}

static void localhost_is_loopback_without_a_resolver(void **state)
{
    (void)state;
    ls_address a[2];
    int count = 0;
    char text[LS_ADDRESS_CHARS];
    no_names = true;
    ls_status upper = ls_address_look_up(&(ls_host_port){ "LocalHost", 17 }, a, 2, &count);
    ls_status status = ls_address_look_up(&(ls_host_port){ "localhost", 18 }, a, 2, &count);
    ls_status other = ls_address_look_up(&(ls_host_port){ "elsewhere", 17 }, a + 1, 1, &(int){ 0 });
    no_names = false;
    assert_int_equal(upper, LS_OK);
    assert_int_equal(status, LS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(ls_address_print(&a[0], text), "127.0.0.1:18");
    assert_int_equal(other, LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), "\"elsewhere\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(addresses_are_read_packed_and_printed),
                                        cmocka_unit_test(localhost_is_loopback_without_a_resolver) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
