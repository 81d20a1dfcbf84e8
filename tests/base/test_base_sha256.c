/* SHA-256 against published answers (FIPS 180-2 appendix B and the empty message). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"

static void known_answers(void **state)
{
    (void)state;
    static const char *const known[][2] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char hex[65];
        assert_int_equal(ls_sha256_of(known[i][0], strlen(known[i][0]), hex), LS_OK);
        assert_string_equal(hex, known[i][1]);
    }
}

static void pieces_make_the_same_hash(void **state)
{
    (void)state;
    enum { BYTES = 1000000 };
    char *data = malloc(BYTES);
    assert_non_null(data);
    memset(data, 'a', BYTES);
    ls_sha256 *hash;
    assert_int_equal(ls_sha256_begin(&hash), LS_OK);
    for (size_t at = 0, piece = 0; at < BYTES; at += piece) {
        piece = (at * 7 + 1) % 4099;
        if (piece > BYTES - at)
            piece = BYTES - at;
        assert_int_equal(ls_sha256_add(hash, data + at, piece), LS_OK);
        if (piece == 0)
            piece = 1, assert_int_equal(ls_sha256_add(hash, data + at, 1), LS_OK);
    }
    char hex[65];
    assert_int_equal(ls_sha256_end(hash, hex), LS_OK);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(data);
}

static void nothing_to_add_and_nothing_to_destroy(void **state)
{
    (void)state;
    ls_sha256 *hash;
    assert_int_equal(ls_sha256_begin(&hash), LS_OK);
    assert_int_equal(ls_sha256_add(hash, NULL, 0), LS_OK);
    ls_sha256_destroy(hash); /* given up half-way: must not leak */
    ls_sha256_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(pieces_make_the_same_hash),
        cmocka_unit_test(nothing_to_add_and_nothing_to_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
