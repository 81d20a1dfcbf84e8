/* Checks of calls: see check.h. */
#include "check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

void check_ok(ls_status status, const char *call)
{
    if (status != LS_OK)
        fail_msg("%s: %s: %s", call, ls_status_name(status), ls_last_error());
}
