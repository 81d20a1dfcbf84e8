/* Skipping with a reason, which tests/run.sh prints above its last line. After cmocka.h. */
#ifndef TESTS_SKIP_H
#define TESTS_SKIP_H

#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        print_message("[   WHY    ] %s: %s\n", __func__, why);                                                         \
        skip();                                                                                                        \
    } while (0)

#endif
